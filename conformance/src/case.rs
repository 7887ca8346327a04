//! One case of the contract.

use crate::{Check, Form, Stage};
use std::{future::Future, pin::Pin, time::Duration};

/// One case: a part of the contract, and how it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The part of the contract: `exclusion`, `waiting`, …
    pub group: &'static str,
    /// What is shown: `basic_cycle`.
    pub name: &'static str,
    /// Whether no other case of the same store may run meanwhile, because this one disturbs the store itself.
    pub alone: bool,
    /// Whether no other case of any store may run meanwhile, because this one asserts a bound of well under a second.
    pub punctual: bool,
    /// What [`Client::lock`](crate::Client::lock) makes of a name in this case.
    pub form: Form,
    /// Whether it is shown once more of those who hold a name beside others: of readers, and of permits.
    pub(crate) shared: bool,
    /// How long it may take at most.
    pub(crate) limit: Duration,
    pub(crate) run: for<'a> fn(&'a Stage) -> Running<'a>,
}

/// A case on its way.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Check> + Send + 'a>>;

/// How long a case may take unless it says otherwise: far longer than any does that goes on.
const LIMIT: Duration = Duration::from_mins(5);

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
            punctual: false,
            form: Form::Lock,
            shared: false,
            limit: LIMIT,
            run,
        }
    }

    /// The same case, with the store for itself: because it disturbs the store, or keeps it very busy.
    pub(crate) const fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The same case, with the machine for itself: because its bound is so short that work beside it would break it.
    pub(crate) const fn punctual(self) -> Self {
        Self { punctual: true, ..self }
    }

    /// The same case, which is about readers and permits as well.
    pub(crate) const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The same case in another form of locks, in a group of its own.
    pub(crate) const fn in_form(self, group: &'static str, form: Form) -> Self {
        Self { group, form, ..self }
    }

    /// The test's name: `redis::exclusion::basic_cycle`.
    #[must_use]
    pub fn full_name(&self, subject: &str) -> String {
        format!("{subject}::{}::{}", self.group, self.name)
    }
}

/// The cases of a group, each named as its function.
macro_rules! cases {
    ($group:literal: $($case:ident $(.$with:ident())*),+ $(,)?) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[
            $($crate::case::Case::new($group, stringify!($case), |stage| Box::pin($case(stage)))$(.$with())*),+
        ];
    };
}

pub(crate) use cases;
