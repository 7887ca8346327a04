//! Which events are about a name, and how they are put into words.

use super::{Event, History, Stamp, What, mode::as_what, stamp::Span};
use std::collections::HashSet;

/// Which notes are about a name: those of its claims and acquisitions too.
pub(super) struct About<'a> {
    name: &'a str,
    claims: HashSet<&'a str>,
    calls: HashSet<(&'a str, u64)>,
}

impl<'a> About<'a> {
    pub(super) fn of(history: &'a History, name: &'a str) -> Self {
        let mut about = Self { name, claims: HashSet::new(), calls: HashSet::new() };
        for event in history.events() {
            match &event.what {
                What::Granted { name: of, claim, .. } if of == name => {
                    about.claims.insert(claim);
                }
                What::Asks { call, name: of, .. } if of == name => {
                    about.calls.insert((&event.client, *call));
                }
                _ => {}
            }
        }
        about
    }

    pub(super) fn concerns(&self, event: &Event) -> bool {
        match &event.what {
            What::Asks { name, .. }
            | What::Granted { name, .. }
            | What::Reads { name, .. }
            | What::Writes { name, .. }
            | What::Refused { name, .. }
            | What::Looked { name, .. }
            | What::Leaked { name, .. } => name == self.name,
            What::Elsewhere { call } | What::Ended { call, .. } => {
                self.calls.contains(&(event.client.as_str(), *call))
            }
            What::Holds { claim, .. }
            | What::Converted { claim, .. }
            | What::Lost { claim, .. }
            | What::Releases { claim, .. }
            | What::Released { claim, .. } => self.claims.contains(claim.as_str()),
            What::RuntimeEnded
            | What::Closes
            | What::Closed
            | What::Fault { .. }
            | What::FailedOver { .. }
            | What::Healed { .. }
            | What::Over => true,
        }
    }

    /// The note in words, unless it is one of those that the tracks show well enough.
    pub(super) fn words(event: &Event, at_the_resource: bool) -> Option<String> {
        Some(match &event.what {
            What::Asks { by: Some(by), .. } => format!("asks, for {} at most", Span(by.since(event.at))),
            What::Asks { by: None, .. } => "asks, and waits as long as it takes".to_owned(),
            What::Elsewhere { .. } => "in a runtime that ends".to_owned(),
            What::Granted { mode, token, until: Stamp::NEVER, .. } => {
                format!("is granted it{}, token {token}, without a deadline", as_what(*mode))
            }
            What::Granted { mode, token, until, .. } => {
                let (as_what, long) = (as_what(*mode), Span(until.since(event.at)));
                format!("is granted it{as_what}, token {token}, and believes so for {long}")
            }
            What::Converted { mode, token, .. } => format!("holds it {mode} from here on, token {token}"),
            What::Looked { of, begun, sure, missing, .. } => {
                format!("is told that {missing} of {of} are missing; {begun} have begun, {sure} are counted")
            }
            What::Ended { why, .. } => format!("ends its wait: {why}"),
            What::Holds { token, until, .. } => {
                format!("still holds, token {token}, believes so for {}", Span(until.since(event.at)))
            }
            What::Lost { token, cause, .. } => format!("notices that token {token} is lost: {cause}"),
            What::Releases { token, .. } => format!("releases token {token}"),
            What::Released { token, outcome, .. } => {
                format!("hears of the release of token {token}: {outcome}")
            }
            What::Reads { token, value, .. } if at_the_resource => {
                format!("reads {value} with token {token}")
            }
            What::Writes { token, over, value, .. } if at_the_resource => {
                format!("writes {value} over {over} with token {token}")
            }
            What::Reads { .. } | What::Writes { .. } | What::Over => return None,
            What::Refused { token, greatest, .. } => {
                format!("is refused with token {token}: the resource has seen {greatest}")
            }
            What::Leaked { .. } => "still held, though every client has ended".to_owned(),
            What::RuntimeEnded => "goes on, though the runtime in which it began has ended".to_owned(),
            What::Closes => "closes its locks".to_owned(),
            What::Closed => "has closed its locks".to_owned(),
            What::Fault { kind, .. } => format!("FAULT begins: {kind}"),
            What::FailedOver { .. } => "a replica has taken its master's place".to_owned(),
            What::Healed { .. } => "fault ends".to_owned(),
        })
    }
}
