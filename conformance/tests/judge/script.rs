//! Histories written by hand.

use std::time::Duration;
use tenure_conformance::judge::{Effect, Event, History, Stamp, What};
use tenure_core::Mode;

/// Writes down what clients of the lock "stock" do, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    events: Vec<Event>,
    calls: u64,
}

pub(crate) const NAME: &str = "stock";
pub(crate) const LEASE: u64 = 300;

pub(crate) fn at(millis: u64) -> Stamp {
    Stamp::ZERO + Duration::from_millis(10_000 + millis)
}

pub(crate) fn claim(token: u64) -> String {
    format!("claim {token}")
}

/// All tasks of a client have the same label.
fn label(client: &str) -> String {
    client.split('/').next().unwrap_or_default().to_owned()
}

impl Script {
    pub(crate) fn note(&mut self, millis: u64, client: &str, what: What) -> &mut Self {
        self.events.push(Event { at: at(millis), client: client.to_owned(), what });
        self
    }

    pub(crate) fn asks(&mut self, millis: u64, client: &str, by: Option<u64>) -> u64 {
        self.calls += 1;
        self.note(millis, client, What::Asks { call: self.calls, name: NAME.into(), by: by.map(at) });
        self.calls
    }

    /// Granted with this token to the last asking client.
    pub(crate) fn granted(&mut self, millis: u64, client: &str, token: u64, until: u64) -> &mut Self {
        let (call, claim) = (self.calls, claim(token));
        self.granted_as(millis, client, call, claim, token, until)
    }

    pub(crate) fn granted_as(
        &mut self,
        millis: u64,
        client: &str,
        call: u64,
        claim: String,
        token: u64,
        until: u64,
    ) -> &mut Self {
        let (name, lease) = (NAME.to_owned(), Duration::from_millis(LEASE));
        let (mode, until) = (Mode::Exclusive, at(until));
        let label = label(client);
        self.note(millis, client, What::Granted { call, name, claim, mode, token, until, lease, label })
    }

    /// Granted in this mode to a client that asks at that moment, for a lease.
    pub(crate) fn joins(&mut self, millis: u64, client: &str, token: u64, mode: Mode) -> &mut Self {
        let call = self.asks(millis, client, None);
        self.granted_in(millis, client, call, token, mode)
    }

    /// Granted in this mode, for a lease.
    pub(crate) fn granted_in(
        &mut self,
        millis: u64,
        client: &str,
        call: u64,
        token: u64,
        mode: Mode,
    ) -> &mut Self {
        let (name, claim, lease) = (NAME.to_owned(), claim(token), Duration::from_millis(LEASE));
        let until = at(millis + LEASE);
        let label = label(client);
        self.note(millis, client, What::Granted { call, name, claim, mode, token, until, lease, label })
    }

    pub(crate) fn converted(&mut self, millis: u64, client: &str, token: u64, mode: Mode) -> &mut Self {
        self.note(millis, client, What::Converted { claim: claim(token), token, mode })
    }

    pub(crate) fn holds(&mut self, millis: u64, client: &str, token: u64, until: u64) -> &mut Self {
        self.note(millis, client, What::Holds { claim: claim(token), token, until: at(until) })
    }

    pub(crate) fn lost(&mut self, millis: u64, client: &str, token: u64) -> &mut Self {
        self.note(millis, client, What::Lost { claim: claim(token), token, cause: "expired".into() })
    }

    pub(crate) fn releases(&mut self, millis: u64, client: &str, token: u64) -> &mut Self {
        self.note(millis, client, What::Releases { claim: claim(token), token })
    }

    pub(crate) fn reads(&mut self, millis: u64, client: &str, token: u64, value: u64) -> &mut Self {
        self.note(millis, client, What::Reads { name: NAME.into(), token, value })
    }

    pub(crate) fn writes(&mut self, millis: u64, client: &str, token: u64, over: u64) -> &mut Self {
        self.note(millis, client, What::Writes { name: NAME.into(), token, over, value: over + 1 })
    }

    pub(crate) fn fault(&mut self, from: u64, to: u64, whom: &str, kind: &str, effect: Effect) -> &mut Self {
        self.note(from, whom, What::Fault { fault: from, kind: kind.into(), effect });
        self.note(to, whom, What::Healed { fault: from })
    }

    pub(crate) fn history(&self) -> History {
        self.events.clone().into()
    }
}
