//! One case, and the databases and strategies that it is for.

use crate::{Kind, Table};
use futures_util::{FutureExt, future::LocalBoxFuture};
use libtest_mimic::{Completion, Failed, Trial};
use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    time::Duration,
};
use tenure_conformance::skip;
use tenure_sql::Strategy;
use tenure_testbed::Server;
use tokio::{
    runtime::Builder,
    sync::{OnceCell, RwLock},
};

/// When a case counts as one that hangs. A few take 40 s each on a slow machine that does nothing else.
const HANGS: Duration = Duration::from_mins(5);

const SERVERS: [Kind; 3] = [Kind::Postgres, Kind::Mariadb, Kind::Mysql];
const STRATEGIES: [Strategy; 3] = [Strategy::LeaseRow, Strategy::RowLock, Strategy::Advisory];

/// A case, with its databases and strategies.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    group: &'static str,
    name: &'static str,
    kinds: &'static [Kind],
    strategies: &'static [Strategy],
    pub(crate) alone: bool,
    run: for<'a> fn(&'a Table) -> LocalBoxFuture<'a, ()>,
}

impl Case {
    /// A case for every database and both strategies.
    pub(crate) const fn new(
        group: &'static str,
        name: &'static str,
        run: for<'a> fn(&'a Table) -> LocalBoxFuture<'a, ()>,
    ) -> Self {
        Self {
            group,
            name,
            kinds: &SERVERS,
            strategies: &[Strategy::LeaseRow, Strategy::RowLock],
            alone: false,
            run,
        }
    }

    /// The server is hurt: no other case may use it meanwhile.
    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    pub(crate) const fn on(self, kinds: &'static [Kind]) -> Self {
        Self { kinds, ..self }
    }

    pub(crate) const fn of_lease_rows(self) -> Self {
        Self { strategies: &[Strategy::LeaseRow], ..self }
    }

    pub(crate) const fn of_row_locks(self) -> Self {
        Self { strategies: &[Strategy::RowLock], ..self }
    }

    /// For the locks that end with a connection.
    pub(crate) const fn of_sessions(self) -> Self {
        Self { strategies: &[Strategy::RowLock, Strategy::Advisory], ..self }
    }

    pub(crate) const fn of_advisory_locks(self) -> Self {
        Self { strategies: &[Strategy::Advisory], ..self }
    }
}

/// The cases of a group, each named as its function.
macro_rules! cases {
    ($group:literal: $($case:ident $(.$with:ident($($kinds:expr)?))*),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::Case] = &[
            $($crate::Case::new($group, stringify!($case), |table| Box::pin($case(table)))$(.$with($($kinds)?))*),+
        ];
    };
}
pub(crate) use cases;

/// A server that all cases of its kind share. It goes with this process.
struct Place {
    kind: Kind,
    server: OnceCell<Result<Server, String>>,
    quiet: RwLock<()>,
}

impl Place {
    const fn of(kind: Kind) -> Self {
        Self { kind, server: OnceCell::const_new(), quiet: RwLock::const_new(()) }
    }

    async fn server(&self) -> Result<&Server, &String> {
        let find = || async { Server::find(self.kind).await.map_err(|error| error.to_string()) };
        self.server.get_or_init(find).await.as_ref()
    }
}

static PLACES: [Place; 5] = [
    Place::of(Kind::Postgres),
    Place::of(Kind::Pgbouncer),
    Place::of(Kind::Mariadb),
    Place::of(Kind::Mysql),
    Place::of(Kind::Galera),
];

/// A database with a strategy.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    place: &'static Place,
    strategy: Strategy,
}

impl Lane {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        PLACES.iter().flat_map(|place| STRATEGIES.map(|strategy| Self { place, strategy }))
    }

    /// As the conformance suite names it.
    fn name(self) -> String {
        let kind = self.place.kind;
        match self.strategy {
            Strategy::RowLock => format!("{kind}-row-lock"),
            Strategy::Advisory => format!("{kind}-advisory"),
            _ => kind.to_string(),
        }
    }

    /// The case as a test, if it is for this lane.
    pub(crate) fn trial(self, case: &Case) -> Option<Trial> {
        let applies = case.kinds.contains(&self.place.kind) && case.strategies.contains(&self.strategy);
        let (case, name) = (*case, format!("{}::{}::{}", self.name(), case.group, case.name));
        applies.then(|| Trial::ignorable_test(name, move || self.run(case)))
    }

    fn run(self, case: Case) -> Result<Completion, Failed> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let server = match self.place.server().await {
                Ok(server) => server,
                Err(why) => {
                    skip(self.place.kind.name(), why)?;
                    return Ok(Completion::ignored_with(why));
                }
            };
            let (_alone, _together) = if case.alone {
                (Some(self.place.quiet.write().await), None)
            } else {
                (None, Some(self.place.quiet.read().await))
            };
            let table = Table::new(server, self.strategy);
            let run = tokio::time::timeout(HANGS, (case.run)(&table));
            let ended = AssertUnwindSafe(run).catch_unwind().await;
            if case.alone {
                server.saboteur().heal().await?;
            }
            match ended {
                Ok(Ok(())) => Ok(Completion::Completed),
                Ok(Err(_)) => Err(Failed::from("it did not end")),
                Err(panic) => resume_unwind(panic),
            }
        })
    }
}
