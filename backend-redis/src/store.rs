//! What is asked of one server, one script call each.

use crate::{
    cluster::Members,
    dial::Route,
    doubts::{Doubts, LONGEST},
    errors::{Failure, Redirect, no_lock, redirect},
    keys,
    mode::{self, How},
    options::Checked,
    record::Told,
    replication::Replication,
    replies,
    script::{Script, Scripts},
    server::{Answer, Server},
    subscriptions::{Listening, Subscriptions},
    turns::Turns,
};
use redis::{Cmd, RedisWrite};
use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tenure_core::{
    Attempt, Background, Claim, ClaimId, Conversion, Grant, LossCause, Mode, Moment, Name, Release, Renewal,
    StoreError,
};

/// One server, and this client's part in it.
pub(crate) struct Store {
    pub(crate) options: Checked,
    pub(crate) server: Server,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) scripts: Scripts,
    pub(crate) turns: Turns,
    /// Where replicas must have a grant.
    pub(crate) replication: Option<Replication>,
    pub(crate) doubts: Doubts,
    /// The servers among which this is one, in a Cluster.
    members: Option<Weak<Members>>,
    /// This client, for those who hand locks over to it.
    client: ClaimId,
    inbox: Mutex<Option<Listening>>,
}

/// What a claim that is not granted leaves in the store.
#[derive(Clone, Copy)]
pub(crate) enum Leaves<'a> {
    Nothing,
    /// If it wants the lock alone, the key that stops newcomers beside those who share it. Not with its first attempt, so
    /// that a lock which is free costs no look at that key.
    Stop,
    /// A place in the queue of the lock, where there is one; its client listens there.
    Place(&'a Listening),
}

/// The answer to an attempt, and when it was given.
pub(crate) struct Asked {
    pub(crate) attempt: Attempt,
    /// The instant before the request was sent.
    pub(crate) sent: Moment,
    /// The server's clock, where it was told.
    pub(crate) at: Option<Duration>,
}

impl Store {
    pub(crate) fn new(route: Route, options: Checked, background: &Background) -> Self {
        Self::with(None, route, options, Doubts::default(), background)
    }

    /// One server of a Cluster.
    pub(crate) fn among(
        members: Weak<Members>,
        route: Route,
        options: Checked,
        doubts: Doubts,
        background: &Background,
    ) -> Self {
        Self::with(Some(members), route, options, doubts, background)
    }

    fn with(
        members: Option<Weak<Members>>,
        route: Route,
        options: Checked,
        doubts: Doubts,
        background: &Background,
    ) -> Self {
        let (dial, turns) = (options.dial(route), Turns::default());
        let wanted = Some(options.replicas).filter(|replicas| *replicas > 0);
        Self {
            subscriptions: Subscriptions::new(
                dial.clone(),
                members.is_some(),
                turns.clone(),
                background.clone(),
            ),
            replication: wanted.map(|wanted| Replication::new(dial.clone(), wanted)),
            server: Server::new(dial),
            scripts: Scripts::new(options.fair, members.is_some()),
            turns,
            doubts,
            members,
            client: ClaimId::new(),
            inbox: Mutex::default(),
            options,
        }
    }

    pub(crate) fn lock_key(&self, name: &Name) -> String {
        keys::lock(&self.options.prefix, name)
    }

    /// The channel on which this client is told that its turn has come.
    pub(crate) fn inbox(&self) -> Listening {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let listen = || self.subscriptions.listen(&keys::inbox(&self.options.prefix, self.client));
        inbox.get_or_insert_with(listen).clone()
    }

    /// The same, if the server has confirmed it.
    pub(crate) fn confirmed_inbox(&self) -> Option<Listening> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.clone().filter(Listening::is_confirmed)
    }

    pub(crate) fn disconnect(&self) {
        drop(self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.subscriptions.disconnect();
        if let Some(replication) = &self.replication {
            replication.disconnect();
        }
        self.server.disconnect();
    }

    /// Begins a call with every key of a name that the script may need, and tells the lock's.
    pub(crate) fn call(&self, script: &Script, name: &Name) -> (Cmd, String) {
        let lock = self.lock_key(name);
        let (record, size) = (keys::record(&lock), lock.len());
        if self.options.fair {
            let mut call = script.call(4, size * 8);
            call.arg(&lock).arg(record).arg(keys::queue(&lock)).arg(keys::waiters(&lock));
            return (call, lock);
        }
        let mut call = script.call(2, size * 4);
        call.arg(&lock).arg(record);
        (call, lock)
    }

    /// The same where there is no queue, with the key that stops newcomers.
    fn call_with_stop(&self, script: &Script, name: &Name) -> (Cmd, String) {
        let lock = self.lock_key(name);
        let mut call = script.call(3, lock.len() * 6);
        call.arg(&lock).arg(keys::record(&lock)).arg(keys::stop(&lock));
        (call, lock)
    }

    pub(crate) async fn run(&self, script: &Script, call: &Cmd, about: &str) -> Result<Answer, Failure> {
        match self.server.run(script, call, about).await {
            Err(failure) => match self.asked_to_ask(&failure) {
                Some(store) => store.server.run_asking(script, call, about).await,
                None => Err(failure),
            },
            answer => answer,
        }
    }

    /// The server to which the slot of a request is moving, if that is why it failed.
    fn asked_to_ask(&self, failure: &Failure) -> Option<Arc<Store>> {
        match redirect(&failure.error)? {
            Redirect::Ask(address) => self.members.as_ref()?.upgrade()?.at(&address).ok(),
            Redirect::Moved(_) => None,
        }
    }

    /// Whether names of different slots cannot be asked about together.
    pub(crate) fn is_in_cluster(&self) -> bool {
        self.members.is_some()
    }

    /// How long the record of a grant is remembered, in seconds: longer than the grant stands.
    pub(crate) fn remember(&self, lease: Duration) -> u64 {
        self.options.remember.max(lease * 2).as_secs()
    }

    /// One attempt.
    pub(crate) async fn ask(&self, claim: &Claim, leaves: Leaves<'_>) -> Result<Asked, StoreError> {
        let script = self.scripts.acquire(claim.mode);
        let (fair, alone) = (self.options.fair, claim.mode == Mode::Exclusive);
        let stop = !fair && (!alone || matches!(leaves, Leaves::Stop));
        let (mut call, lock) =
            if stop { self.call_with_stop(script, &claim.name) } else { self.call(script, &claim.name) };
        arg_claim(&mut call, claim.id).arg(millis(claim.lease)).write_arg_fmt(Told(&claim.holder));
        call.arg(self.remember(claim.lease));
        if fair || !alone {
            call.write_arg_fmt(How(claim.mode));
            call.arg(mode::take(claim.mode));
        }
        if let Leaves::Place(inbox) = leaves {
            call.arg(inbox.channel());
        }
        let asking = self.doubts.asking(claim.id);
        let Answer { value, sent, resent, line } = match self.run_replicated(script, &call, &lock).await {
            Ok(answer) => answer,
            Err(Failure { error, in_doubt }) => {
                if !in_doubt {
                    asking.settle();
                }
                return Err(error);
            }
        };
        if !resent {
            asking.settle();
        }
        let (attempt, at) = match replies::attempt(&value)? {
            replies::Attempt::Granted(token) => {
                self.confirm(std::slice::from_ref(claim), line).await?;
                (Attempt::Granted(Grant::leased(claim, token, sent)), None)
            }
            replies::Attempt::Busy { expires_in, at } => (Attempt::Busy { expires_in }, at),
            replies::Attempt::Otherwise(held) => {
                claim.mode.agrees_with([held]).map_err(StoreError::failed)?;
                (Attempt::Busy { expires_in: None }, None)
            }
        };
        Ok(Asked { attempt, sent, at })
    }

    /// Runs a script whose effect replicas may have to have, too.
    pub(crate) async fn run_replicated(
        &self,
        script: &Script,
        call: &Cmd,
        about: &str,
    ) -> Result<Answer, Failure> {
        match &self.replication {
            Some(replication) => replication.run(script, call, about).await,
            None => self.run(script, call, about).await,
        }
    }

    /// Makes sure that enough replicas have these grants, and takes them back otherwise.
    pub(crate) async fn confirm(&self, claims: &[Claim], line: u64) -> Result<(), StoreError> {
        let Some(replication) = &self.replication else { return Ok(()) };
        let had = replication.count(line).await?;
        let Err(too_few) = replication.judge(had, "the grant, so it was taken back,") else { return Ok(()) };
        for claim in claims {
            self.take_back(claim, &too_few).await?;
        }
        Err(too_few)
    }

    /// Ends a grant that does not count. Without a mark, since whoever waits asks again with the same claim. It must not
    /// when no answer comes: the request may still be on its way, and would end what the claim is granted next.
    async fn take_back(&self, claim: &Claim, too_few: &StoreError) -> Result<(), StoreError> {
        let (call, lock) = self.ending(&claim.name, claim.id);
        let error = match self.run(&self.scripts.release, &call, &lock).await {
            Ok(Answer { resent: false, .. }) => return Ok(()),
            Ok(_) => "the connection broke meanwhile".into(),
            Err(Failure { error, in_doubt: true }) => error.to_string(),
            Err(Failure { error, .. }) => return Err(error),
        };
        let what =
            format!("{too_few}; whether it was, is not known ({error}), and the claim is not used again");
        Err(StoreError::claim_spent(what))
    }

    /// Whether a grant counts only once replicas have it.
    pub(crate) fn is_replicated(&self) -> bool {
        self.replication.is_some()
    }

    /// Ends the hold of a claim that was granted. `None` when it has none.
    pub(crate) async fn release(&self, name: &Name, claim: ClaimId) -> Result<Option<Release>, StoreError> {
        if self.doubts.contains(claim) {
            return self.retire(name, claim, false).await;
        }
        self.end_hold(name, claim).await
    }

    async fn end_hold(&self, name: &Name, claim: ClaimId) -> Result<Option<Release>, StoreError> {
        let (call, lock) = self.ending(name, claim);
        self.end(&self.scripts.release, &call, &lock).await
    }

    /// The call that ends the hold of a claim, and the lock's key.
    fn ending(&self, name: &Name, claim: ClaimId) -> (Cmd, String) {
        let script = &self.scripts.release;
        let (mut call, lock) = if self.options.fair {
            self.call(script, name)
        } else {
            let lock = self.lock_key(name);
            let mut call = script.call(1, lock.len());
            call.arg(&lock);
            (call, lock)
        };
        arg_claim(&mut call, claim);
        if self.options.fair {
            call.arg(self.remember(Duration::ZERO));
        }
        (call, lock)
    }

    /// Ends whatever a claim has: its hold, its place in a queue, and, if one of its requests may still be on its way,
    /// that too. `None` when it did not hold the lock. `stops` when it may have stopped newcomers.
    pub(crate) async fn retire(
        &self,
        name: &Name,
        claim: ClaimId,
        stops: bool,
    ) -> Result<Option<Release>, StoreError> {
        let (script, in_doubt) = (&self.scripts.retire, self.doubts.contains(claim));
        let (mut call, lock) = if stops && !self.options.fair {
            self.call_with_stop(script, name)
        } else {
            self.call(script, name)
        };
        arg_claim(&mut call, claim).arg(self.remember(LONGEST));
        if in_doubt {
            call.arg(LONGEST.as_secs());
        }
        let outcome = self.end(script, &call, &lock).await?;
        if in_doubt {
            self.doubts.remove(claim);
        }
        Ok(outcome)
    }

    async fn end(&self, script: &Script, call: &Cmd, lock: &str) -> Result<Option<Release>, StoreError> {
        // This client itself may be told, if it waited a moment ago.
        let own = u64::from(self.subscriptions.is_counted(lock));
        let Answer { value, resent, .. } = self.run(script, call, lock).await?;
        match replies::told(&value)? {
            Some(told) => Ok(Some(Release::Released { awaited: told > own })),
            // The first request may have released it. Whoever asks once more knows how to read the answer.
            None if resent => Err(StoreError::unavailable("the connection broke while a lock was released")),
            None => Ok(None),
        }
    }

    /// Why a grant is gone.
    pub(crate) async fn why(&self, grant: &Grant) -> Result<LossCause, StoreError> {
        let script = &self.scripts.why;
        let (mut call, lock) = self.call(script, &grant.name);
        arg_claim(&mut call, grant.claim).arg(grant.token.get());
        replies::cause(&self.run(script, &call, &lock).await?.value)
    }

    pub(crate) async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        let script = &self.scripts.renew;
        let mut call = script.call(grants.len() * 2, grants.len() * 256);
        let mut about = String::new();
        for grant in grants {
            about = self.lock_key(&grant.name);
            call.arg(&about).arg(keys::record(&about));
        }
        call.arg(self.options.remember.as_secs());
        for grant in grants {
            arg_claim(&mut call, grant.claim).arg(grant.token.get()).arg(millis(grant.lease));
        }
        let answers = replies::renewals(&self.run(script, &call, &about).await?.value)?;
        let failed = |(grant, error): (&Grant, String)| {
            let (name, server) = (&grant.name, self.server.dial().place().address);
            tracing::warn!(lock.name = %name, %server, error, "a lease was not renewed, and is tried again; others were");
            Renewal::Unanswered
        };
        let each = grants.iter().zip(answers);
        Ok(each.map(|(grant, answer)| answer.unwrap_or_else(|error| failed((grant, error)))).collect())
    }

    /// Changes how the claim of a grant holds the lock.
    pub(crate) async fn convert(&self, grant: &Grant, to: Mode) -> Result<Conversion, StoreError> {
        let script = &self.scripts.convert;
        let (mut call, lock) = self.call(script, &grant.name);
        arg_claim(&mut call, grant.claim).arg(self.remember(grant.lease)).arg(grant.token.get());
        call.write_arg_fmt(How(to));
        replies::conversion(&self.run(script, &call, &lock).await?.value)
    }

    /// Ends any hold of a name.
    pub(crate) async fn force(&self, name: &Name) -> Result<Vec<tenure_core::Holder>, StoreError> {
        let script = &self.scripts.force;
        let (mut call, lock) = self.call(script, name);
        call.arg(self.options.remember.as_secs());
        replies::holders(&self.run(script, &call, &lock).await?.value, std::slice::from_ref(name))
    }

    /// Who holds this name. A key of another type is an error, as it is to those who ask for the lock.
    pub(crate) async fn holders(&self, name: &Name) -> Result<Vec<tenure_core::Holder>, StoreError> {
        let (names, answer) = (std::slice::from_ref(name), self.look_at(std::slice::from_ref(name)).await?);
        match replies::strangers(&answer, names)[..] {
            [] => replies::holders(&answer, names),
            _ => Err(StoreError::failed(no_lock(&self.lock_key(name)))),
        }
    }

    /// Who holds these names. Those that nobody holds are left out, and those whose keys are of another type.
    pub(crate) async fn look(&self, names: &[Name]) -> Result<Vec<tenure_core::Holder>, StoreError> {
        replies::holders(&self.look_at(names).await?, names)
    }

    async fn look_at(&self, names: &[Name]) -> Result<redis::Value, StoreError> {
        let script = &self.scripts.look;
        let mut call = script.call(names.len() * 2, names.len() * 128);
        let mut about = String::new();
        for name in names {
            about = self.lock_key(name);
            call.arg(&about).arg(keys::record(&about));
        }
        Ok(self.run(script, &call, &about).await?.value)
    }
}

/// Adds the claim as the store keeps it, without the detour of a `String`.
pub(crate) fn arg_claim(call: &mut Cmd, claim: ClaimId) -> &mut Cmd {
    call.arg(&*claim.as_uuid().hyphenated().encode_lower(&mut [0; 36]))
}

/// A lease as Redis counts it: whole milliseconds, and never longer than what was asked for.
pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}
