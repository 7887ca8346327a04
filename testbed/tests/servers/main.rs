//! The servers, each started each way, hurt and healed; and that nothing of them stays behind.
//!
//! A server that cannot be had is listed as ignored, with the reason; `TENURE_TEST_REQUIRE=1` makes that a failure.
//! `TENURE_TEST_USE=docker` or `=local` leaves the other way out.

/// A list of cases, each with the hurt that it needs.
macro_rules! cases {
    ($list:ident: $($name:ident $(: $need:ident)?),* $(,)?) => {
        pub(crate) const $list: &[Case] =
            &[$((stringify!($name), cases!(@need $($need)?), |server| Box::pin($name(server)))),*];
    };
    (@need) => { None };
    (@need $need:ident) => { Some(tenure_conformance::saboteur::Hurt::$need) };
}

mod client;
mod endings;
mod ensembles;
mod etcd;
mod finding;
mod hurts;
mod nats;
mod redis;
mod s3;
mod sql;
mod zookeeper;

use futures_util::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tenure_conformance::saboteur::Hurt;
use tenure_conformance::skip;
use tenure_testbed::{Kind, Server, Use};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, Semaphore};

/// What surely comes has come by then.
const LONG: Duration = Duration::from_mins(1);
/// What does not come has not come by then.
const SHORT: Duration = Duration::from_millis(300);

/// How many servers start at once; and how many cases run, unless `--test-threads` says otherwise. Most of them wait.
const TOGETHER: usize = 4;

/// A case: its name, the hurt it needs, and itself.
type Case = (&'static str, Option<Hurt>, for<'a> fn(&'a Server) -> LocalBoxFuture<'a, ()>);

/// Says what this program, started again, is to do: `redis local leaves_nothing_when_stopped`, `find says_why_there_is_none`.
const CHILD: &str = "TENURE_SERVERS_TEST_CHILD";

fn main() -> ExitCode {
    if let Ok(order) = std::env::var(CHILD) {
        child(&order);
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TOGETHER);
    let runtime = Arc::new(Runtime::new().expect("a runtime"));
    let allowed = Use::from_env().expect("a way");
    let ways = [(Use::Docker, "docker"), (Use::Local, "local")];
    let asked = arguments.filter.clone().unwrap_or_default();
    let each = Kind::ALL.into_iter().flat_map(|kind| ways.map(|(way, word)| (kind, way, word)));
    let starts = Arc::new(Semaphore::new(TOGETHER));
    let lanes: Vec<_> = each
        .map(|(kind, way, word)| {
            let prefix = format!("{kind}::{word}");
            let is_asked = asked.starts_with(&prefix) || prefix.contains(&asked);
            let starting = if arguments.list || !is_asked {
                Err("not started".to_owned())
            } else if allowed != Use::Any && allowed != way {
                Err(format!("{} allows another way", Use::VARIABLE))
            } else if kind == Kind::S3 && way == Use::Docker {
                Err("moto has no image here".to_owned())
            } else if matches!(kind, Kind::NatsCluster(_)) && way == Use::Local {
                // Of 2.9.10, a cluster that was killed was seen to forget a write that it had confirmed.
                Err("Debian's NATS is older than 2.9.21, and its clusters forget writes".to_owned())
            } else {
                let starts = Arc::clone(&starts);
                Ok(runtime.spawn(async move {
                    let _turn = starts.acquire().await;
                    Server::start(kind, way).await
                }))
            };
            (prefix, kind, word, starting)
        })
        .collect();
    let (mut servers, mut trials) = (Vec::new(), Vec::new());
    for (prefix, kind, word, starting) in lanes {
        let started = starting.map(|starting| runtime.block_on(starting).expect("no panic"));
        trials.push(match started {
            Ok(Ok(server)) => {
                eprintln!("{prefix}: {server}");
                let server = Arc::new(Mutex::new(server));
                let mut lane = hurt(&prefix, kind, &server, &runtime);
                lane.extend(endings::trials(&prefix, kind, word));
                servers.push(server);
                lane
            }
            Ok(Err(reason)) => match skip(kind.name(), &format!("{word}: {reason}")) {
                Ok(()) => listed(&prefix, kind, &reason.to_string()),
                Err(required) => vec![Trial::test(prefix, move || Err(Failed::from(required)))],
            },
            Err(reason) => listed(&prefix, kind, &reason),
        });
    }
    trials.push(finding::trials(&runtime, allowed));
    let ran = libtest_mimic::run(&arguments, in_turn(trials));
    drop(servers);
    ran.exit_code()
}

/// One of each lane in turn, because the cases of a server wait for each other, and those of different servers do not.
fn in_turn(lanes: Vec<Vec<Trial>>) -> Vec<Trial> {
    let mut numbered: Vec<_> = lanes.into_iter().flat_map(|lane| lane.into_iter().enumerate()).collect();
    numbered.sort_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, trial)| trial).collect()
}

fn child(order: &str) {
    let runtime = Runtime::new().expect("a runtime");
    match order.split(' ').collect::<Vec<_>>()[..] {
        ["find", name] => runtime.block_on(finding::run(name)),
        [kind, way, name] => {
            let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).expect("a kind");
            runtime.block_on(endings::run(kind, way.parse().expect("a way"), name));
        }
        _ => panic!("{order}"),
    }
}

/// The cases of a server, one at a time on the same one.
fn hurt(prefix: &str, kind: Kind, server: &Arc<Mutex<Server>>, runtime: &Arc<Runtime>) -> Vec<Trial> {
    let saboteur = runtime.block_on(server.lock()).saboteur();
    let trial = |(name, need, case): Case| {
        let (server, runtime) = (Arc::clone(server), Arc::clone(runtime));
        let run = move || {
            runtime.block_on(async {
                let server = server.lock().await;
                // Whatever an earlier case left.
                server.saboteur().heal().await?;
                case(&server).await;
                Ok(server.saboteur().heal().await?)
            })
        };
        let name = format!("{prefix}::{name}");
        match need {
            Some(hurt) if !saboteur.can(hurt) => ignored(name, format!("cannot be hurt by: {hurt}")),
            _ => Trial::test(name, run),
        }
    };
    cases(kind).map(trial).collect()
}

/// What applies to one server, or to several. The proxy and the runtime are the same before every server.
fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    let (of_all, of_one): (&[Case], &[Case]) = match kind {
        Kind::RedisSentinel
        | Kind::RedisCluster
        | Kind::ZookeeperEnsemble(_)
        | Kind::EtcdCluster(_)
        | Kind::NatsCluster(_) => (ensembles::CASES, &[]),
        Kind::Redlock(_) => (ensembles::STRANGERS, &[]),
        Kind::Redis => (hurts::CASES, hurts::OF_ONE_KIND),
        _ => (hurts::CASES, &[]),
    };
    of_all.iter().chain(of_one).copied()
}

/// The names of a server's cases, where there is no server to run them, and why.
fn listed(prefix: &str, kind: Kind, why: &str) -> Vec<Trial> {
    let names = cases(kind).map(|(name, ..)| name).chain(endings::names(kind).iter().copied());
    names.map(|name| ignored(format!("{prefix}::{name}"), why.to_owned())).collect()
}

fn ignored(name: String, why: String) -> Trial {
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
}
