//! The suite as a test program of its own.

use crate::{
    Case, Subjects, cases,
    required::skip,
    suite::{Outcome, Tested},
    victim,
};
use futures_util::future::OptionFuture;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{future::Future, process::ExitCode, sync::Arc};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Semaphore,
};

/// How many cases run at once by default (`--test-threads`). Those that have a store for themselves wait most of the
/// time.
const TOGETHER: usize = 20;
/// How many of them at most share their store: these keep a processor busy.
const SHARING: usize = 12;

/// Runs the suite on these stores, as the `main` of a test program.
///
/// It takes the arguments that `cargo test` passes on (a filter, `--exact`, `--skip`, `--list`, `--test-threads`) and
/// prints what a test program prints; each case on each store is one test. `subjects` is also called in the processes
/// that the suite starts to be killed, so it should be quick: prepare a store in
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
    // With a filter, the next store may not be needed at all.
    let all = arguments.filter.is_none() && arguments.skip.is_empty();
    let next = |at: usize| tested.get(at + 1).filter(|_| all).cloned();
    let sharing = Arc::new(Semaphore::new(SHARING));
    let lanes = tested.iter().enumerate().map(|(at, tested)| {
        let mut shown = cases::all();
        shown.retain(|case| tested.shows(case));
        let turn = || Turn { tested: Arc::clone(tested), next: next(at), sharing: Arc::clone(&sharing) };
        shown.into_iter().map(|case| (case, turn())).collect()
    });
    let trial = |(case, turn): (Case, Turn)| {
        let (name, runtime) = (case.full_name(turn.tested.subject.name()), runtime.handle().clone());
        Trial::ignorable_test(name, move || completion(runtime.block_on(turn.run(case))))
    };
    let trials = in_order(lanes.collect()).into_iter().map(trial);
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    let mut absent = tested.iter().filter_map(|tested| Some((tested.subject.name(), tested.absent()?)));
    let skipped = absent.try_for_each(|(name, why)| skip(name, why));
    // Subjects may end servers when they are dropped, and may need the runtime for that.
    runtime.block_on(async move { drop(tested) });
    if let Err(why) = skipped {
        eprintln!("{why}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// A case's turn on a store.
struct Turn {
    tested: Arc<Tested>,
    /// The store whose turn is next. Servers take seconds to start; meanwhile this one's cases run.
    next: Option<Arc<Tested>>,
    /// A case that shares its store takes one permit of it.
    sharing: Arc<Semaphore>,
}

impl Turn {
    async fn run(self, case: Case) -> Outcome {
        let _permit = OptionFuture::from((!case.alone).then(|| self.sharing.acquire())).await;
        if let Some(next) = self.next {
            tokio::spawn(next.start());
        }
        self.tested.run(case).await
    }
}

/// The order of the cases. First come those that share their store, one store after the other, so that few servers are
/// busy at the same time. Then come those that need a store for themselves, of all stores in turn: each mostly waits,
/// and the others inject their faults meanwhile.
fn in_order<T>(lanes: Vec<Vec<(Case, T)>>) -> Vec<(Case, T)> {
    let mut numbered: Vec<_> = lanes
        .into_iter()
        .enumerate()
        .flat_map(|(lane, cases)| cases.into_iter().enumerate().map(move |(at, case)| (lane, at, case)))
        .collect();
    numbered.sort_by_key(|(lane, at, (case, _))| if case.alone { (1, *at, *lane) } else { (0, *lane, *at) });
    numbered.into_iter().map(|(.., case)| case).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// The order keeps the run short.
    #[test]
    fn lone_cases_come_last_and_interleave() {
        let lane =
            |store: &'static str| cases::all().into_iter().map(|case| (case, store)).collect::<Vec<_>>();
        let order = in_order(vec![lane("a"), lane("b"), lane("c")]);
        assert_eq!(order.len(), cases::all().len() * 3);
        let (shared, alone) = order.split_at(order.iter().position(|(case, _)| case.alone).unwrap());
        assert!(shared.is_sorted_by_key(|(_, store)| store), "one store after the other");
        assert!(alone.iter().all(|(case, _)| case.alone));
        let turns: Vec<&str> = alone.iter().map(|(_, store)| *store).collect();
        assert!(turns.chunks(3).all(|turn| turn == ["a", "b", "c"]), "in turn: {turns:?}");
        let names: HashSet<String> = order.iter().map(|(case, store)| case.full_name(store)).collect();
        assert_eq!(names.len(), order.len(), "each once");
    }
}
