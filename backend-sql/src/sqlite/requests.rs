//! The requests of a SQLite store: one statement if the columns are enough, else a read and a write, by the record.

use super::{connection::Connection, file::File, options::Checked};
use crate::{
    record_rows::{self, Seen, Write, by_record, mode_column},
    sweep::Sweeping,
    values::{granted, mark_lasts, millis},
};
use sqlx::Row as _;
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tenure_core::{
    Attempt, Background, Claim, Grant, Moment, Name, Renewal, StoreError, Token, record::Record,
};

/// The connections, and the requests that they serve.
pub(super) struct Inner {
    pub(super) store: Arc<str>,
    pub(super) file: Arc<File>,
    /// Acquires, releases and withdraws, in order: see [`Connection`].
    pub(super) writer: Connection,
    pub(super) renewals: Connection,
    pub(super) reader: Connection,
    pub(super) sweeping: Sweeping,
    pub(super) background: Background,
}

/// What came of one statement.
enum Asked {
    Granted(Grant),
    /// The columns say that others keep the claim out.
    Busy,
    /// There is a record, which decides.
    Seen(Seen),
}

impl Inner {
    pub(super) fn prefix(&self) -> String {
        self.file.options.prefix.clone()
    }

    /// Runs the upsert. Returns what was read if the columns do not say who holds the name.
    async fn ask(&self, claim: &Claim) -> Result<Asked, StoreError> {
        let Claim { id, name, mode, lease, holder, .. } = claim;
        // A claim for more permits than there are is never granted, although nobody blocks it.
        if !mode.admits([]) {
            return Ok(Asked::Busy);
        }
        let (sent, mode, statements) = (Moment::now(), mode_column(*mode)?, &self.file.statements);
        let statement = if mode.is_none() { &statements.acquire } else { &statements.acquire_or_read };
        let rows = self
            .writer
            .run(statement, |query| {
                query
                    .bind(self.prefix())
                    .bind(name.to_string())
                    .bind(id.to_string())
                    .bind(millis(*lease))
                    .bind(holder.label.clone())
                    .bind(holder.host.clone())
                    .bind(holder.pid)
                    .bind(mode)
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(Asked::Busy) };
        if row.len() > 2 {
            return self.file.seen(sent, Some(row)).map(Asked::Seen);
        }
        let token = Token::try_from(self.writer.column::<i64>(row, 0)?).map_err(StoreError::failed)?;
        Ok(Asked::Granted(Grant::leased(claim, token, sent)))
    }

    pub(super) async fn attempt(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        match self.ask(claim).await? {
            Asked::Granted(grant) => Ok(Attempt::Granted(grant)),
            Asked::Busy => self.look_and_take(claim).await,
            Asked::Seen(seen) => self.take_or_join(claim, seen).await,
        }
    }

    /// Runs the upsert for several names, each to be held alone. Returns `None` if one of them is not free
    /// as far as the columns say.
    pub(super) async fn ask_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>, StoreError> {
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

    /// Changes the record of `name`, on the given connection.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        on: &Connection,
        name: &Name,
        seen: Option<Seen>,
        write: Write,
        mut change: impl FnMut(&mut Record, &Seen) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let change = by_record(name.clone(), write, move |record, seen| Ok(change(record, seen)));
        on.settle(name.to_string(), seen, change).await
    }

    /// Finds out, without taking a lock, what an attempt would give, and makes it if it would be granted.
    pub(super) async fn look_and_take(&self, claim: &Claim) -> Result<Attempt, StoreError> {
        let seen = self.reader.read(&claim.name).await?;
        self.take_or_join(claim, seen).await
    }

    async fn take_or_join(&self, claim: &Claim, seen: Seen) -> Result<Attempt, StoreError> {
        let mut record = seen.record(&claim.name)?;
        match record_rows::acquire(&mut record, claim, &seen)? {
            Attempt::Granted(_) => self.take(claim, seen).await,
            busy @ Attempt::Busy { .. } => {
                self.join(claim, record, seen).await?;
                Ok(busy)
            }
        }
    }

    /// Takes a name that looks free.
    async fn take(&self, claim: &Claim, seen: Seen) -> Result<Attempt, StoreError> {
        let (name, claim) = (claim.name.clone(), claim.clone());
        let key = name.to_string();
        let acquire = move |record: &mut Record, seen: &Seen| record_rows::acquire(record, &claim, seen);
        self.writer.settle(key, Some(seen), by_record(name, Write::IfChanged, acquire)).await
    }

    /// If the claim waits: renews its place in the queue, or leaves a mark that it waits, unless the one that is there
    /// still stands for long enough.
    async fn join(&self, claim: &Claim, before: Record, seen: Seen) -> Result<(), StoreError> {
        if !claim.waits {
            return Ok(());
        }
        let (fair, lasts) = (self.file.options.fair, mark_lasts(self.file.options.poll));
        let claim = claim.clone();
        let (name, key) = (claim.name.clone(), claim.name.to_string());
        let join = move |record: &mut Record, now| {
            if !fair {
                record.leave_mark(&claim, now, lasts);
            } else if !record.has_place(claim.id, now + Record::PLACE / 2) {
                record.wait_in_line(&claim, now);
            }
        };
        let mut after = before.clone();
        join(&mut after, seen.now());
        if after == before {
            return Ok(());
        }
        let join = by_record(name, Write::IfChanged, move |record, seen| {
            join(record, seen.now());
            Ok(())
        });
        self.writer.settle(key, Some(seen), join).await
    }

    /// Renews the grants by one statement, and name by name those about which the columns say nothing.
    pub(super) async fn renew_part(&self, grants: &[Grant], end: Moment) -> Result<Vec<Renewal>, StoreError> {
        let Self { renewals, file, .. } = self;
        let leases = serde_json::json!(leases(grants)).to_string();
        let rows =
            renewals.run(&file.statements.renew, |query| query.bind(self.prefix()).bind(leases)).await?;
        let renewed =
            rows.iter().map(|row| renewals.column(row, 0)).collect::<Result<HashSet<String>, _>>()?;
        let mut answers = vec![Renewal::Renewed; grants.len()];
        let mut rest = BTreeMap::<&Name, Vec<(usize, Grant)>>::new();
        for (at, grant) in grants.iter().enumerate() {
            if !renewed.contains(&grant.claim.to_string()) {
                rest.entry(&grant.name).or_default().push((at, grant.clone()));
            }
        }
        let mut told_any = !renewed.is_empty();
        for (name, grants) in rest {
            let places: Vec<usize> = grants.iter().map(|(at, _)| *at).collect();
            // Whoever was renewed has to know it in time.
            if told_any && end.has_passed() {
                for at in places {
                    answers[at] = Renewal::Unanswered;
                }
                continue;
            }
            let renew = move |record: &mut Record, seen: &Seen| -> Vec<Renewal> {
                grants.iter().map(|(_, grant)| record_rows::renew(record, grant, seen)).collect()
            };
            let told = match self.change(renewals, name, None, Write::IfChanged, renew).await {
                Err(error) if told_any => {
                    tracing::warn!(lock.name = %name, lock.store = %self.store, %error, "a lease could not be renewed");
                    vec![Renewal::Unanswered; places.len()]
                }
                told => told?,
            };
            told_any = true;
            for (at, told) in places.into_iter().zip(told) {
                answers[at] = told;
            }
        }
        Ok(answers)
    }

    /// The longest time that a waiter goes without looking.
    pub(super) fn poll(&self) -> Duration {
        let Checked { poll, fair, .. } = self.file.options;
        if fair { poll.min(Record::PLACE / 6) } else { poll }
    }
}

/// The grants' leases, in the form that the statement takes.
fn leases(grants: &[Grant]) -> Vec<serde_json::Value> {
    let lease = |Grant { name, claim, lease, .. }: &Grant| serde_json::json!({ "name": name.as_str(), "claim": claim.to_string(), "lease": millis(*lease) });
    grants.iter().map(lease).collect()
}

/// The claims of a set, in the form that the statement takes.
fn asked(claims: &[Claim]) -> Vec<serde_json::Value> {
    let asked = claims.iter().map(|Claim { id, name, lease, holder, .. }| {
        let (id, lease) = (id.to_string(), millis(*lease));
        serde_json::json!({ "name": name.as_str(), "claim": id, "lease": lease, "label": holder.label })
    });
    asked.collect()
}
