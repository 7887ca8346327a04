//! The suite as a test program of its own.

use crate::{
    Case, Subjects, cases,
    required::skip,
    suite::{Outcome, Tested},
    victim,
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    process::ExitCode,
    sync::Arc,
};
use tokio::{runtime::Builder, sync::Semaphore};

/// How many cases run at once by default (`--test-threads`). Most are those that wait for a server of their own.
const TOGETHER: usize = 48;
/// How many at most share their store, or run in virtual time: these keep a processor busy.
const SHARING: usize = 12;
/// After how many of these comes one that has a server for itself.
const BETWEEN: usize = 4;

/// Runs the suite on these stores, as the `main` of a test program.
///
/// It takes the arguments that `cargo test` passes on (a filter, `--exact`, `--skip`, `--list`, `--test-threads`) and
/// prints what a test program prints; each case on each store is one test. `subjects` is also called in the processes
/// that the suite starts to be killed, so it should be quick: prepare a store in
/// [`Subject::start`](crate::Subject::start).
///
/// # Examples
///
/// `tests/conformance.rs`, with `harness = false` for it in `Cargo.toml`:
///
/// ```no_run
/// # use tenure_conformance::{BoxError, Subject, Subjects, async_trait};
/// # use std::{process::ExitCode, sync::Arc};
/// # struct MyStore;
/// # #[async_trait]
/// # impl Subject for MyStore {
/// #     fn name(&self) -> &str { "mine" }
/// #     async fn backend(&self) -> Result<Arc<dyn tenure_core::Backend>, BoxError> { unimplemented!() }
/// # }
/// fn main() -> ExitCode {
///     tenure_conformance::main(|| async { Subjects::new().with(MyStore) })
/// }
/// ```
pub fn main<Making>(subjects: impl FnOnce() -> Making) -> ExitCode
where
    Making: Future<Output = Subjects>,
{
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime for the suite: {error}");
            return ExitCode::FAILURE;
        }
    };
    if victim::is_victim() {
        runtime.block_on(victim::play_victim_if_asked(subjects));
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TOGETHER);
    let tested = Tested::all(runtime.block_on(subjects()));
    // With a filter, the next store may not be needed at all.
    let all = arguments.filter.is_none() && arguments.skip.is_empty();
    let next = |at: usize| tested.get(at + 1).filter(|_| all).cloned();
    let sharing = Arc::new(Semaphore::new(SHARING));
    let lanes = tested.iter().enumerate().map(|(at, tested)| {
        let mut shown = cases::all();
        shown.retain(|case| tested.shows(case));
        let turn = || Turn { tested: Arc::clone(tested), next: next(at), sharing: Arc::clone(&sharing) };
        Lane {
            server: tested.subject.disturbs(),
            cases: shown.into_iter().map(|case| (case, turn())).collect(),
        }
    });
    let trial = |(case, turn): (Case, Turn)| {
        let (name, runtime) = (case.full_name(turn.tested.subject.name()), runtime.handle().clone());
        Trial::ignorable_test(name, move || completion(runtime.block_on(turn.run(case))))
    };
    let trials = in_order(lanes.collect()).into_iter().map(trial);
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let mut absent = tested.iter().filter_map(|tested| Some((tested.subject.name(), tested.absent()?)));
    let skipped = absent.try_for_each(|(name, why)| skip(name, why));
    // Subjects may end servers when they are dropped, and may need the runtime for that.
    runtime.block_on(async move { drop(tested) });
    if let Err(why) = skipped {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// A case's turn on a store.
struct Turn {
    tested: Arc<Tested>,
    /// The store whose turn is next. Servers take seconds to start; meanwhile this one's cases run.
    next: Option<Arc<Tested>>,
    /// For cases that keep a processor busy.
    sharing: Arc<Semaphore>,
}

impl Turn {
    async fn run(self, case: Case) -> Outcome {
        if let Some(next) = self.next {
            tokio::spawn(next.start());
        }
        self.tested.run(case, &self.sharing).await
    }
}

/// The cases of a store.
struct Lane<T> {
    /// The server that its faults [disturb](crate::Subject::disturbs).
    server: String,
    cases: Vec<(Case, T)>,
}

/// The order of the cases. Those that share their store come one store after the other, so that few servers are busy at the
/// same time. Those that need a server for themselves mostly wait: they come between the others, once all that share their
/// server have come, each server in turn.
fn in_order<T>(lanes: Vec<Lane<T>>) -> Vec<(Case, T)> {
    let last: HashMap<_, _> = lanes.iter().enumerate().map(|(at, lane)| (lane.server.clone(), at)).collect();
    let mut order = Vec::new();
    let (mut waiting, mut ready) = (HashMap::<_, InTurn<_>>::new(), InTurn::default());
    for (at, Lane { server, cases }) in lanes.into_iter().enumerate() {
        let (alone, sharing): (Vec<_>, Vec<_>) = cases.into_iter().partition(|(case, _)| case.alone);
        for (number, case) in (1..).zip(sharing) {
            order.push(case);
            if number % BETWEEN == 0 {
                order.extend(ready.next());
            }
        }
        waiting.entry(server.clone()).or_default().add(alone);
        if last[&server] == at {
            ready.add(waiting.remove(&server).into_iter().flatten());
        }
    }
    order.extend(ready);
    order
}

/// Queues that are served in turn.
struct InTurn<C>(VecDeque<VecDeque<C>>);

impl<C> Default for InTurn<C> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<C> InTurn<C> {
    fn add(&mut self, queue: impl IntoIterator<Item = C>) {
        self.0.push_back(queue.into_iter().collect());
    }
}

impl<C> Iterator for InTurn<C> {
    type Item = C;

    fn next(&mut self) -> Option<C> {
        loop {
            let mut queue = self.0.pop_front()?;
            if let Some(next) = queue.pop_front() {
                self.0.push_back(queue);
                return Some(next);
            }
        }
    }
}

fn completion(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Ignored(why) => Ok(Completion::ignored_with(why)),
        Outcome::Failed(what) => Err(what.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The order keeps the run short.
    #[test]
    fn lone_cases_come_once_their_server_is_free_and_in_turn() {
        let lane = |store: &'static str, server: &str| Lane {
            server: server.to_owned(),
            cases: cases::all().into_iter().map(|case| (case, store)).collect(),
        };
        let order = in_order(vec![lane("a", "one"), lane("b", "one"), lane("c", "two"), lane("d", "three")]);
        let names: HashSet<String> = order.iter().map(|(case, store)| case.full_name(store)).collect();
        assert_eq!((names.len(), order.len()), (cases::all().len() * 4, cases::all().len() * 4), "each once");
        let shared: Vec<_> = order.iter().filter(|(case, _)| !case.alone).map(|(_, store)| *store).collect();
        assert!(shared.is_sorted(), "one store after the other");
        let first_alone = |store| order.iter().position(|(case, of)| case.alone && *of == store).unwrap();
        let last_shared = |store| order.iter().rposition(|(case, of)| !case.alone && *of == store).unwrap();
        for (first, last) in [("a", "b"), ("b", "b"), ("c", "c"), ("d", "d")] {
            assert!(first_alone(first) > last_shared(last), "{first} before {last}");
        }
        assert!(first_alone("a") < last_shared("c"), "between those of others");
        let alone = order.iter().filter(|(case, of)| case.alone && matches!(*of, "a" | "b"));
        let turns: Vec<_> = alone.map(|(_, store)| *store).collect();
        assert!(turns.chunks(2).all(|turn| turn == ["a", "b"]), "in turn: {turns:?}");
        let mut servers = InTurn::default();
        servers.add([1, 2, 3]);
        servers.add([]);
        servers.add([4]);
        assert!(servers.eq([1, 4, 2, 3]));
    }
}
