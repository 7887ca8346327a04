//! The state of an attempt: the servers' answers so far, and the next step.

use super::{quorum::Quorum, voter::Vote};
use crate::connection::errors::Failure;
use std::time::Duration;
use tenure_core::Token;

/// The servers' answers to one attempt.
pub(crate) struct Tally {
    quorum: Quorum,
    voters: Vec<Stand>,
    /// The token of the second round, once a majority has voted for the claim.
    token: Option<Token>,
}

/// The state of one server.
#[derive(Debug)]
enum Stand {
    /// It has not answered.
    Open,
    Yes {
        token: Token,
        raised: bool,
    },
    No {
        /// The value of the holder's key.
        holder: Vec<u8>,
        expires_in: Option<Duration>,
        /// Whether a copy of the request may still come.
        resent: bool,
    },
    Silent(Failure),
    /// It was asked to raise the token.
    Raising,
    Raised,
    /// It has the claim's key, or had it, but cannot be part of the second round's majority.
    Apart,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Wait,
    /// Send the second round to these.
    Raise(Vec<usize>, Token),
    Granted(Token),
    /// A majority is no longer possible.
    Lost,
}

impl Tally {
    pub(crate) fn new(quorum: Quorum) -> Self {
        Self { quorum, voters: (0..quorum.servers).map(|_| Stand::Open).collect(), token: None }
    }

    pub(crate) fn voted(&mut self, place: usize, vote: Result<Vote, Failure>) {
        self.voters[place] = match vote {
            Ok(Vote::Yes { token, raised }) => Stand::Yes { token, raised },
            Ok(Vote::No { holder, expires_in, resent }) => Stand::No { holder, expires_in, resent },
            Err(silence) => Stand::Silent(silence),
        };
    }

    pub(crate) fn raised(&mut self, place: usize, answer: &Result<bool, Failure>) {
        self.voters[place] = if matches!(answer, Ok(true)) { Stand::Raised } else { Stand::Apart };
    }

    pub(crate) fn next(&mut self) -> NextStep {
        if let Some(token) =
            self.token.filter(|_| self.quorum.is_met(self.count(|it| matches!(it, Stand::Raised))))
        {
            return NextStep::Granted(token);
        }
        if self.quorum.is_beyond(self.count(Stand::is_out)) {
            return self.lost();
        }
        if self.token.is_none() && self.quorum.is_met(self.count(|it| matches!(it, Stand::Yes { .. }))) {
            self.token = self.greatest();
        }
        let Some(greatest) = self.token else { return NextStep::Wait };
        let mut places = Vec::new();
        for (place, voter) in self.voters.iter_mut().enumerate() {
            match voter {
                Stand::Yes { token, .. } if *token <= greatest => {
                    *voter = Stand::Raising;
                    places.push(place);
                }
                // It answered too late to count, and its counter must not go back.
                Stand::Yes { .. } => *voter = Stand::Apart,
                _ => {}
            }
        }
        match places.is_empty() {
            false => NextStep::Raise(places, greatest),
            true if self.quorum.is_beyond(self.count(Stand::is_out)) => self.lost(),
            true => NextStep::Wait,
        }
    }

    /// A majority is no longer possible. The reason, another holder, split votes or too few answers, is known once a
    /// majority has answered or no longer can. Until then it waits, because servers that are down often fail first. If
    /// their answers name different holders, the other servers decide whether one of them has a majority.
    fn lost(&self) -> NextStep {
        let silent = self.count(|voter| matches!(voter, Stand::Silent(_)));
        let all_answered = self.count(|voter| matches!(voter, Stand::Open)) == 0;
        let why = all_answered || self.is_held() || self.count(Stand::is_had) > 0;
        let known = self.quorum.is_met(self.answered()) && why || self.quorum.is_beyond(silent);
        if known { NextStep::Lost } else { NextStep::Wait }
    }

    /// The greatest token that was issued. A raised one takes precedence: the claim is being granted again, and keeps
    /// its token.
    fn greatest(&self) -> Option<Token> {
        let votes = self.voters.iter().filter_map(|voter| match voter {
            Stand::Yes { token, raised } => Some((*raised, *token)),
            _ => None,
        });
        votes.max().map(|(_, token)| token)
    }

    fn count(&self, is: impl Fn(&Stand) -> bool) -> usize {
        self.voters.iter().filter(|voter| is(voter)).count()
    }

    /// How many servers answered.
    pub(crate) fn answered(&self) -> usize {
        self.count(|voter| !matches!(voter, Stand::Open | Stand::Silent(_)))
    }

    /// The servers that may have any of the claim, now or later, and whether they are known to.
    pub(crate) fn to_end(&self) -> Vec<(usize, bool)> {
        let may_have = |(place, voter): (usize, &Stand)| match voter {
            Stand::No { resent: false, .. } => None,
            Stand::Silent(silence) if !silence.in_doubt => None,
            Stand::Open | Stand::Silent(_) | Stand::No { .. } => Some((place, false)),
            _ => Some((place, true)),
        };
        self.voters.iter().enumerate().filter_map(may_have).collect()
    }

    /// Whether several clients may be keeping each other out: none is known to have a majority.
    pub(crate) fn is_split(&self) -> bool {
        !self.is_held()
    }

    /// Whether one holder has a majority. The others voted for this claim because the holder's requests came later there,
    /// or its key was lost.
    fn is_held(&self) -> bool {
        let holders: Vec<&[u8]> = self.voters.iter().filter_map(Stand::holder).collect();
        let servers_of = |holder: &[u8]| holders.iter().filter(|it| **it == holder).count();
        holders.iter().any(|holder| self.quorum.is_met(servers_of(holder)))
    }

    /// When a majority will be free, as far as the servers tell.
    pub(crate) fn free_in(&self) -> Option<Duration> {
        let free_in = |voter: &Stand| match voter {
            Stand::No { expires_in, .. } => *expires_in,
            voter if voter.is_had() => Some(Duration::ZERO),
            _ => None,
        };
        self.quorum.when(self.voters.iter().map(free_in).collect())
    }

    /// Why servers gave no answer.
    pub(crate) fn silences(self) -> Vec<Failure> {
        let silence = |voter| match voter {
            Stand::Silent(silence) => Some(silence),
            _ => None,
        };
        self.voters.into_iter().filter_map(silence).collect()
    }
}

impl Stand {
    fn is_out(&self) -> bool {
        matches!(self, Self::No { .. } | Self::Silent(_) | Self::Apart)
    }

    fn holder(&self) -> Option<&[u8]> {
        match self {
            Self::No { holder, .. } => Some(holder),
            _ => None,
        }
    }

    fn is_had(&self) -> bool {
        matches!(self, Self::Yes { .. } | Self::Raising | Self::Raised | Self::Apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::StoreError;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn yes(number: u64) -> Vote {
        Vote::Yes { token: token(number), raised: false }
    }

    fn no(millis: u64) -> Vote {
        no_of("a", millis)
    }

    fn no_of(holder: &str, millis: u64) -> Vote {
        Vote::No { holder: holder.into(), expires_in: Some(Duration::from_millis(millis)), resent: false }
    }

    fn silent(in_doubt: bool) -> Failure {
        Failure { error: StoreError::unavailable("gone"), in_doubt }
    }

    fn tally(servers: usize) -> Tally {
        Tally::new(Quorum { servers })
    }

    #[test]
    fn greatest_token_is_raised_on_a_majority() {
        let mut tally = tally(5);
        tally.voted(3, Ok(yes(7)));
        tally.voted(0, Ok(yes(9)));
        assert_eq!(tally.next(), NextStep::Wait);
        tally.voted(1, Ok(yes(8)));
        assert_eq!(tally.next(), NextStep::Raise(vec![0, 1, 3], token(9)));
        tally.raised(0, &Ok(true));
        tally.raised(1, &Ok(true));
        assert_eq!(tally.next(), NextStep::Wait);
        // Server 3 has lost the key meanwhile; a late one takes its place.
        tally.raised(3, &Ok(false));
        tally.voted(2, Ok(yes(5)));
        assert_eq!(tally.next(), NextStep::Raise(vec![2], token(9)));
        tally.raised(2, &Ok(true));
        assert_eq!(tally.next(), NextStep::Granted(token(9)));
    }

    #[test]
    fn late_vote_with_a_greater_token_is_left_out() {
        let mut tally = tally(3);
        tally.voted(0, Ok(yes(7)));
        tally.voted(1, Ok(yes(6)));
        assert_eq!(tally.next(), NextStep::Raise(vec![0, 1], token(7)));
        tally.voted(2, Ok(yes(8)));
        assert_eq!(tally.next(), NextStep::Wait);
        tally.raised(0, &Err(silent(true)));
        assert_eq!(tally.next(), NextStep::Lost);
        assert_eq!(tally.to_end(), [(0, true), (1, true), (2, true)]);
    }

    #[test]
    fn repeated_claim_keeps_its_token() {
        let mut tally = tally(3);
        tally.voted(0, Ok(yes(9)));
        tally.voted(2, Ok(Vote::Yes { token: token(7), raised: true }));
        assert_eq!(tally.next(), NextStep::Raise(vec![2], token(7)));
        tally.voted(1, Ok(Vote::Yes { token: token(7), raised: true }));
        assert_eq!(tally.next(), NextStep::Raise(vec![1], token(7)));
        tally.raised(1, &Ok(true));
        tally.raised(2, &Ok(true));
        assert_eq!(tally.next(), NextStep::Granted(token(7)));
    }

    #[test]
    fn held_lock_is_not_reported_as_unavailable() {
        let mut tally = tally(5);
        for down in [1, 4] {
            tally.voted(down, Err(silent(false)));
        }
        for (place, vote) in [(0, no(300)), (2, yes(7))] {
            tally.voted(place, Ok(vote));
            assert_eq!(tally.next(), NextStep::Wait, "too few have answered yet");
        }
        tally.voted(3, Ok(no(300)));
        assert_eq!(tally.next(), NextStep::Lost);
        assert_eq!(tally.answered(), 3);
        let mut three = Tally::new(Quorum { servers: 3 });
        three.voted(0, Ok(no(300)));
        three.voted(1, Err(silent(true)));
        assert_eq!(three.next(), NextStep::Wait, "the third decides what it is");
        three.voted(2, Err(silent(true)));
        assert_eq!(three.next(), NextStep::Lost);
    }

    #[test]
    fn split_vote_is_ended_on_each_server_that_may_have_it() {
        let mut tally = tally(5);
        tally.voted(0, Ok(yes(7)));
        tally.voted(1, Ok(no(300)));
        // The first copy of that request may still come.
        let resent =
            Vote::No { holder: "b".into(), expires_in: Some(Duration::from_millis(200)), resent: true };
        tally.voted(2, Ok(resent));
        assert_eq!(tally.next(), NextStep::Wait);
        tally.voted(3, Err(silent(false)));
        assert_eq!(tally.next(), NextStep::Lost);
        assert!(tally.is_split());
        assert_eq!(tally.answered(), 3);
        assert_eq!(tally.to_end(), [(0, true), (2, false), (4, false)]);
        assert_eq!(tally.free_in(), Some(Duration::from_millis(300)));
        assert_eq!(tally.silences().len(), 1);
    }

    /// A release that one server has not heard of, and a withdrawal that another has not, look like two holders.
    #[test]
    fn different_holders_are_told_apart_by_the_last_answer() {
        for (last, split) in [
            (Ok(no_of("a", 300)), false),
            (Ok(no_of("c", 300)), true),
            (Ok(yes(7)), true),
            (Err(silent(true)), true),
        ] {
            let mut tally = tally(3);
            tally.voted(0, Ok(no_of("a", 300)));
            tally.voted(1, Ok(no_of("b", 300)));
            assert_eq!(tally.next(), NextStep::Wait);
            tally.voted(2, last);
            assert_eq!(tally.next(), NextStep::Lost);
            assert_eq!(tally.is_split(), split);
        }
    }

    #[test]
    fn vote_is_not_split_if_one_holder_has_a_majority() {
        for (third, split) in [("a", false), ("b", true)] {
            let mut tally = tally(5);
            for (place, vote) in
                [(0, no(300)), (1, yes(7)), (2, no(300)), (3, yes(8)), (4, no_of(third, 300))]
            {
                tally.voted(place, Ok(vote));
            }
            assert_eq!(tally.next(), NextStep::Lost);
            assert_eq!(tally.is_split(), split, "the third refusal is from {third}");
        }
    }
}
