//! This client's waiters in queues, and the notices that they get there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tenure_core::{ClaimId, Token};
use tokio::sync::mpsc;

/// A notice to a waiter in a queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It holds the lock, with this token, since this moment of the server's clock.
    Turn { token: Token, at: Duration },
    /// The lock may be free after this time, and then it is the waiter's turn.
    Look { after: Duration },
}

/// This client's claims in queues.
#[derive(Clone, Default)]
pub(crate) struct QueuedClaims(Arc<Mutex<HashMap<ClaimId, mpsc::UnboundedSender<Notice>>>>);

impl QueuedClaims {
    fn claims(&self) -> MutexGuard<'_, HashMap<ClaimId, mpsc::UnboundedSender<Notice>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives notices for `claim`, as long as the return value is kept.
    pub(crate) fn wait(&self, claim: ClaimId) -> QueuedClaim {
        let (sender, notes) = mpsc::unbounded_channel();
        self.claims().insert(claim, sender);
        QueuedClaim { turns: self.clone(), claim, notes }
    }

    /// Passes on a message from this client's channel. A notice for a claim that no longer waits is ignored: the claim
    /// is being withdrawn.
    pub(crate) fn pass_on(&self, said: &[u8]) {
        let Some((claim, note)) = std::str::from_utf8(said).ok().and_then(read) else { return };
        if let Some(sender) = self.claims().get(&claim) {
            let _ = sender.send(note);
        }
    }
}

/// One claim in a queue.
pub(crate) struct QueuedClaim {
    turns: QueuedClaims,
    claim: ClaimId,
    notes: mpsc::UnboundedReceiver<Notice>,
}

impl QueuedClaim {
    /// Waits for its next notice.
    pub(crate) async fn note(&mut self) -> Notice {
        match self.notes.recv().await {
            Some(note) => note,
            // Another wait for the same claim has replaced this one.
            None => std::future::pending().await,
        }
    }

    /// Forgets the notices that came so far.
    pub(crate) fn forget(&mut self) {
        while self.notes.try_recv().is_ok() {}
    }
}

impl Drop for QueuedClaim {
    fn drop(&mut self) {
        self.notes.close();
        let mut claims = self.turns.claims();
        if claims.get(&self.claim).is_some_and(mpsc::UnboundedSender::is_closed) {
            claims.remove(&self.claim);
        }
    }
}

/// `turn CLAIM TOKEN MICROS` or `look CLAIM MILLIS`.
fn read(said: &str) -> Option<(ClaimId, Notice)> {
    let mut words = said.split(' ');
    let (word, claim) = (words.next()?, words.next()?.parse().ok()?);
    let mut number = || words.next()?.parse::<u64>().ok();
    let note = match word {
        "turn" => Notice::Turn { token: Token::new(number()?)?, at: Duration::from_micros(number()?) },
        "look" => Notice::Look { after: Duration::from_millis(number()?) },
        _ => return None,
    };
    Some((claim, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Any client may publish on a client's channel.
        #[test]
        fn notice_is_a_turn_only_with_token_and_time(
            said in ".*|(turn|look) CLAIM [0-9]{0,22}( [0-9]{0,22})?",
        ) {
            let claim = ClaimId::new();
            let said = said.replace("CLAIM", &claim.to_string());
            QueuedClaims::default().pass_on(said.as_bytes());
            let numbers = said.strip_prefix(&format!("turn {claim} ")).and_then(|rest| rest.split_once(' '));
            let numbers = numbers.and_then(|(token, at)| Some((token.parse().ok()?, at.parse().ok()?)));
            let turn = numbers.and_then(|(token, at): (u64, u64)| Some((Token::new(token)?, at)));
            let turn = turn.map(|(token, at)| Notice::Turn { token, at: Duration::from_micros(at) });
            let heard = read(&said).map(|(_, note)| note).filter(|note| matches!(note, Notice::Turn { .. }));
            proptest::prop_assert_eq!(heard, turn);
        }
    }

    #[tokio::test]
    async fn notices_reach_only_their_claim() {
        let (turns, one, other) = (QueuedClaims::default(), ClaimId::new(), ClaimId::new());
        let (mut first, mut second) = (turns.wait(one), turns.wait(other));
        turns.pass_on(format!("turn {other} 17 1700000000000001").as_bytes());
        turns.pass_on(format!("look {one} 900").as_bytes());
        for nonsense in ["", "turn", "turn me 1 2", "turn x 1"] {
            turns.pass_on(nonsense.as_bytes());
        }
        turns.pass_on(&[0xff]);
        let at = Duration::from_micros(1_700_000_000_000_001);
        assert_eq!(second.note().await, Notice::Turn { token: Token::new(17).unwrap(), at });
        assert_eq!(first.note().await, Notice::Look { after: Duration::from_millis(900) });
        for token in [18, 19] {
            turns.pass_on(format!("turn {other} {token} 1700000000000002").as_bytes());
        }
        second.forget();
        turns.pass_on(format!("look {other} 7").as_bytes());
        assert_eq!(second.note().await, Notice::Look { after: Duration::from_millis(7) });
        let again = turns.wait(one);
        drop(first);
        assert_eq!(turns.claims().len(), 2, "the later wait is kept");
        drop((again, second));
        assert_eq!(turns.claims().len(), 0);
    }
}
