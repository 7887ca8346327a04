//! Which faults come when: a function of the seed.

use super::Options;
use crate::{
    Fault, Method, Subject,
    saboteur::{Hurt, Injection},
};
use fastrand::Rng;
use std::{collections::BTreeSet, fmt, time::Duration};
use tenure_core::Capabilities;

/// The faults that can be injected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// How many clients there are in this process.
    pub clients: usize,
    /// How many client processes there are.
    pub processes: usize,
    /// How many locks can be released by force.
    pub names: usize,
    /// Which requests of clients can be disturbed. One that is named twice is disturbed twice as often.
    pub methods: Vec<Method>,
    /// How the server can be hurt.
    pub hurts: Vec<Hurt>,
    /// How many members the server has; some hurts hit only one of them.
    pub members: usize,
    /// Whether client processes can be kept from writing the store's files.
    pub files: bool,
}

impl Means {
    /// The faults that this store allows.
    #[must_use]
    pub fn of(subject: &dyn Subject, options: &Options, capabilities: Capabilities) -> Self {
        let saboteur = subject.saboteur();
        let can = |hurt: &Hurt| saboteur.as_ref().is_some_and(|saboteur| saboteur.can(*hurt));
        let (clients, processes) = match (&options.client, subject.environment()) {
            (Some(_), _) => (0, options.clients + options.processes),
            (None, Some(_)) => (options.clients, options.processes),
            (None, None) => (options.clients, 0),
        };
        Self {
            clients,
            processes,
            // Another program's lock is not known to the store.
            names: if capabilities.listing && options.client.is_none() { options.names } else { 0 },
            methods: methods(capabilities),
            hurts: Hurt::ALL.into_iter().filter(can).collect(),
            members: saboteur.as_ref().map_or(1, |saboteur| saboteur.members()),
            // The signal that comes with it ends a program that does not expect it.
            files: subject.writes_files() && options.client.is_none(),
        }
    }
}

fn methods(can: Capabilities) -> Vec<Method> {
    use Method::{Acquire, Convert, Latch, Release, Renew, TryAcquire, TryAcquireAll, Withdraw};
    // Renewals more often: they are what a hold depends on.
    let mut methods = vec![TryAcquire, Acquire, Renew, Renew, Renew, Release, Withdraw];
    if can.shared {
        methods.extend([Convert, Convert]);
    }
    if can.together {
        methods.push(TryAcquireAll);
    }
    if can.latches {
        methods.push(Latch);
    }
    methods
}

/// The faults of one round: some tracks beside each other, on each one fault after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// A track for the store, then one for each client, then one for each process.
    pub tracks: Vec<(Track, Vec<Planned>)>,
}

/// Whom the faults of a track hurt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// The store, and thereby all clients.
    Store,
    /// This client.
    Client(usize),
    /// This process.
    Process(usize),
}

/// A fault that is to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When, after the beginning of the round.
    pub at: Duration,
    /// How long it lasts, where it has a length.
    pub lasts: Duration,
    /// The fault itself.
    pub what: AnyFault,
    /// A second fault, injected halfway: of the network, or of another member of the ensemble.
    pub second: Option<Injection>,
}

/// A fault of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyFault {
    /// The server is hurt.
    Server(Injection),
    /// This lock is released by force.
    Force(usize),
    /// Every such request of the client meets this.
    Request(Method, Fault),
    /// Nothing gets through to the store and back for this client until it is over.
    Hang,
    /// The process stands still.
    Freeze,
    /// The process can open no file and no connection.
    NoFiles,
    /// The process can write no file beyond this many bytes.
    NoWrites(u64),
    /// The process is killed; another takes its place.
    Kill,
}

impl Schedule {
    /// The faults of one round. The same arguments give the same faults.
    #[must_use]
    pub fn of(options: &Options, round: u64, means: &Means) -> Self {
        let clients = (0..means.clients).map(Track::Client);
        let tracks =
            [Track::Store].into_iter().chain(clients).chain((0..means.processes).map(Track::Process));
        // A generator for each track, so that one more client leaves the others' faults as they are.
        let plan = |track| {
            let number = match track {
                Track::Store => 0,
                Track::Client(index) => 1 + 2 * index as u64,
                Track::Process(index) => 2 + 2 * index as u64,
            };
            (track, plan(track, mixed([options.seed, round, number]), options, means))
        };
        let planned = Self { tracks: tracks.map(plan).collect() };
        if options.left_out.is_empty() { planned } else { planned.without(&options.left_out) }
    }

    fn without(&self, left_out: &BTreeSet<usize>) -> Self {
        let kept = self.in_order().into_iter().enumerate().filter(|(place, _)| !left_out.contains(place));
        let mut tracks: Vec<_> = self.tracks.iter().map(|(track, _)| (*track, Vec::new())).collect();
        for (_, (track, planned)) in kept {
            tracks.iter_mut().filter(|(of, _)| *of == track).for_each(|(_, all)| all.push(planned.clone()));
        }
        Self { tracks }
    }

    /// How far the store's clock is set back in all.
    pub(super) fn set_back(&self) -> Duration {
        let back = |planned: &Planned| match planned.what {
            AnyFault::Server(Injection { hurt: Hurt::ClockBack, by, .. }) => by,
            _ => Duration::ZERO,
        };
        self.tracks.iter().flat_map(|(_, planned)| planned).map(back).sum()
    }

    /// All faults in the order of time.
    #[must_use]
    pub fn in_order(&self) -> Vec<(Track, Planned)> {
        let of_track = |(track, planned): &(Track, Vec<Planned>)| {
            let track = *track;
            planned.iter().cloned().map(move |planned| (track, planned)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.tracks.iter().flat_map(of_track).collect();
        all.sort_by_key(|(_, planned)| planned.at);
        all
    }
}

/// A seed of several numbers: each is spread by the multiplier of Knuth's MMIX generator, so that neighbours differ.
pub(super) fn mixed<const N: usize>(numbers: [u64; N]) -> Rng {
    const SPREAD: u64 = 6_364_136_223_846_793_005;
    let mix = |seed: u64, number: u64| (seed ^ number).wrapping_mul(SPREAD).rotate_left(29).wrapping_add(1);
    Rng::with_seed(numbers.into_iter().fold(0, mix))
}

fn plan(track: Track, mut rng: Rng, options: &Options, means: &Means) -> Vec<Planned> {
    let lease = options.lease;
    let mut planned = Vec::new();
    let mut at = between(&mut rng, lease / 4, lease);
    while at < options.round {
        let lasts = length(track, &mut rng, options, options.round.saturating_sub(at));
        let Some(what) = draw(track, &mut rng, lease, lasts, means) else { break };
        let second = second(what, &mut rng, lasts, means);
        planned.push(Planned { at, lasts, what, second });
        at += lasts + between(&mut rng, lease / 4, lease * 2);
    }
    planned
}

/// SQLite's log soon gets longer.
const ROOM: u64 = 256 * 1024;

/// How long a fault lasts, of the rest of the round.
///
/// One in four lasts longer than a lease and the allowance together, if there is time for it. Only such a fault reveals
/// a guard that does not notice its loss, or a wait that does not end, before the store is back: the judge allows for
/// what a shorter one delays. A process that stands still is excused for as long as it does.
fn length(track: Track, rng: &mut Rng, options: &Options, left: Duration) -> Duration {
    let lease = options.lease;
    if !matches!(track, Track::Process(_)) {
        let allowed = lease + options.allowance;
        let least = allowed + lease / 2;
        if rng.u8(..4) == 0 && least <= left {
            return between(rng, least, left.min(allowed + lease * 2));
        }
    }
    between(rng, lease / 10, lease * 5 / 2)
}

fn draw(track: Track, rng: &mut Rng, lease: Duration, lasts: Duration, means: &Means) -> Option<AnyFault> {
    Some(match track {
        Track::Store => {
            let kinds = means.hurts.len() + usize::from(means.names > 0);
            if kinds == 0 {
                return None;
            }
            match means.hurts.get(rng.usize(..kinds)) {
                Some(hurt) => AnyFault::Server(injection(*hurt, rng, lasts, means)),
                None => AnyFault::Force(rng.usize(..means.names)),
            }
        }
        Track::Client(_) if means.methods.is_empty() || rng.u8(..5) == 0 => AnyFault::Hang,
        Track::Client(_) => {
            let late = between(rng, lease / 20, lease * 3 / 2);
            let method = means.methods[rng.usize(..means.methods.len())];
            let fault = match rng.u8(..5) {
                0 => Fault::Refuse,
                1 => Fault::LoseReply,
                2 => Fault::DelayReply(late),
                // An acquisition is many requests, of which none comes after the client has gone away.
                _ if method == Method::Acquire => Fault::DelayRequest(late),
                _ => Fault::Straggle(late),
            };
            AnyFault::Request(method, fault)
        }
        Track::Process(_) => match rng.u8(..4) {
            0 => AnyFault::Kill,
            // All writes fail, or only those that make a file long, as on a disk that fills up.
            1 if means.files && rng.bool() => {
                AnyFault::NoWrites(if rng.bool() { 0 } else { rng.u64(..ROOM) })
            }
            1 => AnyFault::NoFiles,
            _ => AnyFault::Freeze,
        },
    })
}

/// The fault with its terms, for this long.
fn injection(hurt: Hurt, rng: &mut Rng, lasts: Duration, means: &Means) -> Injection {
    match hurt {
        Hurt::DelayRequests | Hurt::DelayReplies => hurt.by(lasts / 3),
        // A request and its answer take a good part of the fault.
        Hurt::Drip => hurt.by(lasts / 300),
        Hurt::PauseWrites | Hurt::ClockAhead | Hurt::ClockBack => hurt.by(lasts),
        hurt if Hurt::OF_ONE.contains(&hurt) => hurt.of(rng.usize(..means.members.max(1))),
        hurt => hurt.into(),
    }
}

/// A second fault for one in three of the server's that last. The server need not carry it out: it is one of the
/// network, or of another member after that of a first.
fn second(what: AnyFault, rng: &mut Rng, lasts: Duration, means: &Means) -> Option<Injection> {
    let AnyFault::Server(first) = what else { return None };
    let also_of_one: &[Hurt] = if Hurt::OF_ONE.contains(&first.hurt) { &Hurt::OF_ONE } else { &[] };
    let others = Hurt::NETWORK.iter().filter(|hurt| **hurt != first.hurt).chain(also_of_one);
    let others: Vec<_> = others.filter(|hurt| means.hurts.contains(hurt)).collect();
    if !first.hurt.lasts() || others.is_empty() || rng.u8(..3) != 0 {
        return None;
    }
    let second = injection(*others[rng.usize(..others.len())], rng, lasts, means);
    let is_of_same = Hurt::OF_ONE.contains(&second.hurt) && second.member == first.member;
    Some(if is_of_same { second.hurt.of((first.member + 1) % means.members.max(1)) } else { second })
}

/// To the millisecond, so that people can read it.
pub(super) fn between(rng: &mut Rng, least: Duration, most: Duration) -> Duration {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(rng.u64(millis(least)..=millis(most).max(millis(least))))
}

impl AnyFault {
    /// Its name in the figures.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Server(injection) => format!("server: {}", injection.hurt),
            Self::Force(_) => "forced release".into(),
            Self::Request(_, Fault::Refuse) => "requests refused".into(),
            Self::Request(_, Fault::LoseReply) => "replies lost".into(),
            Self::Request(_, Fault::DelayReply(_)) => "replies late".into(),
            Self::Request(_, Fault::DelayRequest(_) | Fault::Straggle(_)) => "requests late".into(),
            Self::Request(_, Fault::HoldBack) => "requests held back".into(),
            Self::Request(_, Fault::Stall(_)) => "requests in steps".into(),
            Self::Request(_, Fault::Hang) => "requests unanswered".into(),
            Self::Request(_, Fault::Fail) => "requests failed".into(),
            Self::Hang => "store hangs for a client".into(),
            Self::Freeze => "process frozen".into(),
            Self::NoFiles => "process without file descriptors".into(),
            Self::NoWrites(_) => "process that cannot write files".into(),
            Self::Kill => "process killed".into(),
        }
    }
}

impl fmt::Display for AnyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Server(injection) = self {
            return write!(f, "server: {injection}");
        }
        f.write_str(&self.kind())?;
        match self {
            Self::Request(method, Fault::DelayReply(by) | Fault::DelayRequest(by) | Fault::Straggle(by)) => {
                write!(f, " ({method:?}, by {by:?})")
            }
            Self::Request(method, _) => write!(f, " ({method:?})"),
            Self::Force(name) => write!(f, " of lock {name}"),
            Self::NoWrites(limit) => write!(f, " (beyond {limit} bytes)"),
            _ => Ok(()),
        }
    }
}
