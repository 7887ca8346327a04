//! `tenure ping`: whether a store answers, its speed and its capabilities.

use crate::{
    args,
    exit::{self, Failure},
    people, stderr, store, warnings,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};
use tenure::{
    Capabilities, Error, Guard, HolderInfo, Locks,
    backend::{StandingKind, Wakeup},
    urls::namespace,
};
use tokio::time::{sleep, timeout};

/// How long each request may take.
const WAIT: Duration = Duration::from_secs(10);
/// The lease, even if the store's URL has a longer one: if the store freezes, `ping` says so soon.
const LEASE: Duration = WAIT;
/// How long the end waits for the store.
const FAREWELL: Duration = Duration::from_secs(2);
/// How many names a machine has. They are few, so that pings all day do not fill the store, and more than one, so that
/// a ping need not wait for another, or for the lease of one that was killed.
const NAMES: usize = 8;
/// The pause when all of them are busy.
const PAUSE: Duration = Duration::from_millis(50);
/// How much of a host's name they contain: all, unless it is very long.
const HOST_BYTES: usize = 160;

pub(crate) async fn ping(store: &args::Store, args: &args::Ping) -> Result<ExitCode, Failure> {
    warnings::show();
    let began = Instant::now();
    let url = store::url(store)?;
    let locks = url.connect().await?;
    let connect_ms = millis(began.elapsed());
    let measured = measure(&locks, args.count).await.map_err(Failure::of_store);
    let (store, capabilities) = (locks.store().to_owned(), locks.capabilities());
    if timeout(FAREWELL, locks.close()).await.is_err() {
        stderr::mention(&format!(
            "{store} does not answer; a lock of this ping may stay held there for {LEASE:?}"
        ));
    }
    let [look_ms, acquire_ms, release_ms] = measured?.map(Spread::of);
    let report = Report {
        store,
        namespace: namespace(&url.text).into_iter().collect(),
        connect_ms,
        count: args.count,
        look_ms,
        acquire_ms,
        release_ms,
        capabilities: Abilities::of(capabilities),
    };
    exit::print(&if args.json { report.json() } else { report.table() })?;
    Ok(ExitCode::SUCCESS)
}

/// Looks, acquires and releases, one after the other, and returns how long each took each time.
async fn measure(locks: &Locks, count: u32) -> Result<[Vec<Duration>; 3], Failure> {
    let mut names = names(&HolderInfo::here(None).host);
    let [mut looks, mut acquisitions, mut releases] = [const { Vec::new() }; 3];
    let lists = locks.capabilities().listing;
    for _ in 0..count {
        if lists {
            let began = Instant::now();
            answer(locks, locks.holders(&names[0])).await?;
            looks.push(began.elapsed());
        }
        let (guard, took) = acquire(locks, &mut names).await?;
        acquisitions.push(took);
        let began = Instant::now();
        answer(locks, guard.release()).await?;
        releases.push(began.elapsed());
    }
    Ok([looks, acquisitions, releases])
}

/// The names for `ping` on this host. The end of a host's name is its unique part, as in a pod's.
fn names(host: &str) -> [String; NAMES] {
    let end = &host[host.ceil_char_boundary(host.len().saturating_sub(HOST_BYTES))..];
    std::array::from_fn(|number| format!("tenure-ping/{end}/{number}"))
}

/// Acquires the first of these names that is free, which becomes the first of all, and says how long that request took.
async fn acquire(locks: &Locks, names: &mut [String; NAMES]) -> Result<(Guard, Duration), Failure> {
    let end = Instant::now() + WAIT;
    loop {
        for _ in 0..NAMES {
            let began = Instant::now();
            let lock = locks.lock(&names[0]).lease(LEASE).label("tenure ping");
            if let Some(guard) = answer(locks, lock.try_acquire()).await? {
                return Ok((guard, began.elapsed()));
            }
            names.rotate_left(1);
        }
        if Instant::now() >= end {
            let text =
                format!("all names for tenure ping in {} are busy, such as {:?}", locks.store(), names[0]);
            let holders = answer(locks, locks.holders(&names[0])).await.unwrap_or_default();
            return Err(Failure::Busy(text, holders));
        }
        sleep(PAUSE).await;
    }
}

/// Waits for an answer of the store, but not for ever.
async fn answer<T>(locks: &Locks, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    let Ok(answer) = timeout(WAIT, asked).await else {
        return Err(Failure::Busy(format!("{} did not answer within {WAIT:?}", locks.store()), Vec::new()));
    };
    Ok(answer?)
}

/// In milliseconds, to a microsecond.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// How long something took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Spread {
    min: f64,
    median: f64,
    max: f64,
}

impl Spread {
    /// `None` if it was not measured.
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let (min, max) = (*times.first()?, *times.last()?);
        Some(Self { min: millis(min), median: millis(times[times.len() / 2]), max: millis(max) })
    }
}

/// The results of `ping`. Its fields are part of the command's interface: see `docs/cli-reference.md`.
#[derive(Serialize)]
struct Report {
    store: String,
    namespace: BTreeMap<&'static str, String>,
    connect_ms: f64,
    count: u32,
    look_ms: Option<Spread>,
    acquire_ms: Option<Spread>,
    release_ms: Option<Spread>,
    capabilities: Abilities,
}

/// The store's capabilities.
#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "this type is a flat list of yes and no")]
struct Abilities {
    term: &'static str,
    wakeup: &'static str,
    ask_again_ms: f64,
    fair: bool,
    shared: bool,
    permits: bool,
    latches: bool,
    together: bool,
    listing: bool,
    waiting: bool,
    succession: u32,
}

impl Abilities {
    fn of(store: Capabilities) -> Self {
        Self {
            term: match store.standing {
                StandingKind::Lease => "lease",
                StandingKind::Session => "session",
            },
            wakeup: match store.wakeup {
                Wakeup::Poll => "poll",
                Wakeup::Push => "push",
                Wakeup::Queue => "queue",
                _ => "other",
            },
            ask_again_ms: millis(store.ask_again),
            fair: store.fair,
            shared: store.shared,
            permits: store.permits,
            latches: store.latches,
            together: store.together,
            listing: store.listing,
            waiting: store.waiting,
            succession: store.succession,
        }
    }
}

impl Report {
    fn json(&self) -> String {
        let json =
            serde_json::to_string(self).unwrap_or_else(|error| unreachable!("strings and numbers: {error}"));
        json + "\n"
    }

    fn table(&self) -> String {
        let Self { connect_ms, look_ms, acquire_ms, release_ms, capabilities: can, .. } = self;
        let time = |step: &str, time: Option<Spread>| {
            let cells = time.map(|Spread { min, median, max }| {
                [format!("{median:.3} ms"), format!("{min:.3} to {max:.3} ms")]
            });
            let [median, range] = cells.unwrap_or_else(|| ["-".to_owned(), String::new()]);
            [step.to_owned(), median, range]
        };
        let times = [
            ["connect".to_owned(), format!("{connect_ms:.3} ms"), String::new()],
            time("look", *look_ms),
            time("acquire", *acquire_ms),
            time("release", *release_ms),
        ];
        let yes = |can: bool| if can { "yes" } else { "no" }.to_owned();
        let most = |count: u32| if count > 0 { format!("up to {count} times") } else { "no".to_owned() };
        let held = match can.term {
            "session" => "until its connection or session ends",
            _ => "until its lease expires, unless renewed",
        };
        let waiters = match can.wakeup {
            "push" => "are woken by a release",
            "queue" => "queue in the store, which wakes the next one",
            _ => "poll the store",
        };
        let again = Duration::from_secs_f64(can.ask_again_ms / 1e3);
        let abilities = [
            ["a lock is held".to_owned(), held.to_owned()],
            ["waiters".to_owned(), waiters.to_owned()],
            ["waiters ask again at least every".to_owned(), humantime::format_duration(again).to_string()],
            ["first come, first served".to_owned(), yes(can.fair)],
            ["--shared".to_owned(), yes(can.shared)],
            ["--permits".to_owned(), yes(can.permits)],
            ["latches".to_owned(), yes(can.latches)],
            ["several names at once, in one request".to_owned(), yes(can.together)],
            ["succession=N".to_owned(), most(can.succession)],
            ["ls, show, wait".to_owned(), yes(can.listing)],
            ["ls --waiting".to_owned(), yes(can.waiting)],
        ];
        let namespace = self.namespace.iter().map(|(name, value)| [(*name).to_owned(), format!("{value:?}")]);
        let [namespace, times, abilities] =
            [people::aligned(namespace), people::aligned(times), people::aligned(abilities)];
        format!("{}\n\n{namespace}\n{times}\n{abilities}", self.store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Name;

    #[test]
    fn names_keep_unique_end_of_long_host() {
        assert_eq!(names("db-1")[7], "tenure-ping/db-1/7");
        let long = names(&format!("{}é-7x2kp", "x".repeat(400)));
        assert!(long[0].ends_with("é-7x2kp/0"), "{long:?}");
        for host in [&"é".repeat(100), &"x".repeat(255), "", &"€".repeat(90)] {
            assert!(names(host).iter().all(|name| Name::new(name).is_ok()), "{host:?}");
        }
    }

    #[test]
    fn loss_exits_as_store_failure() {
        assert_eq!(Failure::Lost.of_store().report(), ExitCode::from(69));
        assert_eq!(Failure::Usage(String::new()).of_store().report(), ExitCode::from(64));
    }

    #[test]
    fn spread_has_min_median_and_max() {
        let times = [3, 1, 2].map(Duration::from_millis).to_vec();
        assert_eq!(Spread::of(times), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
