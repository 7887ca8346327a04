//! The events of a history.

use super::{Stamp, mode::Noted};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use tenure_core::Mode;

/// One note, with its client and time.
///
/// Calls are noted before they are made, and returns after they came, so that notes are certainly true; only a
/// [`Holds`](What::Holds) has the time from before the guard was asked. A client with several tasks of its own gives each
/// a lane: `c1/1`, `c1/2`; a note of `c1` is then meant for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Stamp,
    /// The client that notes it. For a fault, its victim: a client, or [`STORE`](Self::STORE).
    pub client: String,
    /// The request, answer or deed.
    #[serde(flatten)]
    pub what: What,
}

impl Event {
    /// The `client` of a fault that hurts all clients.
    pub const STORE: &'static str = "store";

    /// Whether something noted of `whom` is meant for `client` as well.
    pub(super) fn means(whom: &str, client: &str) -> bool {
        let lane = || client.strip_prefix(whom).is_some_and(|rest| rest.starts_with('/'));
        whom == Self::STORE || whom == client || lane()
    }
}

/// A request, an answer or a deed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// An acquisition begins.
    Asks {
        /// Counts the acquisitions of this client.
        call: u64,
        /// The lock's name.
        name: String,
        /// Until when it has to end; `None` when it may wait for ever.
        by: Option<Stamp>,
    },
    /// It is made in a runtime of its own, which ends before the client is told what came of it.
    Elsewhere {
        /// Which acquisition.
        call: u64,
    },
    /// It succeeded. A claim is granted once; if its grant is handed on
    /// ([`Locks::with_succession`](tenure_core::Locks::with_succession)), each successor is noted in the same way, with
    /// the same claim and a token of its own.
    Granted {
        /// Which acquisition.
        call: u64,
        /// The lock's name.
        name: String,
        /// The claim's id.
        claim: String,
        /// How it is held.
        #[serde(with = "Noted")]
        mode: Mode,
        /// The fencing token; 0 if the client offers none.
        #[serde(default)]
        token: u64,
        /// Until when the guard believes in itself: [`Hold::deadline`](tenure_core::Hold::deadline). A client that
        /// offers no deadline believes [for ever](Stamp::NEVER).
        #[serde(default = "never")]
        until: Stamp,
        /// The lease that was asked for; of a session store, the session's timeout.
        lease: Duration,
        /// The [label](tenure_core::Lock::label) that was asked for; empty if there is none.
        label: String,
    },
    /// It did not, or its future was dropped.
    Ended {
        /// Which acquisition.
        call: u64,
        /// Why.
        why: String,
    },
    /// The guard was asked after this note's time, and said that it holds, and until when. If that had already passed,
    /// nothing excuses it.
    Holds {
        /// The claim's id.
        claim: String,
        /// The hold's token, which tells it from the others of its chain.
        #[serde(default)]
        token: u64,
        /// Until when.
        until: Stamp,
    },
    /// The lock is held in another mode from here on: before a downgrade is asked for, and once an upgrade was granted.
    Converted {
        /// The claim's id.
        claim: String,
        /// The hold's token.
        #[serde(default)]
        token: u64,
        /// How it is held now.
        #[serde(with = "Noted")]
        mode: Mode,
    },
    /// The guard said that the lock is lost. The recorder of a hold watches it until its release.
    Lost {
        /// The claim's id.
        claim: String,
        /// The hold's token.
        #[serde(default)]
        token: u64,
        /// The cause.
        cause: String,
    },
    /// The guard is about to be released or dropped.
    Releases {
        /// The claim's id.
        claim: String,
        /// The hold's token.
        #[serde(default)]
        token: u64,
    },
    /// The release returned.
    Released {
        /// The claim's id.
        claim: String,
        /// The hold's token.
        #[serde(default)]
        token: u64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The resource let this client read.
    Reads {
        /// The lock's name, and the resource's.
        name: String,
        /// The token that was shown.
        token: u64,
        /// The value read.
        value: u64,
    },
    /// The resource took this client's write.
    Writes {
        /// The lock's name, and the resource's.
        name: String,
        /// The token that was shown.
        token: u64,
        /// The value on which the new one is based.
        over: u64,
        /// The new value.
        value: u64,
    },
    /// The resource refused this client's token.
    Refused {
        /// The lock's name, and the resource's.
        name: String,
        /// The token that was shown.
        token: u64,
        /// The greatest that the resource has seen.
        greatest: u64,
    },
    /// A latch of which this client is every party told how many are missing.
    Looked {
        /// The latch's name.
        name: String,
        /// When the first party was about to count down.
        since: Stamp,
        /// How many parties it has.
        of: u32,
        /// How many had begun to count down.
        begun: u32,
        /// How many of them had been told that they are counted.
        sure: u32,
        /// How many are missing.
        missing: u32,
    },
    /// The runtime in which the client began has ended; what it was granted there it goes on holding in another.
    RuntimeEnded,
    /// The client is about to close its locks.
    Closes,
    /// They are closed.
    Closed,
    /// A fault begins.
    Fault {
        /// Tells faults apart.
        fault: u64,
        /// The kind of fault, for people and for figures.
        kind: String,
        /// Its effect on the contract.
        effect: Effect,
    },
    /// By now a replica has taken its master's place: since the fault began, the store may have forgotten what it granted.
    FailedOver {
        /// Which fault.
        fault: u64,
    },
    /// A fault is over.
    Healed {
        /// Which.
        fault: u64,
    },
    /// All had ended, and more than a lease later the lock still could not be had.
    Leaked {
        /// The lock's name.
        name: String,
        /// Its holders, as the store lists them.
        holders: String,
    },
    /// Every fault is over, every client was told to end and had its time to. What is still open now hangs.
    Over,
}

const fn never() -> Stamp {
    Stamp::NEVER
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The lock was held until then.
    Released,
    /// It was not: [`Error::Lost`](tenure_core::Error::Lost) with this cause.
    Lost(String),
    /// It failed, so its effect is unknown.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released => f.write_str("it was held until then"),
            Self::Lost(cause) => write!(f, "it was lost, {cause}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// An effect of a fault that the contract allows for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: every clause holds throughout.
    #[default]
    None,
    /// The store may end grants before their lease, of one name or of all. Their holders believe in them until the
    /// deadline that they had (clause F4), and may meet a successor until then.
    Forgets {
        /// Which name; all when `None`.
        name: Option<String>,
    },
    /// The store may end grants of all names in the same way, but keeps everything else, such as latches.
    EndsLeases,
    /// The client stands still: it notices nothing until the fault is over.
    Stops,
    /// The client is dead from here on.
    Kills,
}
