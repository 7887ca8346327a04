//! Lease rows in a SQLite file.

mod access;
mod connection;
mod errors;
mod latches;
mod options;
mod queue;
mod statements;
mod sweep;

pub use latches::sqlite_latch_schema;
pub use options::SqliteOptions;
pub use statements::sqlite_schema;

use crate::{
    parts::renew_in_parts,
    queue::{LIVES, SHOW_UP, place_of},
    rows::{
        HolderRow, Standing, StandingRow, asked, end_of_prefix, granted, holders, leases, mark_lasts, millis,
        not_converted, renewed, span, why_not,
    },
    shares::take_of,
    sweep::Sweeping,
};
use backon::{BackoffBuilder, ExponentialBuilder};
use connection::{Connection, File};
use latches::SqliteLatches;
use options::Checked;
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use std::{fmt, sync::Arc, time::Duration};
use tenure_core::{
    Ability, Attempt, Backend, Background, Capabilities, Claim, Conversion, Doing, Error, Grant, Holder,
    LatchState, LatchStep, Mode, Moment, Name, Release, Renewal, StoreError, Together, Token, async_trait,
};

/// Locks in a SQLite file, for the processes of one machine.
///
/// A row per name, taken by one upsert when it is free or its lease is over, by SQLite's own clock, which is the machine's
/// wall clock in milliseconds. Readers and holders of permits stand in that row beside each other, each with its own lease. Set forward, that clock ends leases early; set back, late: keep it disciplined, and let the
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
    background: Background,
    /// None where the table's name is too long for one of latches beside it.
    latches: Option<SqliteLatches>,
}

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
        let latches = SqliteLatches::new(&file).ok();
        let background = Background::new();
        let inner = Inner { store, file, writer, renewals, reader, sweeping, background, latches };
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

impl Inner {
    fn prefix(&self) -> String {
        self.file.options.prefix.clone()
    }

    /// The upsert. `None` when others keep the claim out.
    async fn ask(&self, claim: &Claim) -> Result<Option<Grant>, StoreError> {
        let sent = Moment::now();
        let Claim { id, name, mode, lease, holder, .. } = claim;
        let (statements, shared) = (&self.file.statements, take_of(*mode));
        let statement = if shared.is_some() { &statements.share } else { &statements.acquire };
        let rows = self
            .writer
            .run(statement, |query| {
                let query = query
                    .bind(self.prefix())
                    .bind(name.to_string())
                    .bind(id.to_string())
                    .bind(millis(*lease))
                    .bind(holder.label.clone())
                    .bind(holder.host.clone())
                    .bind(holder.pid);
                match shared {
                    Some((take, of)) => query.bind(take).bind(of),
                    None => query,
                }
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let token = Token::try_from(self.writer.column::<i64>(row, 0)?).map_err(StoreError::failed)?;
        Ok(Some(Grant::leased(claim, token, sent)))
    }

    /// The upsert of several names, all of them alone. `None` when others keep one of the claims out.
    async fn ask_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>, StoreError> {
        let sent = Moment::now();
        let Some(first) = claims.first() else { return Ok(None) };
        let (host, pid) = (first.holder.host.clone(), first.holder.pid);
        let asked = serde_json::json!(asked(claims)).to_string();
        let statement = &self.file.statements.acquire_all;
        let rows = self
            .writer
            .run(statement, |query| query.bind(self.prefix()).bind(asked).bind(host).bind(pid))
            .await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(|row| self.writer.row::<(i64, String)>(row)).collect();
        granted(claims, rows?, sent)
    }

    /// What stands in the rows of these names, without taking a lock.
    async fn look(&self, on: &Connection, names: &[&str]) -> Result<Vec<Standing>, StoreError> {
        let names = serde_json::json!(names).to_string();
        let look = &self.file.statements.look;
        let rows = on.run(look, |query| query.bind(self.prefix()).bind(names)).await?;
        rows.iter().map(|row| on.row::<StandingRow>(row).and_then(Standing::try_from)).collect()
    }

    /// Renews them by one statement.
    async fn renew_part(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let Self { renewals, file, .. } = self;
        let leases = serde_json::json!(leases(grants)).to_string();
        let rows =
            renewals.run(&file.statements.renew, |query| query.bind(self.prefix()).bind(leases)).await?;
        let held = rows.iter().map(|row| renewals.column(row, 0)).collect::<Result<Vec<String>, _>>()?;
        let renewed = renewed(grants, held)?;
        let lost: Vec<&str> = grants
            .iter()
            .filter(|grant| !renewed.contains(&grant.claim))
            .map(|grant| grant.name.as_str())
            .collect();
        let found = if lost.is_empty() { Vec::new() } else { self.look(renewals, &lost).await? };
        let answer = |grant: &Grant| {
            if renewed.contains(&grant.claim) {
                Renewal::Renewed
            } else {
                Renewal::Lost(why_not(grant, &found))
            }
        };
        Ok(grants.iter().map(answer).collect())
    }

    async fn look_at(&self, name: &Name) -> Result<Option<Standing>, StoreError> {
        Ok(self.look(&self.reader, &[name]).await?.pop())
    }

    /// The longest time that a waiter lets pass without looking.
    fn poll(&self) -> Duration {
        let Checked { poll, fair, .. } = self.file.options;
        if fair { poll.min(SHOW_UP) } else { poll }
    }

    /// Keeps the claim's place in the queue, unless that stands for long enough.
    async fn stand(&self, claim: &Claim, standing: &Standing) -> Result<(), StoreError> {
        let Claim { id, name, mode, waits, .. } = claim;
        if !waits || !standing.wants_place(*id) {
            return Ok(());
        }
        let (take, of) = place_of(*mode);
        self.writer
            .run(&self.file.statements.stand, |query| {
                let query = query.bind(self.prefix()).bind(name.to_string()).bind(id.to_string());
                query.bind(millis(LIVES)).bind(take).bind(of)
            })
            .await?;
        Ok(())
    }

    /// Leaves a mark that somebody waits, unless the row has one that stands for long enough.
    async fn mark(&self, claim: &Claim, standing: &Standing) -> Result<(), StoreError> {
        if self.file.options.fair {
            return self.stand(claim, standing).await;
        }
        if !claim.waits || !standing.wants_mark(claim.mode, millis(mark_lasts(self.file.options.poll) / 2)) {
            return Ok(());
        }
        let Claim { id, name, mode, .. } = claim;
        let mark = &self.file.statements.await_release;
        self.writer
            .run(mark, |query| {
                let query = query.bind(self.prefix()).bind(name.to_string()).bind(id.to_string());
                query.bind(millis(mark_lasts(self.file.options.poll))).bind(*mode == Mode::Exclusive)
            })
            .await?;
        Ok(())
    }

    fn tell(&self, rows: Result<Vec<SqliteRow>, StoreError>) -> Result<Vec<Holder>, StoreError> {
        let rows: Result<Vec<HolderRow>, StoreError> = rows?.iter().map(|row| self.reader.row(row)).collect();
        holders(rows?)
    }
}

#[async_trait]
impl Backend for SqliteBackend {
    fn store(&self) -> &str {
        &self.0.store
    }

    fn capabilities(&self) -> Capabilities {
        let Inner { file, latches, .. } = &*self.0;
        Capabilities {
            shared: true,
            permits: true,
            together: !file.options.fair,
            listing: true,
            latches: latches.is_some(),
            fair: file.options.fair,
            ask_again: self.0.poll(),
            ..Capabilities::POLLED
        }
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        if let Some(grant) = self.0.ask(claim).await? {
            return Ok(Attempt::Granted(grant));
        }
        let standing = self.0.look_at(&claim.name).await?;
        let expires_in = standing.map_or(Ok(None), |row| row.obstacle(claim))?;
        Ok(Attempt::Busy { expires_in })
    }

    async fn try_acquire_all(&self, claims: &[Claim]) -> Result<Together, StoreError> {
        if claims.iter().any(|claim| claim.mode != Mode::Exclusive) {
            return Ok(Together::Apart);
        }
        Ok(self.0.ask_all(claims).await?.map_or(Together::Busy, Together::Granted))
    }

    /// Looks, and asks only when the name looks free: looking takes no lock.
    async fn acquire(&self, claim: &Claim) -> Result<Grant, StoreError> {
        let longest = self.0.poll();
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
                let Some(left) = standing.obstacle(claim)? else { break };
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
        let released = match rows.first() {
            Some(row) => Release::Released { awaited: writer.column(row, 0)? },
            None => Release::NotHeld(why_not(grant, &self.0.look(&self.0.reader, &[name]).await?)),
        };
        // Not before the look, which the sweep could make say that the store has forgotten the name.
        if sweeping.is_due() {
            self.0.background.spawn(sweep::sweep_if_due(Arc::clone(file)));
        }
        Ok(released)
    }

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        renew_in_parts(self.store(), grants, |part| self.0.renew_part(part)).await
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

    async fn latch(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        match &self.0.latches {
            Some(latches) => latches.step(name, step).await,
            None => Err(StoreError::unsupported(Ability::Latches)),
        }
    }

    async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let Inner { writer, file, .. } = &*self.0;
        let Grant { name, claim, .. } = grant;
        let statement = match to {
            Mode::Exclusive => &file.statements.upgrade,
            _ => &file.statements.downgrade,
        };
        let converted = writer
            .run(statement, |query| {
                query.bind(self.0.prefix()).bind(name.to_string()).bind(claim.to_string())
            })
            .await?;
        if !converted.is_empty() {
            return Ok(Conversion::Converted);
        }
        not_converted(grant, &self.0.look(&self.0.reader, &[name]).await?)
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

    fn background(&self) -> Background {
        self.0.background.clone()
    }

    async fn close(&self) {
        let Inner { writer, renewals, reader, latches, .. } = &*self.0;
        if let Some(latches) = latches {
            latches.close().await;
        }
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
