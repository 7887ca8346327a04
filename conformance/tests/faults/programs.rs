//! Clients that are any program: small scripts.

use super::{InMemory, PATIENCE, shown};
use futures_util::future::join_all;
use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};
use tenure_conformance::{
    Check, Stop, Subject,
    faults::{Options, Outcome, run},
    judge::{Broken, Judge, Outcome as Released, What},
};
use tenure_core::Memory;

/// A client that answers with these branches of a `case`, which know `$name` and a directory `$all` that all share.
async fn clients(branches: &str, mut options: Options) -> Check<Outcome> {
    let directory = tempfile::tempdir().expect("a directory");
    let script = directory.path().join("client.sh");
    let lines = "all=$1\nwhile read -r verb name lease wait; do case $verb in";
    fs::write(&script, format!("{lines}\n{branches}\nesac; done\n")).expect("a script");
    let client = format!("sh {} {}", script.display(), directory.path().display());
    options.client = Some(client);
    let store: Arc<dyn Subject> = Arc::new(InMemory(Memory::new()));
    run(&store, &options, |_, _| {}).await
}

/// Short leases, so that faults are frequent; and patience, for busy machines.
fn frequent() -> Options {
    let mut options = Options::seeded(7).lasting(PATIENCE);
    (options.round, options.lease) = (Duration::from_secs(3), Duration::from_millis(300));
    options.allowance = Duration::from_secs(30);
    options
}

/// A run that goes on until something is broken.
async fn faulty(branches: &str) -> Check<Outcome> {
    clients(branches, frequent()).await
}

/// One round after the other, with another seed, until one of them shows it.
async fn until(shows: impl Fn(&Outcome) -> bool, branches: &str, options: Options) -> Outcome {
    let begun = Instant::now();
    let mut options = options.lasting(Duration::ZERO);
    loop {
        let outcome = clients(branches, options.clone()).await.expect("a run");
        assert!(outcome.violations.is_empty(), "{}", shown(&outcome));
        if shows(&outcome) {
            return outcome;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", outcome.figures);
        options.seed += 1;
    }
}

fn is_broken(outcome: &Outcome, broken: Broken) {
    let found = outcome.violations.iter().any(|violation| violation.broken == broken);
    assert!(found, "{}\n{}", outcome.figures, shown(outcome));
}

fn failed(outcome: Check<Outcome>) -> String {
    match outcome {
        Err(Stop::Failed(why)) => why,
        other => panic!("it went on: {other:?}"),
    }
}

/// The system unlocks a file whose process is killed.
const HONEST: &str = r#"
acquire) exec 9>>"$all/$name"
    if flock -w $((wait / 1000)) 9; then echo >>"$all/$name"; token=$(wc -l <"$all/$name"); echo held $token; else echo busy; fi;;
release) flock -u 9; echo released;;"#;

#[tokio::test(flavor = "multi_thread")]
async fn honest_program_passes_while_it_is_frozen_and_killed() {
    let shows = |outcome: &Outcome| {
        let met = |kind| outcome.figures.faults.contains_key(kind);
        outcome.figures.writes > 0 && met("process frozen") && met("process killed")
    };
    let outcome = until(shows, HONEST, frequent()).await;
    assert_eq!(Judge::not_offered(&outcome.history), ["deadline (clauses L1 and L5)"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_whose_tokens_fall_is_caught() {
    let falling = HONEST.replace("held $token", "held $((99999 - token))");
    is_broken(&faulty(&falling).await.expect("a run"), Broken::TokenDidNotRise);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_leaves_a_lock_held_is_caught() {
    let leaking =
        "acquire) mkdir \"$all/$name\" 2>/dev/null && echo held || echo busy;;\nrelease) echo released;;";
    is_broken(&faulty(leaking).await.expect("a run"), Broken::Leaked);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_never_answers_is_caught() {
    let mut options = frequent();
    // The client that looks for leaks is asked to wait for so long.
    options.allowance = Duration::from_secs(1);
    is_broken(&clients("never) ;;", options).await.expect("a run"), Broken::WaiterHung);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_dies_ends_the_run() {
    let why = failed(faulty("acquire) printf half; exit 3;;").await);
    assert!(why.contains("ended by itself: exit status: 3"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_line_ends_run() {
    let said = [
        "hello",
        "held seven",
        "released",
        "held; printf '\\377\\n'",
        "held; echo renewed $name soon",
        "held; echo lost other",
    ];
    let runs = said.map(|said| async move { (said, faulty(&format!("acquire) echo {said};;")).await) });
    for (said, outcome) in join_all(runs).await {
        let why = failed(outcome);
        assert!(why.contains("which is no answer"), "{said}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_cannot_be_started_is_named() {
    let mut options = Options::seeded(7);
    for (client, said) in
        [("no-such-program", "no-such-program"), ("sh {url}", "no URL"), ("", "does not start")]
    {
        options.client = Some(client.to_owned());
        let store: Arc<dyn Subject> = Arc::new(InMemory(Memory::new()));
        let why = failed(run(&store, &options, |_, _| {}).await);
        assert!(why.contains(said), "{why}");
    }
}

/// With leases so long that there is no fault.
#[tokio::test(flavor = "multi_thread")]
async fn program_lines_are_noted_on_arrival() {
    let mut options = frequent();
    (options.lease, options.round) = (Duration::from_secs(20), Duration::from_secs(10));
    (options.names, options.clients, options.processes) = (1, 1, 0);
    let once = r#"
acquire) now() { read -r up idle </proc/uptime; echo "${up%.*}${up#*.}0"; }
    if [ "$asked" ]; then echo error the store is full; else
    asked=1; echo held 7 $(now); sleep 1; past=$(now); sleep 0.2; echo renewed $name $past; echo lost $name forced; fi;;
release) echo lost $name again; echo lost;;"#;
    let shows = |outcome: &Outcome| outcome.figures.losses > 0 && outcome.figures.without > 0;
    let outcome = until(shows, once, options).await;
    let events = outcome.history.events().iter().filter(|event| event.client == "r0p1.1");
    // Events at the fence are drawn from the seed.
    let said = events.filter(|event| !matches!(event.what, What::Reads { .. } | What::Writes { .. }));
    let heard: Vec<_> = said.map(|event| (event.at, &event.what)).collect();
    let [first @ .., (_, What::Closes), (_, What::Closed)] = &heard[..] else { panic!("{heard:?}") };
    let [asks, granted, holds, lost, releases, released, again, ended, ..] = first else {
        panic!("{heard:?}")
    };
    assert!(matches!(asks.1, What::Asks { call: 1, by: None, .. }), "{asks:?}");
    let What::Granted { call: 1, token: 7, until, .. } = granted.1 else { panic!("{granted:?}") };
    assert!(*until <= granted.0 && granted.0.since(*until) < PATIENCE, "{granted:?}");
    // Heard after the deadline, it is noted as if it had been heard in time.
    assert!(matches!(holds.1, What::Holds { token: 7, until, .. } if *until == holds.0), "{holds:?}");
    assert!(matches!(lost.1, What::Lost { token: 7, cause, .. } if cause == "forced"), "{lost:?}");
    assert!(matches!(releases.1, What::Releases { token: 7, .. }), "{releases:?}");
    assert!(matches!(released.1, What::Released { outcome: Released::Lost(_), .. }), "{released:?}");
    assert!(matches!(again.1, What::Asks { call: 2, by: Some(_), .. }), "{again:?}");
    let full = "error the store is full";
    assert!(matches!(ended.1, What::Ended { call: 2, why } if why == full), "{ended:?}");
}
