//! How many there are, by which rules they go, what can happen, and what must never be.

/// How many nodes there are, and clients.
pub(crate) const NODES: usize = 3;
pub(crate) const CLIENTS: usize = 2;
/// The nodes' clocks: the least token that each issues.
pub(crate) const CLOCKS: [u8; NODES] = [1, 1, 3];

/// The algorithm's rules, and what the world is like. The default is the algorithm as it is, where clocks agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// How many attempts each client makes.
    pub(crate) attempts: [u8; CLIENTS],
    pub(crate) renewals: u8,
    pub(crate) majority: u32,
    /// A key outlives its holder's belief in it.
    pub(crate) clocks_agree: bool,
    /// Exclusion is checked although clocks do not agree.
    pub(crate) exclusion_anyway: bool,
    /// Leases run out, and holders release.
    pub(crate) ends: bool,
    /// How often a node may lose its data and come back at once.
    pub(crate) restarts_empty: u8,
    /// How many requests of the first round may be carried out twice. Those of the second may be at any time.
    pub(crate) duplicates: u8,
    /// The rule that this model omits.
    pub(crate) flaw: Option<Flaw>,
}

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The greatest token of the first round is granted.
    NoSecondRound,
    /// Raises the counter also where the claim's key is gone.
    RaisesAnywhere,
    /// A withdrawal also ends the keys of the claim's later attempts.
    UndoesAnyAttempt,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            attempts: [1, 1],
            renewals: 0,
            majority: 2,
            clocks_agree: true,
            exclusion_anyway: false,
            ends: true,
            restarts_empty: 0,
            duplicates: 0,
            flaw: None,
        }
    }
}

/// A broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    TwoHolders,
    TokenNotGreater,
}

/// An event.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "the fields are printed")]
pub(crate) enum Step {
    Begin { client: usize },
    Ask { client: usize, attempt: u8, node: usize, twice: bool },
    SecondRound { client: usize, without: Option<usize> },
    Raise { client: usize, attempt: u8, node: usize },
    Grant { client: usize },
    GiveUp { client: usize },
    Undo { client: usize, attempt: u8, node: usize },
    Renew { client: usize },
    Extend { client: usize, node: usize },
    Renewed { client: usize },
    Release { client: usize },
    LeaseOver { client: usize },
    Expire { node: usize },
    RestartEmpty { node: usize },
}
