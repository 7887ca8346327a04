//! A claim's node, and its changes.
//!
//! | file | what is in it |
//! |---|---|
//! | `card` | its data: the holder, for people |
//! | `contender` | its name: claim, mode and number |
//! | `order`, `names` | numbers that wrap; names of locks as names of nodes |

pub(crate) mod card;
pub(crate) mod contender;
pub(crate) mod names;
pub(crate) mod order;

use self::card::Card;
use futures_util::future::{BoxFuture, Shared};
use std::sync::Arc;
use tenure_core::{ClaimId, Liveness, Token};
use tokio_util::sync::CancellationToken;
use zookeeper_client::Error;

/// A claim's node, known to exist unless another client deletes it.
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) token: Token,
    pub(crate) held: Option<Liveness>,
    /// Cancelled when its removal is requested, before it is deleted.
    pub(crate) unwanted: CancellationToken,
    pub(crate) removal: Option<Removal>,
    /// Its data, unless it was downgraded.
    pub(crate) card: Card,
    pub(crate) conversion: Conversion,
}

/// The state of a change of mode.
#[derive(Default)]
pub(crate) struct Conversion {
    /// Held during a change.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// The node that may have replaced it already.
    pub(crate) renamed: Option<String>,
    /// Whether its data say that it holds as a reader.
    pub(crate) downgraded: bool,
    /// Whether a change was requested whose outcome is not known yet.
    pub(crate) unsettled: bool,
}

/// A removal on its way, to be awaited with `removal::finish`.
pub(crate) type Removal = Shared<BoxFuture<'static, Removed>>;

/// The outcome of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    /// It existed, and was deleted.
    Deleted,
    /// Another client had deleted it.
    Missing,
    /// The session has ended, and the node goes with it.
    SessionOver,
    /// The server refused.
    Refused(Error),
}

/// A grant whose node to watch.
pub(crate) struct Guarded {
    pub(crate) claim: ClaimId,
    pub(crate) path: String,
    pub(crate) liveness: Liveness,
    pub(crate) unwanted: CancellationToken,
}
