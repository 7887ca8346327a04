//! The clients and checks that the cases of faults share.

use crate::{
    Check, Client, Stage,
    cases::contention::Contention,
    check::{ensure, rises, waits, within},
    pause,
    saboteur::{Hurt, Saboteur},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Error, Guard, LossCause, Moment, StandingKind, Token};
use tokio::task::JoinHandle;

/// A grant left behind with this lease does not expire during a case.
pub(super) const LONG_LEASE: Duration = Duration::from_mins(5);
/// For waits that end by themselves when all is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// For waits that begin before their server is started again, which was seen to take a minute.
pub(super) const OUTAGE: Duration = Duration::from_mins(2);

/// Two clients, a name, a saboteur of their server, and others that keep taking turns meanwhile.
pub(super) struct Scene {
    pub(super) one: Client,
    pub(super) other: Client,
    pub(super) name: String,
    pub(super) standing: StandingKind,
    pub(super) saboteur: Arc<dyn Saboteur>,
    /// The last failover that no longer matters, where the store may forget its grants in one.
    last_failover: Option<AtomicU64>,
    contention: Contention,
}

impl Scene {
    pub(super) async fn set(stage: &Stage, hurts: &[Hurt]) -> Check<Self> {
        let saboteur = stage.saboteur(hurts)?;
        let [one, other] = stage.clients().await?;
        let contention = Contention::begin(stage, hurts).await?;
        let standing = stage.capabilities().standing;
        let forgets = hurts.iter().any(|hurt| stage.subject().forgets(*hurt));
        let last_failover = if forgets { Some(saboteur.last_failover().await?.into()) } else { None };
        Ok(Self { one, other, name: stage.name("a"), standing, saboteur, last_failover, contention })
    }

    /// Another client's wait for the name, in a form that excludes every other holder.
    ///
    /// Its lease outlives the aftermath of a fault: members of a Redis Cluster that were frozen may answer at once,
    /// find each other missing, and then refuse every request, even a release, for `cluster-node-timeout`.
    pub(super) fn waiter(&self) -> JoinHandle<Result<Guard, Error>> {
        waits(self.other.rival(&self.name).lease(PATIENCE).wait(OUTAGE))
    }

    /// Fails if the name is granted again while it is held. Only the store's answer shows that it is not, and the
    /// connection on which it is asked may have been reset too.
    pub(super) async fn excludes(&self, guard: &Guard) -> Check {
        let (enough, give_up) = (Moment::now() + Duration::from_millis(300), Moment::now() + PATIENCE);
        let mut refused = false;
        while !(refused && enough.has_passed()) {
            match self.other.rival(&self.name).try_acquire().await {
                Ok(None) => refused = true,
                Ok(Some(second)) => {
                    ensure!(
                        !guard.is_held() || self.forgot().await?,
                        "{second:?} was granted while another client holds it: {guard:?}"
                    );
                    return Ok(second.release().await?);
                }
                Err(error) => ensure!(
                    error.is_retryable() && !give_up.has_passed(),
                    "another client's attempt must get an answer after the fault: {error}"
                ),
            }
            pause::look_again().await;
        }
        Ok(())
    }

    /// Releases the lock, which the next client acquires long before the lease would have expired, with a greater
    /// token.
    pub(super) async fn hand_on(&self, guard: Guard) -> Check<Token> {
        let before = guard.token();
        self.released(guard.release().await).await?;
        let next = self.other.rival(&self.name).lease(LONG_LEASE).wait(PATIENCE).acquire().await?;
        let token = next.token();
        rises(before, token)?;
        self.released(next.release().await).await?;
        Ok(token)
    }

    /// Checks that the lock was released, or lost with its session, which may end when its connection does, or that a
    /// failover made the store forget it.
    pub(super) async fn released(&self, outcome: Result<(), Error>) -> Check {
        match (outcome, self.standing) {
            (Ok(()), _)
            | (Err(Error::Lost { cause: LossCause::SessionEnded, .. }), StandingKind::Session) => Ok(()),
            (Err(Error::Lost { cause: LossCause::Forgotten | LossCause::TakenOver, .. }), _)
                if self.forgot().await? =>
            {
                Ok(())
            }
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Whether there was a failover that may have made the store forget grants.
    async fn forgot(&self) -> Check<bool> {
        Ok(match &self.last_failover {
            Some(before) => self.saboteur.last_failover().await? != before.load(Ordering::Relaxed),
            None => false,
        })
    }

    /// Goes on to the next round: failovers so far no longer excuse anything.
    pub(super) async fn next_round(&self) -> Check {
        if let Some(before) = &self.last_failover {
            before.store(self.saboteur.last_failover().await?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Heals all faults, and waits until the servers agree. Sentinels may have chosen another master, and switch to it
    /// only now: it would not know of grants and releases of the old one until then.
    pub(super) async fn heal(&self) -> Check {
        Ok(self.saboteur.heal().await?)
    }

    /// Heals all faults, and checks that everything works again.
    pub(super) async fn end(self) -> Check {
        self.heal().await?;
        self.contention.goes_on().await
    }
}

/// The grant of a waiter.
pub(super) async fn granted(waiter: JoinHandle<Result<Guard, Error>>) -> Check<Guard> {
    Ok(within(OUTAGE, "a waiter's grant after the fault", waiter).await???)
}
