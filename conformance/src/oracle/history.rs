//! The requests of two clients, and the store's answers.

use std::{fmt, time::Duration};
use tenure_core::{
    Claim, ClaimId, Conversion, Grant, LatchState, LatchStep, LossCause, Mode, Name, Release, StoreError,
    Token,
};

/// How many calls a history may have.
pub(super) const MOST: usize = 128;

/// All calls of both clients. Instants are numbered in the order in which they happened in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) calls: Vec<Call>,
    instants: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) request: Request,
    pub(super) sent: usize,
    /// `None` if there was no answer, or the client gave up before it.
    pub(super) answer: Option<(usize, Answer)>,
}

#[derive(Clone, Debug)]
pub(super) enum Request {
    /// One attempt.
    Try(Claim),
    TryAll(Vec<Claim>),
    /// Waits until it is granted.
    Wait(Claim),
    Release(Grant),
    Renew(Grant),
    Convert(Grant, Mode),
    Withdraw(Claim),
    Force(Name),
    Holders(Name),
    Waiting(Name),
    Latch(Name, LatchStep),
    /// No request: the lease of this length that the call `after` got has expired.
    Lapse {
        name: Name,
        lease: Duration,
        after: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Token and reserved tokens of each claim.
    Granted(Vec<(Token, u32)>),
    /// Token and reserved tokens of one claim, whose grant has only this lease until its first renewal.
    HandedOver(Token, u32, Duration),
    Busy,
    /// These names are not granted together.
    Apart,
    /// The holders of the name use another number of permits.
    Disagrees,
    /// Another error that asking again does not mend.
    Failed(String),
    Release(Release),
    Lost(LossCause),
    Conversion(Conversion),
    Holders(Vec<(Option<ClaimId>, Option<Token>, Mode)>),
    Waiting(Vec<ClaimId>),
    Latch(LatchState),
    Done,
}

impl Answer {
    pub(super) fn of(error: &StoreError) -> Self {
        let error = error.to_string();
        if error.contains("but the current holders") { Self::Disagrees } else { Self::Failed(error) }
    }
}

impl History {
    pub(super) fn begin(&mut self, client: usize, request: Request) -> usize {
        self.instants += 1;
        self.calls.push(Call { client, request, sent: self.instants, answer: None });
        self.calls.len() - 1
    }

    pub(super) fn end(&mut self, call: usize, answer: Answer) {
        self.instants += 1;
        self.calls[call].answer = Some((self.instants, answer));
    }

    /// A lease as short as this, which the answer to `after` told of, may be over at any time.
    pub(super) fn may_lapse(&mut self, name: Name, lease: Duration, after: usize) {
        let Call { client, sent, .. } = self.calls[after];
        let request = Request::Lapse { name, lease, after };
        self.calls.push(Call { client, request, sent, answer: None });
    }

    /// Whether a request that `which` accepts, and that may change this one's names or latch, was under way at the same
    /// time. In sessions, a forced release goes on after its answer: the server ends the holder's session when it can.
    pub(super) fn has_beside(
        &self,
        call: usize,
        in_sessions: bool,
        which: impl Fn(&Request) -> bool,
    ) -> bool {
        let Call { request, sent, answer, .. } = &self.calls[call];
        let until = answer.as_ref().map_or(usize::MAX, |(at, _)| *at);
        self.calls.iter().enumerate().any(|(index, beside)| {
            let goes_on = in_sessions && matches!(beside.request, Request::Force(_));
            let end = if goes_on { usize::MAX } else { self.end_of(beside) };
            let overlaps = beside.sent < until && end > *sent;
            index != call && overlaps && beside.request.meets(request) && which(&beside.request)
        })
    }

    /// Until when a request may take effect: until its answer, or until its claim was withdrawn.
    fn end_of(&self, call: &Call) -> usize {
        if let Some((at, _)) = call.answer {
            return at;
        }
        let withdrawn = |claim: &Claim| {
            let withdrawals = self.calls.iter().filter(
                |other| matches!(&other.request, Request::Withdraw(withdrawn) if withdrawn.id == claim.id),
            );
            withdrawals.filter_map(|other| other.answer.as_ref().map(|(at, _)| *at)).min()
        };
        let ends = call.request.wants().iter().map(withdrawn);
        ends.reduce(|one, two| one.zip(two).map(|(one, two)| one.max(two))).flatten().unwrap_or(usize::MAX)
    }

    /// The calls that were sent up to this instant, one a line. Claims have short names.
    pub(super) fn until(&self, instant: usize) -> String {
        let calls = || self.calls.iter().enumerate().filter(|(_, call)| call.sent <= instant);
        let line = |(number, call): (usize, &Call)| {
            let Call { client, request, sent, answer } = call;
            let answer = match answer {
                Some((at, answer)) => format!("{at}: {answer:?}"),
                None => "no answer".to_owned(),
            };
            format!("  #{number} client {client} at {sent}: {request} -> {answer}\n")
        };
        let mut lines: String = calls().map(line).collect();
        let claims = calls().flat_map(|(_, call)| call.request.claims()).enumerate();
        for (number, claim) in claims {
            lines = lines.replace(&claim.to_string(), &format!("c{number}"));
        }
        lines
    }
}

impl Request {
    /// The claims that want to hold a name.
    pub(super) fn wants(&self) -> &[Claim] {
        match self {
            Self::Try(claim) | Self::Wait(claim) => std::slice::from_ref(claim),
            Self::TryAll(claims) => claims,
            _ => &[],
        }
    }

    /// Whether a claim wants to hold a name beside others.
    pub(super) fn may_share(&self) -> bool {
        self.wants().iter().any(|claim| claim.mode != Mode::Exclusive)
    }

    /// Whether a claim's entry may come into the store, or leave it.
    pub(super) fn moves_entries(&self) -> bool {
        !matches!(self, Self::Renew(_) | Self::Lapse { .. })
    }

    /// Whether an exclusive claim waits.
    pub(super) fn waits_alone(&self) -> bool {
        matches!(self, Self::Wait(claim) if claim.mode == Mode::Exclusive)
    }

    /// The names whose holders or waiters it may change.
    fn changes(&self) -> Vec<&Name> {
        match self {
            Self::Release(grant) | Self::Renew(grant) | Self::Convert(grant, _) => vec![&grant.name],
            Self::Withdraw(Claim { name, .. }) | Self::Force(name) | Self::Lapse { name, .. } => vec![name],
            _ => self.wants().iter().map(|claim| &claim.name).collect(),
        }
    }

    /// Whether it may change what the other is about.
    fn meets(&self, other: &Self) -> bool {
        if let Self::Latch(latch, _) = other {
            return matches!(self, Self::Latch(name, _) if name == latch);
        }
        let about = match other {
            Self::Holders(name) | Self::Waiting(name) => vec![name],
            _ => other.changes(),
        };
        self.changes().iter().any(|name| about.contains(name))
    }

    fn claims(&self) -> Vec<&ClaimId> {
        match self {
            Self::Release(grant) | Self::Renew(grant) | Self::Convert(grant, _) => vec![&grant.claim],
            Self::Withdraw(claim) => vec![&claim.id],
            _ => self.wants().iter().map(|claim| &claim.id).collect(),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |f: &mut fmt::Formatter<'_>, verb: &str, claim: &Claim| {
            let Claim { id, name, mode, reserve, .. } = claim;
            write!(f, "{verb} {name} {mode} as {id}")?;
            if *reserve > 0 { write!(f, ", reserving {reserve}") } else { Ok(()) }
        };
        match self {
            Self::Try(claim) => show(f, "try", claim),
            Self::TryAll(claims) => {
                write!(f, "together: ")?;
                claims.iter().try_for_each(|claim| show(f, "try", claim).and_then(|()| write!(f, "; ")))
            }
            Self::Wait(claim) => show(f, "wait for", claim),
            Self::Release(Grant { name, claim, .. }) => write!(f, "release {name} of {claim}"),
            Self::Renew(Grant { name, claim, mode, lease, .. }) => {
                write!(f, "renew {name} of {claim}, held {mode}, for {lease:?}")
            }
            Self::Convert(Grant { name, claim, .. }, to) => write!(f, "hold {name} of {claim} {to}"),
            Self::Withdraw(Claim { name, id, .. }) => write!(f, "withdraw {id} from {name}"),
            Self::Force(name) => write!(f, "release {name} by force"),
            Self::Holders(name) => write!(f, "ask who holds {name}"),
            Self::Waiting(name) => write!(f, "ask who waits for {name}"),
            Self::Latch(name, step) => write!(f, "at latch {name}: {step:?}"),
            Self::Lapse { name, lease, after } => {
                write!(f, "the {lease:?} lease of #{after} at {name} expires")
            }
        }
    }
}
