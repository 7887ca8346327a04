//! Lease rows in a SQLite file.

mod access;
mod connection;
mod errors;
mod file;
mod options;
mod requests;
mod statements;
mod sweep;
mod worker;

pub use options::SqliteOptions;
pub use statements::sqlite_schema;

use crate::{
    parts::{end_of_renewal, renew_in_parts},
    record_rows::{Seen, Write, by_latch, latch_key},
    sweep::Sweeping,
    values::{end_of_prefix, span},
};
use backon::{BackoffBuilder, ExponentialBuilder};
use connection::Connection;
use file::File;
use options::Checked;
use requests::Inner;
use sqlx::{Row as _, SqlitePool, sqlite::SqliteConnectOptions};
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Background, Capabilities, Claim, Conversion, Doing, Error, Grant, Holder, LatchState,
    LatchStep, Mode, Moment, Name, Release, Renewal, StoreError, Together, async_trait, record::Record,
};

/// Locks in a SQLite file, for the processes of one machine.
///
/// A row per name, taken by one upsert when it is free or its lease is over, by SQLite's own clock, which is the machine's
/// wall clock in milliseconds. Readers and holders of permits stand in that row beside each other, each with its own lease:
/// see [`Record`]. Set forward, that clock ends leases early; set back, late: keep it disciplined, and let the resource check
/// the [fencing token](tenure_core::Token), which rises whatever the clock does.
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

impl SqliteBackend {
    /// Opens the file, and creates it and the table as far as the options say.
    ///
    /// A file or directory that is created is this user's alone (on Unix, modes 0600 and 0700), whatever the umask.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a file or a table that was created stays.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] before the file is touched; [`Error::Store`] when the file cannot be opened or written, may be
    /// written by everybody, is no database, is damaged, or has no such table or one of another shape;
    /// [`Error::Unavailable`] when other connections kept it locked for longer than [`SqliteOptions::busy_timeout`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with time enabled.
    pub async fn open(options: SqliteOptions) -> Result<Self, Error> {
        let options = options.check()?;
        let connect = SqliteConnectOptions::new().filename(&options.path).create_if_missing(true);
        Self::connect(options, connect, true).await
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
    /// use sqlx::{Row as _, SqlitePool, sqlite::SqliteConnectOptions};
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
        Self::connect(options, connect, false).await
    }

    async fn connect(options: Checked, connect: SqliteConnectOptions, creates: bool) -> Result<Self, Error> {
        let store: Arc<str> = format!("sqlite:{}", options.path.display()).into();
        let file = Arc::new(File::new(options, connect, creates));
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
        let background = Background::new();
        let inner = Inner { store, file, writer, renewals, reader, sweeping, background };
        Ok(Self(Arc::new(inner)))
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

#[async_trait]
impl Backend for SqliteBackend {
    fn store(&self) -> &str {
        &self.0.store
    }

    fn capabilities(&self) -> Capabilities {
        let Checked { fair, .. } = self.0.file.options;
        Capabilities {
            shared: true,
            permits: true,
            together: !fair,
            listing: true,
            latches: true,
            fair,
            ask_again: self.0.poll(),
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let claim = &Claim { waits: false, ..claim.clone() };
        self.0.attempt(claim).await
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        if claims.iter().any(|claim| claim.mode != Mode::Exclusive) {
            return Ok(Together::Apart);
        }
        if let Some(grants) = self.0.ask_all(claims).await? {
            return Ok(Together::Granted(grants));
        }
        for claim in claims {
            let seen = self.0.reader.read(&claim.name).await?;
            if !seen.record(&claim.name)?.would_grant(claim, seen.now())? {
                return Ok(Together::Busy);
            }
        }
        // Somebody has just left, or stands in a record although his time is over.
        Ok(Together::Apart)
    }

    /// Looks, and asks only when the name looks free: looking takes no lock.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let longest = self.0.poll();
        let first = Duration::from_millis(1).min(longest);
        // The jitter adds up to the pause itself, so half of what is meant is asked for.
        let growing = ExponentialBuilder::new().with_factor(1.5).with_min_delay(first / 2);
        let growing = growing.with_max_delay(longest / 2).with_jitter().without_max_times();
        let mut pauses = growing.build();
        let mut attempt = self.0.attempt(claim).await?;
        loop {
            match attempt {
                Attempt::Granted(grant) => return Ok(grant),
                Attempt::Busy { expires_in } => {
                    let pause = pauses.next().unwrap_or(longest).min(longest);
                    // Never at once, or one that nobody is in the way of, and that is refused all the same, would spin.
                    let over = expires_in.map_or(pause, |left| left + Duration::from_millis(1));
                    tokio::time::sleep(pause.min(over)).await;
                }
            }
            attempt = self.0.look_and_take(claim).await?;
        }
    }

    async fn release(&self, grant: &Grant) -> Result<Release, StoreError> {
        let Inner { writer, file, sweeping, .. } = &*self.0;
        let (sent, Grant { name, claim, mode, .. }, statements) = (Moment::now(), grant, &file.statements);
        let alone = *mode == Mode::Exclusive;
        let statement = if alone { &statements.release } else { &statements.release_or_read };
        let rows = writer
            .run(statement, |query| {
                query.bind(self.0.prefix()).bind(name.to_string()).bind(claim.to_string())
            })
            .await?;
        let released = match rows.first() {
            Some(row) if row.len() == 1 => Release::Released { awaited: writer.column(row, 0)? },
            seen => {
                let seen = seen.map(|row| file.seen(sent, Some(row))).transpose()?;
                let grant = grant.clone();
                let release = move |record: &mut Record, seen: &Seen| record.release(&grant, seen.now());
                self.0.change(writer, name, seen, Write::IfChanged, release).await?
            }
        };
        // Not before the look, which the sweep could make say that the store has forgotten the name.
        if sweeping.is_due() {
            self.0.background.spawn(sweep::sweep_if_due(Arc::clone(file)));
        }
        Ok(released)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let end = end_of_renewal(grants);
        renew_in_parts(self.store(), grants, end, |part| self.0.renew_part(part, end)).await
    }

    /// Behind the claim's own request, if that is still on its way: one connection carries both out, in order.
    async fn withdraw(&self, claim: &Claim) -> Result<(), StoreError> {
        let Inner { writer, file, .. } = &*self.0;
        let Claim { id, name, .. } = claim;
        let rows = writer
            .run(&file.statements.withdraw, |query| {
                query.bind(self.0.prefix()).bind(name.to_string()).bind(id.to_string())
            })
            .await?;
        if rows.is_empty() {
            let id = *id;
            let withdraw = move |record: &mut Record, _: &Seen| record.withdraw(id);
            self.0.change(writer, name, None, Write::Always, withdraw).await?;
        }
        Ok(())
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let (name, grant) = (&grant.name, grant.clone());
        let convert = move |record: &mut Record, seen: &Seen| record.convert(&grant, to, seen.now());
        // In any case, so that a conversion to the other mode that was given up changes nothing any more.
        self.0.change(&self.0.writer, name, None, Write::Always, convert).await
    }

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let on = if *step == LatchStep::Look { &self.0.reader } else { &self.0.writer };
        on.settle(latch_key(name), None, by_latch(name.clone(), step.clone())).await
    }

    async fn holders(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let seen = self.0.reader.read(name).await?;
        Ok(seen.record(name)?.holders(name, seen.now()))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<Holder>, StoreError> {
        let Inner { reader, file, .. } = &*self.0;
        let (sent, list) = (Moment::now(), &file.statements.list);
        // No name has control characters, so none comes before this.
        let from = if prefix.is_empty() { " " } else { prefix }.to_owned();
        let rows = reader.run(list, |query| {
            let query = query.bind(self.0.prefix()).bind(from);
            match end_of_prefix(prefix) {
                Some(end) => query.bind(end),
                // SQLite sorts every blob after every text.
                None => query.bind(Vec::<u8>::new()),
            }
        });
        let mut holders = Vec::new();
        for row in rows.await? {
            let name = Name::new(reader.column::<String>(&row, 14)?).map_err(StoreError::failed)?;
            let seen = file.seen(sent, Some(&row))?;
            holders.extend(seen.record(&name)?.holders(&name, seen.now()));
        }
        Ok(holders)
    }

    async fn force_release(&self, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let forced = name.clone();
        let force = move |record: &mut Record, seen: &Seen| record.force(&forced, seen.now());
        self.0.change(&self.0.writer, name, None, Write::IfChanged, force).await
    }

    fn background(&self) -> Background {
        self.0.background.clone()
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
