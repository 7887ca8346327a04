//! The suite as a test program of its own.

use crate::{
    Case, Subjects, cases,
    suite::{Outcome, Tested},
    victim,
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{future::Future, process::ExitCode, sync::Arc};
use tokio::runtime::{Builder, Runtime};

/// How many cases run at once unless `--test-threads` says otherwise. Most of them sleep.
const TOGETHER: usize = 10;

/// The `main` of a test program that runs the suite on these stores.
///
/// It takes the arguments that `cargo test` passes on (a filter, `--exact`, `--skip`, `--list`, `--test-threads`) and
/// prints what a test program prints; each case on each store is one test. `subjects` is also called in the processes
/// that the suite starts to be killed, so it should do nothing that takes long: a store is prepared in
/// [`Subject::start`](crate::Subject::start).
///
/// # Examples
///
/// `tests/conformance.rs`, with `harness = false` for it in `Cargo.toml`:
///
/// ```no_run
/// # use tenure_conformance::{BoxError, Subject, Subjects, async_trait};
/// # use std::{process::ExitCode, sync::Arc};
/// # struct MyStore;
/// # #[async_trait]
/// # impl Subject for MyStore {
/// #     fn name(&self) -> &str { "mine" }
/// #     async fn backend(&self) -> Result<Arc<dyn tenure_core::Backend>, BoxError> { unimplemented!() }
/// # }
/// fn main() -> ExitCode {
///     tenure_conformance::main(|| async { Subjects::new().with(MyStore) })
/// }
/// ```
pub fn main<Making>(subjects: impl FnOnce() -> Making) -> ExitCode
where
    Making: Future<Output = Subjects>,
{
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime for the suite: {error}");
            return ExitCode::FAILURE;
        }
    };
    if victim::is_victim() {
        runtime.block_on(victim::play_victim_if_asked(subjects));
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(TOGETHER);
    let tested = Tested::all(runtime.block_on(subjects()));
    // One store after the other, so that few servers work at the same time.
    let trials = tested.iter().flat_map(|tested| {
        let trial = |case: Case| {
            let (name, tested) = (case.full_name(tested.subject.name()), Arc::clone(tested));
            let runtime = runtime.handle().clone();
            Trial::ignorable_test(name, move || completion(runtime.block_on(tested.run(case))))
        };
        let shown = cases::all().into_iter().filter(|case| tested.subject.shows(case.group));
        shown.map(trial).collect::<Vec<_>>()
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    // Subjects may end servers when they are dropped, and may need the runtime for that.
    runtime.block_on(async move { drop(tested) });
    conclusion.exit_code()
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().build()
}

fn completion(outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Outcome::Passed => Ok(Completion::Completed),
        Outcome::Ignored(why) => Ok(Completion::ignored_with(why)),
        Outcome::Failed(what) => Err(what.into()),
    }
}
