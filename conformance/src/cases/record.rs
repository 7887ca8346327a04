//! Random histories of requests, which every store answers as the [`Record`] does: the contract as a value.

use crate::{
    Check, Stage,
    case::cases,
    check::{Stop, ensure_eq, eventually, rises},
};
use fastrand::Rng;
use std::{collections::HashSet, num::NonZeroU32, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, Backend, Capabilities, Claim, ClaimId, Conversion, Grant, Holder, HolderInfo, LossCause, Mode,
    Moment, Name, Release, Renewal, StandingKind, Token,
    record::{Record, StoreTime},
};

cases!("record": answers_are_those_of_the_record);

/// Longer than the case; other cases prove expiry.
const LEASE: Duration = Duration::from_mins(10);
const CLIENTS: usize = 2;
const HISTORIES: u64 = 6;
const REQUESTS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(10);
/// How many permits the name has.
const PERMITS: u32 = 3;

/// One history: the store, and the record that it should match.
struct History<'s> {
    stores: [&'s dyn Backend; CLIENTS],
    capabilities: Capabilities,
    name: Name,
    rng: Rng,
    record: Record,
    now: StoreTime,
    /// All grants, with the client that asked for each.
    grants: Vec<(usize, Grant)>,
    /// The released ones of them: nobody asks to convert these.
    released: HashSet<ClaimId>,
    last: Option<Token>,
}

/// An answer, reduced to what all stores have in common.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Granted,
    Busy,
    Done,
    Refused,
    Lost { forced: bool },
}

async fn answers_are_those_of_the_record(stage: &Stage) -> Check {
    let clients: [_; CLIENTS] = stage.clients().await?;
    for seed in 0..HISTORIES {
        let mut history = History {
            stores: clients.each_ref().map(|client| &**client.probe.backend()),
            capabilities: stage.capabilities(),
            name: Name::new(stage.name(&seed.to_string()))?,
            rng: Rng::with_seed(seed),
            record: Record::default(),
            now: StoreTime::from_micros(1_000_000),
            grants: Vec::new(),
            released: HashSet::new(),
            last: None,
        };
        let mut told = Vec::new();
        for _ in 0..REQUESTS {
            let done = history.step(&mut told).await;
            done.map_err(|stop| match stop {
                Stop::Lacks(need) => Stop::Lacks(need),
                Stop::Failed(why) => Stop::Failed(format!("history {seed}: {}: {why}", told.join(", "))),
            })?;
        }
        history.end().await?;
    }
    Ok(())
}

impl History<'_> {
    /// Sends one request to the store and to the record, which must answer alike, and notes it in `told`.
    async fn step(&mut self, told: &mut Vec<String>) -> Check {
        self.now = self.now + Duration::from_millis(1);
        let client = self.rng.usize(..CLIENTS);
        match self.rng.u8(..10) {
            0..=3 => self.acquire(client, told).await,
            4..=6 => self.release(told).await,
            7 => self.convert(told).await,
            8 => self.renew(told).await,
            _ if self.rng.bool() => self.withdraw(told).await,
            _ => self.force(client, told).await,
        }?;
        self.compare_holders().await
    }

    /// A mode that the store serves.
    fn mode(&mut self) -> Mode {
        let Capabilities { shared, permits, .. } = self.capabilities;
        match self.rng.u8(..5) {
            0 | 1 if shared => Mode::Shared,
            2 | 3 if permits => {
                let number = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
                Mode::Permit { take: number(self.rng.u32(1..=PERMITS)), of: number(PERMITS) }
            }
            _ => Mode::Exclusive,
        }
    }

    async fn acquire(&mut self, client: usize, told: &mut Vec<String>) -> Check {
        let claim = Claim {
            id: ClaimId::new(),
            name: self.name.clone(),
            mode: self.mode(),
            lease: LEASE,
            waits: false,
            reserve: 0,
            holder: Arc::new(HolderInfo::default()),
        };
        told.push(format!("{client} asks ({})", claim.mode));
        let ours = self.stores[client].try_acquire(&claim).await?;
        let expected = match self.record.acquire(&claim, self.now, Moment::now())? {
            Attempt::Granted(_) => Answer::Granted,
            Attempt::Busy { .. } => Answer::Busy,
        };
        let Attempt::Granted(grant) = ours else {
            ensure_eq!(Answer::Busy, expected, "a claim in mode {}", claim.mode);
            return Ok(());
        };
        ensure_eq!(Answer::Granted, expected, "a claim in mode {}", claim.mode);
        ensure_eq!((grant.claim, grant.mode), (claim.id, claim.mode));
        rises(self.last, grant.token)?;
        self.last = Some(grant.token);
        self.grants.push((client, grant));
        Ok(())
    }

    /// A client that was granted the name, and may have lost it since.
    fn somebody(&mut self) -> Option<(usize, Grant)> {
        // Only the last few grants.
        let recent = self.grants.len().min(4);
        let from = self.grants.len() - recent;
        (recent > 0).then(|| self.grants[from + self.rng.usize(..recent)].clone())
    }

    async fn release(&mut self, told: &mut Vec<String>) -> Check {
        let Some((client, grant)) = self.somebody() else { return Ok(()) };
        told.push(format!("{client} releases token {}", grant.token));
        let ours = released(self.stores[client].release(&grant).await?);
        ensure_eq!(ours, released(self.record.release(&grant, self.now)));
        self.released.insert(grant.claim);
        Ok(())
    }

    async fn convert(&mut self, told: &mut Vec<String>) -> Check {
        if !self.capabilities.shared {
            return Ok(());
        }
        let Some((client, grant)) = self.somebody() else { return Ok(()) };
        let to = match grant.mode {
            _ if self.released.contains(&grant.claim) => return Ok(()),
            Mode::Exclusive => Mode::Shared,
            Mode::Shared => Mode::Exclusive,
            _ => return Ok(()),
        };
        told.push(format!("{client} converts token {} to {to}", grant.token));
        let ours = converted(self.stores[client].convert(&grant, to).await?);
        ensure_eq!(ours, converted(self.record.convert(&grant, to, self.now)));
        if ours == Answer::Done {
            let same = |(_, other): &&mut (usize, Grant)| other.claim == grant.claim;
            self.grants.iter_mut().filter(same).for_each(|(_, grant)| grant.mode = to);
        }
        Ok(())
    }

    async fn renew(&mut self, told: &mut Vec<String>) -> Check {
        if self.capabilities.standing != StandingKind::Lease {
            return Ok(());
        }
        let Some((client, grant)) = self.somebody() else { return Ok(()) };
        told.push(format!("{client} renews token {}", grant.token));
        let ours = self.stores[client].renew(std::slice::from_ref(&grant)).await?;
        let ours: Vec<_> = ours.into_iter().map(renewed).collect();
        ensure_eq!(ours, [renewed(self.record.renew(&grant, self.now))]);
        Ok(())
    }

    /// Withdraws a claim that was granted, as a client does that was cancelled before it heard of the grant.
    async fn withdraw(&mut self, told: &mut Vec<String>) -> Check {
        let Some((client, grant)) = self.somebody() else { return Ok(()) };
        told.push(format!("{client} withdraws token {}", grant.token));
        let Grant { claim: id, name, mode, lease, .. } = grant;
        let claim = Claim { id, name, mode, lease, waits: false, reserve: 0, holder: Arc::default() };
        self.stores[client].withdraw(&claim).await?;
        self.record.withdraw(id);
        self.grants.retain(|(_, grant)| grant.claim != id);
        Ok(())
    }

    async fn force(&mut self, client: usize, told: &mut Vec<String>) -> Check {
        if !self.capabilities.listing {
            return Ok(());
        }
        told.push(format!("{client} forces"));
        let ours = known(&self.stores[client].force_release(&self.name).await?);
        ensure_eq!(ours, known(&self.record.force_release(&self.name, self.now)), "the holders that lost it");
        // A session takes a moment to end.
        eventually!(PATIENCE, self.stores[client].holders(&self.name).await?.is_empty());
        Ok(())
    }

    async fn compare_holders(&self) -> Check {
        if self.capabilities.listing {
            let ours = known(&self.stores[0].holders(&self.name).await?);
            ensure_eq!(ours, known(&self.record.holders(&self.name, self.now)), "the holders");
        }
        Ok(())
    }

    async fn end(&self) -> Check {
        for (client, grant) in &self.grants {
            self.stores[*client].release(grant).await?;
        }
        Ok(())
    }
}

/// Their claims, and their modes.
fn known(holders: &[Holder]) -> Vec<(Option<ClaimId>, String)> {
    let mut known: Vec<_> = holders.iter().map(|holder| (holder.claim, holder.mode.to_string())).collect();
    known.sort();
    known
}

/// Apart from forced releases, stores know the cause only as far as they can.
fn lost(cause: LossCause) -> Answer {
    Answer::Lost { forced: cause == LossCause::Forced }
}

fn released(release: Release) -> Answer {
    match release {
        Release::Released { .. } => Answer::Done,
        Release::Lost(cause) => lost(cause),
    }
}

fn converted(conversion: Conversion) -> Answer {
    match conversion {
        Conversion::Converted => Answer::Done,
        Conversion::Refused => Answer::Refused,
        Conversion::Lost(cause) => lost(cause),
    }
}

fn renewed(renewal: Renewal) -> Answer {
    match renewal {
        Renewal::Renewed => Answer::Done,
        Renewal::Lost(cause) => lost(cause),
        Renewal::Unanswered => Answer::Refused,
    }
}
