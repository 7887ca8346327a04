//! Users who lack a right: an operation succeeds as a whole, or its error names the right.

use crate::{HANG, claim, claim_in, granted, in_time, input::refusal_with, permits, server::Server, until};
use redis::Value;
use std::{collections::BTreeSet, num::NonZeroU32, sync::Arc, time::Duration};
use tenure_core::{
    Attempt, AttemptAll, Backend, Claim, ClaimId, Conversion, Error, Grant, LatchState, LatchStep, LossCause,
    Mode, Name, Release, Renewal, StoreError, Token,
};
use tenure_redis::{RedisBackend, RedisOptions, RedlockBackend, RedlockOptions};

const QUEUE: &str = "tenure:a\u{1f}{tenure:a}q";

/// The rights that docs/redis.md lists for a user.
fn documented() -> &'static str {
    let page = include_str!("../../../docs/redis.md");
    page.split("```").find_map(|block| block.trim().strip_prefix("ACL SETUSER")).expect("rules").trim()
}

/// Makes the user `app`, with these rights.
fn permit(server: &Server) {
    let rules = documented().replace("SECRET", "zq7k2");
    server.tell::<()>(&["ACL", "SETUSER"].into_iter().chain(rules.split_whitespace()).collect::<Vec<_>>());
}

/// The commands that scripts call, except those for a node of a Cluster.
fn commands_in_scripts() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for folder in ["src/requests/scripts", "src/redlock/scripts"] {
        for file in std::fs::read_dir(format!("{}/{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
            let code = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let calls = code.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
            commands.extend(calls.map(str::to_lowercase));
        }
    }
    commands
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Fair,
    Redlock,
    /// One node that has all slots.
    Cluster,
    /// A replica must have each grant.
    Replicated,
}

/// Servers, a client that may do everything, and one whose user lacks a right.
struct Trial {
    kind: Kind,
    servers: Vec<Server>,
    all: Arc<dyn Backend>,
    less: Arc<dyn Backend>,
    lacks: String,
    refusals: usize,
}

impl Trial {
    async fn start(kind: Kind) -> Self {
        let mut servers = match kind {
            Kind::Cluster => vec![Server::cluster(&[]).await],
            Kind::Replicated => vec![Server::with(&["--repl-diskless-sync-delay", "0"])],
            Kind::Redlock => (0..3).map(|_| Server::start()).collect(),
            _ => vec![Server::start()],
        };
        servers.iter().for_each(permit);
        if kind == Kind::Replicated {
            let replica = Server::start();
            replica.tell::<()>(&["REPLICAOF", "127.0.0.1", &servers[0].port.to_string()]);
            let is_followed = || servers[0].tell::<String>(&["INFO", "replication"]).contains("state=online");
            until("it follows", is_followed).await;
            servers.push(replica);
        }
        let all = connect(kind, &servers, "").await.unwrap();
        let less = connect(kind, &servers, "app:zq7k2@").await.unwrap();
        Self { kind, servers, all, less, lacks: String::new(), refusals: 0 }
    }

    fn set_rule(&self, rule: &str) {
        for server in &self.servers {
            server.tell::<()>(&["ACL", "SETUSER", "app", rule]);
            server.tell::<()>(&["ACL", "LOG", "RESET"]);
        }
    }

    /// The answer, unless it is the error for what this user lacks.
    fn heard<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        let error = match answer {
            Ok(answer) => return Some(answer),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("denies this user"), "without {:?}: {error}", self.lacks);
        // Redis before 7.2 does not say which command a script may not call, except in its log.
        let logs = self.servers.iter().map(|server| format!("{:?}", server.tell::<Value>(&["ACL", "LOG"])));
        let said = if error.contains("NOPERM") { error } else { logs.collect() };
        assert!(!self.lacks.is_empty() && said.contains(&self.lacks), "without {:?}: {said}", self.lacks);
        self.refusals += 1;
        None
    }

    /// The holders of `a`.
    async fn held(&self) -> Vec<(ClaimId, Token)> {
        let holders = self.all.holders(&name()).await.unwrap();
        holders.iter().map(|holder| (holder.claim.unwrap(), holder.token.unwrap())).collect()
    }

    /// Has a client that may do everything end what is left of a claim.
    async fn end(&self, claim: &Claim) {
        self.all.withdraw(claim).await.unwrap();
        assert!(self.held().await.iter().all(|(held, _)| *held != claim.id));
    }

    async fn all(&mut self) {
        let capabilities = self.less.capabilities();
        let modes = [Mode::Exclusive, Mode::Shared, permits(1, 2)];
        let modes = if capabilities.shared { &modes[..] } else { &modes[..1] };
        for mode in modes.iter().copied() {
            self.acquire(mode).await;
            self.look_and_renew(mode).await;
            self.release(mode).await;
            self.release_what_was_lost(mode).await;
        }
        if capabilities.shared {
            self.convert(Mode::Exclusive, Mode::Shared).await;
            self.convert(Mode::Shared, Mode::Exclusive).await;
        }
        if capabilities.together {
            self.acquire_several().await;
        }
        if capabilities.fair {
            self.hand_over().await;
        }
        if capabilities.latches {
            self.latch().await;
        }
    }

    async fn acquire(&mut self, mode: Mode) {
        let (one, other) = (claim_in(mode, "a"), claim_in(mode, "a"));
        let (all, less) = (Arc::clone(&self.all), Arc::clone(&self.less));
        if let Some(attempt) = self.heard(less.try_acquire(&one).await) {
            let Attempt::Granted(granted) = attempt else { panic!("{attempt:?} of what is free") };
            assert_eq!(self.held().await, [(one.id, granted.token)]);
        }
        self.end(&one).await;
        let held = granted(&*all, &one).await;
        match self.heard(less.try_acquire(&other).await) {
            Some(Attempt::Granted(granted)) => {
                assert_ne!(mode, Mode::Exclusive);
                assert!(self.held().await.contains(&(other.id, granted.token)));
            }
            Some(Attempt::Busy { .. }) => assert_eq!(mode, Mode::Exclusive),
            None => {}
        }
        self.end(&other).await;
        assert_eq!(self.held().await, [(one.id, held.token)]);
        let waiter = tokio::spawn(async move { less.acquire(&Claim { waits: true, ..other }).await });
        let server = &self.servers[0];
        let listeners = |how| server.tell::<(String, u64)>(&["PUBSUB", how, "tenure:a"]).1;
        let waits = || match self.kind {
            Kind::Fair => server.tell(&["EXISTS", QUEUE]),
            Kind::Cluster => listeners("SHARDNUMSUB") > 0,
            _ => listeners("NUMSUB") > 0,
        };
        until("it waits", || waiter.is_finished() || waits()).await;
        all.release(&held).await.unwrap();
        if let Some(granted) = self.heard(in_time("an answer", waiter).await.unwrap()) {
            assert_eq!(self.held().await, [(granted.claim, granted.token)]);
            all.release(&granted).await.unwrap();
        }
        all.force_release(&name()).await.unwrap();
    }

    async fn look_and_renew(&mut self, mode: Mode) {
        let claim = claim_in(mode, "a");
        let (all, less) = (Arc::clone(&self.all), Arc::clone(&self.less));
        let held = granted(&*all, &claim).await;
        for holders in [less.holders(&held.name).await, less.list("").await] {
            if let Some(holders) = self.heard(holders) {
                assert_eq!(
                    (holders.len(), holders[0].claim, holders[0].token),
                    (1, Some(claim.id), Some(held.token))
                );
            }
        }
        let longer = Grant { lease: held.lease * 2, ..held.clone() };
        if let Some(renewed) = self.heard(less.renew(std::slice::from_ref(&longer)).await) {
            assert_eq!(renewed, [Renewal::Renewed]);
        }
        if mode != Mode::Exclusive {
            // Or it would keep writers out after its last holder's lease.
            let left = all.holders(&held.name).await.unwrap()[0].left.unwrap() + Duration::from_secs(1);
            let key: u64 = self.servers[0].tell(&["PTTL", "tenure:a"]);
            assert!(
                Duration::from_millis(key) <= left,
                "the key is left for {key} ms, its holder for {left:?}"
            );
        }
        if let Some(forced) = self.heard(less.force_release(&held.name).await) {
            assert_eq!((forced.len(), forced[0].claim), (1, Some(claim.id)));
            assert_eq!(self.held().await, []);
            let renewed = all.renew(std::slice::from_ref(&held)).await.unwrap();
            assert_eq!(renewed, [Renewal::Lost(LossCause::Forced)]);
        }
        self.end(&claim).await;
    }

    async fn release(&mut self, mode: Mode) {
        let (all, less) = (Arc::clone(&self.all), Arc::clone(&self.less));
        let (claim, beside) = (claim_in(mode, "a"), claim_in(mode, "a"));
        for is_alone in [true, false] {
            if !is_alone && mode == Mode::Exclusive {
                continue;
            }
            for withdraws in [false, true] {
                let held = granted(&*all, &claim).await;
                if !is_alone {
                    granted(&*all, &beside).await;
                }
                if withdraws {
                    if self.heard(less.withdraw(&claim).await).is_some() {
                        assert_eq!(self.held().await.len(), usize::from(!is_alone));
                    }
                } else if let Some(released) = self.heard(less.release(&held).await) {
                    assert_eq!(released, Release::Released { awaited: false });
                    assert_eq!(self.held().await.len(), usize::from(!is_alone));
                }
                self.end(&claim).await;
                self.end(&beside).await;
            }
        }
    }

    async fn release_what_was_lost(&mut self, mode: Mode) {
        let less = Arc::clone(&self.less);
        let held = granted(&*self.all, &claim_in(mode, "a")).await;
        self.all.force_release(&held.name).await.unwrap();
        if let Some(renewed) = self.heard(less.renew(std::slice::from_ref(&held)).await) {
            assert_eq!(renewed, [Renewal::Lost(LossCause::Forced)]);
        }
        if let Some(released) = self.heard(less.release(&held).await) {
            assert_eq!(released, Release::Lost(LossCause::Forced));
        }
        if less.capabilities().shared
            && let Some(converted) = self.heard(less.convert(&held, Mode::Shared).await)
        {
            assert_eq!(converted, Conversion::Lost(LossCause::Forced));
        }
    }

    async fn convert(&mut self, from: Mode, to: Mode) {
        let less = Arc::clone(&self.less);
        let claim = claim_in(from, "a");
        let held = granted(&*self.all, &claim).await;
        if let Some(converted) = self.heard(less.convert(&held, to).await) {
            assert_eq!(converted, Conversion::Converted);
            assert_eq!(self.all.holders(&held.name).await.unwrap()[0].mode, to);
        }
        assert_eq!(self.held().await, [(claim.id, held.token)]);
        self.end(&claim).await;
    }

    async fn acquire_several(&mut self) {
        let less = Arc::clone(&self.less);
        // Of one slot.
        let claims = ["a", "{tenure:a}"].map(claim);
        if let Some(attempt) = self.heard(less.try_acquire_all(&claims).await) {
            let AttemptAll::Granted(granted) = attempt else { panic!("{attempt:?} of what is free") };
            assert_eq!(self.held().await, [(granted[0].claim, granted[0].token)]);
            assert_eq!(self.all.list("").await.unwrap().len(), 2);
        }
        for claim in claims {
            self.end(&claim).await;
        }
    }

    /// A holder may hand a lock to another user's waiter.
    async fn hand_over(&mut self) {
        let (all, less) = (Arc::clone(&self.all), Arc::clone(&self.less));
        let (one, other) = (claim("a"), Claim { waits: true, ..claim("a") });
        let held = granted(&*all, &one).await;
        let waiter = tokio::spawn({
            let (all, other) = (Arc::clone(&all), other.clone());
            async move { all.acquire(&other).await.unwrap() }
        });
        until("it waits", || self.servers[0].tell(&["EXISTS", QUEUE])).await;
        if let Some(waiting) = self.heard(less.waiting(&held.name).await) {
            assert_eq!(waiting.len(), 1);
        }
        if let Some(released) = self.heard(less.release(&held).await) {
            assert!(matches!(released, Release::Released { .. }), "{released:?}");
            assert!(self.held().await.iter().all(|(claim, _)| *claim != one.id));
        }
        self.end(&one).await;
        in_time("its turn", waiter).await.unwrap();
        self.end(&other).await;
    }

    async fn latch(&mut self) {
        let (all, less, name) = (Arc::clone(&self.all), Arc::clone(&self.less), name());
        let step = LatchStep::CountDown { party: Name::new("x").unwrap(), of: NonZeroU32::new(2).unwrap() };
        let counted = LatchState { of: 2, counted: 1 };
        if let Some(state) = self.heard(less.latch(&name, &step).await) {
            assert_eq!((state, all.latch(&name, &LatchStep::Look).await.unwrap()), (counted, counted));
        }
        all.latch(&name, &step).await.unwrap();
        if let Some(state) = self.heard(less.latch(&name, &LatchStep::Look).await) {
            assert_eq!(state, counted);
        }
        if let Some(state) = self.heard(less.latch(&name, &LatchStep::Remove).await) {
            let gone = all.latch(&name, &LatchStep::Look).await.unwrap();
            assert_eq!((state, gone), (LatchState::default(), LatchState::default()));
        }
        all.latch(&name, &LatchStep::Remove).await.unwrap();
    }
}

fn name() -> Name {
    Name::new("a").unwrap()
}

async fn connect(kind: Kind, servers: &[Server], login: &str) -> Result<Arc<dyn Backend>, Error> {
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    Ok(if kind == Kind::Redlock {
        let options = RedlockOptions::from_url(&format!("redlock://{login}{}", hosts.join(",")))?;
        let options =
            options.node_timeout(Duration::from_mins(1)).each(|server| server.response_timeout(HANG));
        Arc::new(RedlockBackend::connect(options).await?)
    } else {
        let scheme = if kind == Kind::Cluster { "redis+cluster" } else { "redis" };
        let options =
            RedisOptions::from_url(&format!("{scheme}://{login}{}", hosts[0]))?.response_timeout(HANG);
        let replicas = u32::from(kind == Kind::Replicated);
        Arc::new(RedisBackend::connect(options.fair(kind == Kind::Fair).replicas(replicas)).await?)
    })
}

#[tokio::test]
async fn documented_rights_suffice() {
    // The error for what a user may not do leads to the crate's documentation.
    let crate_page = include_str!("../../src/lib.rs").replace("//! ", "");
    assert!(crate_page.contains(documented()), "src/lib.rs has other rules than docs/redis.md");
    for kind in [Kind::Plain, Kind::Fair, Kind::Redlock, Kind::Cluster, Kind::Replicated] {
        Trial::start(kind).await.all().await;
    }
    let server = Server::start();
    permit(&server);
    let options = RedisOptions::from_url(&server.tcp_url()).unwrap().credentials("app", "zq7k2");
    let (error, text) = refusal_with(options.prefix("other:")).await;
    assert!(matches!(error, Error::Store { .. }) && text.contains("denies this user"), "{text}");
}

/// Redis carries out a script until it comes to the command that it refuses.
#[tokio::test]
async fn missing_right_is_named_and_never_a_loss() {
    let commands = commands_in_scripts();
    assert!(commands.contains("get") && commands.len() > 15, "{commands:?}");
    let mut unnoticed = commands.clone();
    for kind in [Kind::Plain, Kind::Fair, Kind::Redlock] {
        let mut trial = Trial::start(kind).await;
        for command in &commands {
            trial.set_rule(&format!("-{command}"));
            (trial.lacks, trial.refusals) = (command.clone(), 0);
            trial.all().await;
            trial.set_rule(&format!("+{command}"));
            if trial.refusals > 0 {
                unnoticed.remove(command);
            }
        }
    }
    // Waiters ask by themselves too.
    assert_eq!(unnoticed.iter().collect::<Vec<_>>(), ["publish"]);
}
