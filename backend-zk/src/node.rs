//! A claim's node, and what becomes of it.

use crate::card::Card;
use futures_util::future::{BoxFuture, Shared};
use std::sync::Arc;
use tenure_core::{ClaimId, Liveness, Token};
use tokio_util::sync::CancellationToken;
use zookeeper_client::Error;

/// A claim's node, known to stand unless somebody else deletes it.
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) token: Token,
    pub(crate) held: Option<Liveness>,
    /// Whoever asks for its removal says so here, before it goes.
    pub(crate) unwanted: CancellationToken,
    pub(crate) removal: Option<Removal>,
    /// What stands in it unless it was downgraded.
    pub(crate) card: Card,
    pub(crate) conversion: Conversion,
}

/// What becomes of a node whose claim changes its mode.
#[derive(Default)]
pub(crate) struct Conversion {
    /// Held by who changes it.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The node that may have taken its place already.
    pub(crate) renamed: Option<String>,
    /// Whether its data say that it holds as a reader.
    pub(crate) downgraded: bool,
    /// Whether a change was asked for, and nobody knows yet whether it was made.
    pub(crate) unsettled: bool,
}

/// A removal on its way, to be awaited with `removal::finish`.
pub(crate) type Removal = Shared<BoxFuture<'static, Removed>>;

/// What became of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It stood, and was deleted.
    Deleted,
    /// Somebody else had deleted it.
    Missing,
    /// The session is over, and the node goes with it.
    SessionOver,
    /// The server does not let us.
    Refused(Error),
}

/// A grant whose node is to be watched.
pub(crate) struct Guarded {
    pub(crate) claim: ClaimId,
    pub(crate) path: String,
    pub(crate) liveness: Liveness,
    pub(crate) unwanted: CancellationToken,
}
