//! A record that fits into columns.

use super::{Bell, Held, Mark, Record, StoreTime};
use crate::contract::{ClaimId, HolderInfo, Mode, Token};
use std::sync::Arc;

/// A record with at most one holder of the name, and at most one waiter, which wants it exclusively. A table has columns
/// for these, so single statements can grant, renew and release.
///
/// # Examples
///
/// ```
/// use tenure_core::record::{Plain, Record, StoreTime};
///
/// let plain = Plain { token: 7, ..Plain::default() };
/// let record = Record::from(plain.clone());
/// assert_eq!(record.plain(StoreTime::from_micros(1)), Some(plain));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plain {
    /// The token of the last grant, and so of the holder if there is one.
    pub token: u64,
    /// The holder of the name.
    pub holder: Option<PlainHolder>,
    /// In a store without a queue, the waiter that wants the name exclusively.
    pub awaited: Option<PlainWaiter>,
}

/// The waiter for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainWaiter {
    /// The claim that waits.
    pub claim: ClaimId,
    /// Until when its mark counts.
    pub until: StoreTime,
    /// The bell of its client, if it has one.
    pub bell: Option<Bell>,
}

/// The holder of a name. Its token is that of the [`Plain`] record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainHolder {
    /// The claim by which it holds the name.
    pub claim: ClaimId,
    /// How it holds the name.
    pub mode: Mode,
    /// Since when it has held the name.
    pub since: StoreTime,
    /// Until when it holds the name, unless renewed.
    pub until: StoreTime,
    /// Its description for people.
    pub info: Arc<HolderInfo>,
}

impl Record {
    /// The record without its expired parts, if columns are enough for the rest.
    #[must_use]
    pub fn plain(&self, now: StoreTime) -> Option<Plain> {
        let token = self.token;
        let (mut live, forced) = (self.live(now), self.forced.iter().any(|(_, until)| now < *until));
        let (holder, others) = (live.next(), live.next());
        let mark = self.mark.as_ref().filter(|mark| mark.stands(now));
        let fits = holder.is_none_or(|held| held.token.get() == token)
            && mark.is_none_or(Mark::is_alone)
            && others.is_none()
            && !forced
            && self.queue.is_empty();
        fits.then(|| Plain {
            token,
            holder: holder.map(|held| PlainHolder {
                claim: held.claim,
                mode: held.mode,
                since: held.since,
                until: held.until,
                info: Arc::clone(&held.holder),
            }),
            awaited: mark.map(|mark| PlainWaiter {
                claim: mark.claim(),
                until: mark.until(),
                bell: mark.bell(),
            }),
        })
    }

    /// When the name becomes idle without further requests; `now` if it is already: see [`is_idle`](Self::is_idle).
    #[must_use]
    pub fn idle_from(&self, now: StoreTime) -> StoreTime {
        let held = self.held.iter().map(|held| held.until);
        let forced = self.forced.iter().map(|(_, until)| *until);
        let mark = self.mark.as_ref().map(Mark::until);
        held.chain(forced).chain(mark).chain(self.queue.last()).fold(now, StoreTime::max)
    }
}

/// If the token is not valid, the name is free.
impl From<Plain> for Record {
    fn from(Plain { token, holder, awaited }: Plain) -> Self {
        let held = holder.zip(Token::new(token)).map(|(holder, token)| Held {
            claim: holder.claim,
            mode: holder.mode,
            token,
            since: holder.since,
            until: holder.until,
            holder: holder.info,
        });
        let mark = awaited.map(|PlainWaiter { claim, until, bell }| Mark::alone(claim, until, bell));
        Self { held: held.into_iter().collect(), mark, ..Self::after(token) }
    }
}
