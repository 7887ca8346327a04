//! Lease rows in a SQLite file.

mod connection;
mod errors;
mod options;
mod statements;
mod sweep;

pub use options::SqliteOptions;
pub use statements::sqlite_schema;

use crate::{
    rows::{Standing, StandingRow, end_of_prefix, holder, millis, span, why_not},
    sweep::Sweeping,
};
use backon::{BackoffBuilder, ExponentialBuilder};
use connection::{Connection, File};
use options::Checked;
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, Doing, Error, Grant, Holder, Moment, Name, Release, Renewal,
    StoreError, Token, async_trait,
};

/// For how long a waiter's mark tells the holder that it is awaited. Renewed at half of it, by one of all waiters.
const AWAITED: Duration = Duration::from_secs(2);

/// Locks in a SQLite file, for the processes of one machine.
///
/// A row per name, taken by one upsert when it is free or its lease is over, by SQLite's own clock, which is the machine's
/// wall clock in milliseconds. Set forward, that clock ends leases early; set back, late: keep it disciplined, and let the
/// resource check the [fencing token](tenure_core::Token), which rises whatever the clock does.
///
/// The file is kept in [write-ahead mode](https://www.sqlite.org/wal.html), so those who look do not hold up those who
/// write, and a commit waits for no disk. Waiters look again and again, with growing pauses up to
/// [`poll`](SqliteOptions::poll), and take the write lock only when the name looks free. Three connections are opened when
/// they are needed: one that writes, one that looks, and one for renewals, which nothing else can hold up.
///
/// Cloning is cheap, and clones share the connections.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::Error> {
/// use tenure_core::Locks;
/// use tenure_sql::{SqliteBackend, SqliteOptions};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("locks.db");
/// let locks = Locks::new(SqliteBackend::open(SqliteOptions::new(path)).await?);
/// let guard = locks.lock("report").acquire().await?;
/// guard.release().await?;
/// # locks.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteBackend(Arc<Inner>);

struct Inner {
    store: Arc<str>,
    file: Arc<File>,
    /// Acquires, releases and withdraws. In order: see [`Connection`].
    writer: Connection,
    renewals: Connection,
    reader: Connection,
    sweeping: Sweeping,
}

impl SqliteBackend {
    /// Opens the file, and creates it and the table as far as the options say.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a file or a table that was created stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the file is touched; [`Error::Store`] when the file cannot be opened or written, is
    /// no database, is damaged, or has no such table or one of another shape; [`Error::Unavailable`] when other
    /// connections kept it locked for longer than [`SqliteOptions::busy_timeout`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn open(options: SqliteOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let connect = SqliteConnectOptions::new().filename(&options.path).create_if_missing(true);
        Self::connect(options, connect).await
    }

    /// Opens the file that `pool` uses, with the pool's settings: pragmas, extensions, the key of an encrypted file.
    ///
    /// Only the settings are the pool's. The connections are tenure's own, so an application that has all of its
    /// connections in use loses no lease, and no lock is ever part of one of its transactions. Hooks such as `after_connect`
    /// are not run. `options` say the rest; their path is not used.
    ///
    /// # Cancel safety
    ///
    /// As for [`open`](Self::open).
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open). A database in memory is refused.
    ///
    /// # Panics
    ///
    /// As for [`open`](Self::open).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};
    /// use tenure_sql::{SqliteBackend, SqliteOptions};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("app.db");
    /// let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(path).create_if_missing(true)).await?;
    /// let backend = SqliteBackend::from_pool(&pool, SqliteOptions::default()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn from_pool(pool: &SqlitePool, options: SqliteOptions) -> Result<Self, Error> {
        let connect = (*pool.connect_options()).clone();
        let options = options.at(connect.get_filename()).check()?;
        Self::connect(options, connect).await
    }

    async fn connect(options: Checked, connect: SqliteConnectOptions) -> Result<Self, Error> {
        let store: Arc<str> = format!("sqlite:{}", options.path.display()).into();
        let file = Arc::new(File::new(options, connect));
        let failed = |error| Error::from_store(&store, Doing::Connecting, error);
        let writer = Connection::new(&file);
        let last_sweep = async {
            writer.open().await?;
            match writer.run(&file.statements.last_sweep, |query| query).await?.first() {
                None => Ok(None),
                Some(row) => writer.column(row, 0).map(|ago| Some(span(ago))),
            }
        };
        let sweeping = Sweeping::new(last_sweep.await.map_err(failed)?);
        let (renewals, reader) = (Connection::new(&file), Connection::new(&file));
        Ok(Self(Arc::new(Inner { store, file, writer, renewals, reader, sweeping })))
    }

    /// Deletes the rows that nobody has used for a day, and tells how many. Their tokens stay below every later one.
    ///
    /// Not needed: it is done in the background, once an hour for a file, by whichever client is the first to release
    /// something then.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: some rows may have been deleted.
    ///
    /// # Errors
    ///
    /// What the file could not do.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        sweep::sweep(&self.0.file, Duration::ZERO).await
    }
}

impl Inner {
    fn prefix(&self) -> String {
        self.file.options.prefix.clone()
    }

    /// The upsert. `None` when another holds the name.
    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>, StoreError> {
        let sent = Moment::now();
        let Claim { id, name, lease, holder, .. } = claim;
        let rows = self
            .writer
            .run(&self.file.statements.acquire, |query| {
                query
                    .bind(self.prefix())
                    .bind(name.to_string())
                    .bind(id.to_string())
                    .bind(millis(*lease))
                    .bind(holder.label.clone())
                    .bind(holder.host.clone())
                    .bind(holder.pid)
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let token = Token::try_from(self.writer.column::<i64>(row, 0)?).map_err(StoreError::failed)?;
        Ok(Some(Grant::leased(claim, token, sent)))
    }

    /// What stands in the rows of these names, without taking a lock.
    async fn look(&self, on: &Connection, names: &[&str]) -> Result<Vec<Standing>, StoreError> {
        let names = serde_json::json!(names).to_string();
        let look = &self.file.statements.look;
        let rows = on.run(look, |query| query.bind(self.prefix()).bind(names)).await?;
        rows.iter().map(|row| on.row::<StandingRow>(row).map(Standing::from)).collect()
    }

    async fn look_at(&self, name: &Name) -> Result<Option<Standing>, StoreError> {
        Ok(self.look(&self.reader, &[name]).await?.pop())
    }

    /// Leaves a mark that somebody waits, unless the row has one that stands for long enough.
    async fn mark(&self, claim: &Claim, standing: &Standing) -> Result<(), StoreError> {
        if !claim.waits || standing.awaited > millis(AWAITED / 2) {
            return Ok(());
        }
        let Claim { id, name, .. } = claim;
        let mark = &self.file.statements.await_release;
        self.writer
            .run(mark, |query| {
                query.bind(self.prefix()).bind(name.to_string()).bind(id.to_string()).bind(millis(AWAITED))
            })
            .await?;
        Ok(())
    }

    fn tell(&self, rows: Result<Vec<SqliteRow>, StoreError>) -> Result<Vec<Holder>, StoreError> {
        rows?.iter().map(|row| holder(self.reader.row(row)?)).collect()
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn store(&self) -> &str {
        &self.0.store
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { listing: true, ask_again: self.0.file.options.poll, ..Capabilities::POLLED }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        if let Some(grant) = self.0.ask(claim).await? {
            return Ok(Attempt::Granted(grant));
        }
        let standing = self.0.look_at(&claim.name).await?;
        Ok(Attempt::Busy { expires_in: standing.and_then(|row| row.held_by_another(claim.id)) })
    }

    /// Looks, and asks only when the name looks free: looking takes no lock.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let longest = self.0.file.options.poll;
        let first = Duration::from_millis(1).min(longest);
        // The jitter adds up to the pause itself, so half of what is meant is asked for.
        let growing = ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2);
        let growing = growing.with_max_delay(longest / 2).with_jitter().without_max_times();
        let mut pauses = growing.build();
        loop {
            if let Some(grant) = self.0.ask(claim).await? {
                return Ok(grant);
            }
            while let Some(standing) = self.0.look_at(&claim.name).await? {
                let Some(left) = standing.held_by_another(claim.id) else { break };
                self.0.mark(claim, &standing).await?;
                // The lease stands to the end of its last millisecond.
                let over = left + Duration::from_millis(1);
                tokio::time::sleep(pauses.next().unwrap_or(longest).min(longest).min(over)).await;
            }
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let Inner { writer, file, sweeping, .. } = &*self.0;
        let Grant { name, claim, .. } = grant;
        let rows = writer
            .run(&file.statements.release, |query| {
                query.bind(self.0.prefix()).bind(name.to_string()).bind(claim.to_string())
            })
            .await?;
        if sweeping.is_due() {
            tokio::spawn(sweep::sweep_if_due(Arc::clone(file)));
        }
        match rows.first() {
            Some(row) => Ok(Release::Released { awaited: writer.column(row, 0)? }),
            None => Ok(Release::NotHeld(why_not(grant, &self.0.look(&self.0.reader, &[name]).await?))),
        }
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let Inner { renewals, file, .. } = &*self.0;
        let asked: Vec<(&str, String, i64)> = grants
            .iter()
            .map(|Grant { name, claim, lease, .. }| (name.as_str(), claim.to_string(), millis(*lease)))
            .collect();
        let json = serde_json::json!(asked).to_string();
        let rows =
            renewals.run(&file.statements.renew, |query| query.bind(self.0.prefix()).bind(json)).await?;
        let renewed = rows.iter().map(|row| renewals.column(row, 0)).collect::<Result<Vec<String>, _>>()?;
        let renewed: std::collections::HashSet<String> = renewed.into_iter().collect();
        let lost: Vec<&str> =
            asked.iter().filter(|(_, claim, _)| !renewed.contains(claim)).map(|(name, ..)| *name).collect();
        let found = if lost.is_empty() { Vec::new() } else { self.0.look(renewals, &lost).await? };
        let answer = |(grant, (_, claim, _)): (&Grant, &(&str, String, i64))| {
            if renewed.contains(claim) { Renewal::Renewed } else { Renewal::Lost(why_not(grant, &found)) }
        };
        Ok(grants.iter().zip(&asked).map(answer).collect())
    }

    /// Behind the claim's own request, if that is still on its way: one connection carries both out, in order.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Inner { writer, file, .. } = &*self.0;
        let Claim { id, name, .. } = claim;
        writer
            .run(&file.statements.withdraw, |query| {
                query.bind(self.0.prefix()).bind(name.to_string()).bind(id.to_string())
            })
            .await?;
        Ok(())
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let holders = &self.0.file.statements.holders;
        let rows =
            self.0.reader.run(holders, |query| query.bind(self.0.prefix()).bind(name.to_string())).await;
        self.0.tell(rows)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let (list, from) = (&self.0.file.statements.list, prefix.to_owned());
        let rows = self.0.reader.run(list, |query| {
            let query = query.bind(self.0.prefix()).bind(from);
            match end_of_prefix(prefix) {
                Some(end) => query.bind(end),
                // SQLite sorts every blob after every text.
                None => query.bind(Vec::<u8>::new()),
            }
        });
        self.0.tell(rows.await)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let force = &self.0.file.statements.force;
        let rows = self.0.writer.run(force, |query| query.bind(self.0.prefix()).bind(name.to_string())).await;
        self.0.tell(rows)
    }

    async fn close(&self) {
        let Inner { writer, renewals, reader, .. } = &*self.0;
        reader.close().await;
        renewals.close().await;
        writer.close().await;
    }
}

impl fmt::Debug for SqliteBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteBackend").field("store", &self.0.store).finish_non_exhaustive()
    }
}
