//! One case of the contract.

use crate::{Check, Form, Stage};
use std::{future::Future, pin::Pin, time::Duration};

/// One case: a part of the contract, and its proof.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The part of the contract: `exclusion`, `waiting`, …
    pub group: &'static str,
    /// The name of the case: `two_clients_exclude`.
    pub name: &'static str,
    /// Whether no other case of the same store may run at the same time, because this one disturbs the store itself.
    pub alone: bool,
    /// The clock on which it runs.
    pub clock: Clock,
    /// The form in which `Client::lock` locks a name in this case.
    pub(crate) form: Form,
    /// Whether it also runs with holders that share a name: readers and permits.
    pub(crate) shared: bool,
    /// The longest time that it may take.
    pub(crate) limit: Duration,
    pub(crate) run: for<'a> fn(&'a Stage) -> Running<'a>,
}

/// The clock that a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The virtual clock for a store that can follow it, else the wall clock.
    Either,
    /// The virtual clock: `tenure-core` alone decides the case, whichever store is below.
    Virtual,
    /// The wall clock: the case has threads or runtimes of its own.
    Wall,
}

/// A case in progress.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Check> + Send + 'a>>;

/// The default limit of a case: far longer than any working one takes, even those of hundreds of requests on a store
/// whose disk is busy.
const LIMIT: Duration = Duration::from_mins(10);

impl Case {
    pub(crate) const fn new(
        group: &'static str,
        name: &'static str,
        run: for<'a> fn(&'a Stage) -> Running<'a>,
    ) -> Self {
        Self {
            group,
            name,
            alone: false,
            clock: Clock::Either,
            form: Form::Lock,
            shared: false,
            limit: LIMIT,
            run,
        }
    }

    /// Gives the case the store for itself, because it disturbs the store or keeps it very busy.
    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Runs the case only in virtual time, because `tenure-core` alone decides it.
    pub(crate) const fn policy(self) -> Self {
        Self { clock: Clock::Virtual, ..self }
    }

    /// Runs the case on the wall clock everywhere, because it has threads or runtimes of its own.
    pub(crate) const fn threads(self) -> Self {
        Self { clock: Clock::Wall, ..self }
    }

    /// Also runs the case for readers and permits.
    pub(crate) const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Makes this case in another form of locks, in a group of its own.
    pub(crate) const fn in_form(self, group: &'static str, form: Form) -> Self {
        Self { group, form, ..self }
    }

    /// Returns the test's name: `redis::exclusion::two_clients_exclude`.
    #[must_use]
    pub fn full_name(&self, subject: &str) -> String {
        format!("{subject}::{}::{}", self.group, self.name)
    }
}

/// The cases of a group, each named after its function.
macro_rules! cases {
    ($group:literal: $($case:ident $(.$with:ident())*),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[
            $($crate::case::Case::new($group, stringify!($case), |stage| Box::pin($case(stage)))$(.$with())*),+
        ];
    };
}

pub(crate) use cases;
