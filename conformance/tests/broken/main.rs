//! The suite is able to fail: stores that are broken on purpose, each in one way, and the cases that catch it.

mod flawed;
mod records;
mod sessions;
mod wire;

use flawed::{Flaw, Flawed};
use futures_util::{StreamExt, future::join_all, stream};
use records::{BrokenRecords, RecordFlaw, Request};
use sessions::{SessionFlaw, Sessions};
use std::collections::HashSet;
use tenure_conformance::{Clock, Outcome, Subject, Subjects, run};

/// Random histories.
const ORACLE: &str = "oracle::readers_agree_with_record";
const ORACLE_OF_PERMITS: &str = "oracle::permits_agree_with_record";

/// Each flaw, and the cases that must see it.
const CAUGHT: &[(Flaw, &[&str])] = &[
    (
        Flaw::GrantsEverybody,
        &[
            "exclusion::two_clients_exclude",
            "exclusion::hundred_tasks_exclude",
            "waiting::try_is_one_attempt",
            "waiting::wait_is_bounded",
            "waiting::spurious_wakeup_rechecks",
            "reentrancy::owner_in_two_clients_excludes",
            "store::busy_tells_the_rest",
            ORACLE,
        ],
    ),
    (Flaw::RepeatsTokens, &["store::claim_is_idempotent", ORACLE]),
    (Flaw::CountsFromOne, &["tokens::increasing_after_wipe"]),
    (Flaw::ReservesNothing, &["store::reserved_tokens_are_nobody_elses"]),
    (
        Flaw::RenewsAnything,
        &[
            "loss::lost_on_takeover",
            "loss::stale_requests_harmless",
            "people::force_release_frees_and_notifies_holder",
            ORACLE,
        ],
    ),
    (Flaw::RenewsExpired, &["loss::stale_requests_harmless"]),
    (Flaw::ForgetsRenewals, &["lease::renewed_beyond_lease", "lease::extend_survives_original_lease"]),
    (Flaw::RenewsAnyMode, &["store::renewal_of_more_than_is_held_is_lost", ORACLE]),
    (Flaw::AnswersBackwards, &[ORACLE]),
    (
        Flaw::WithdrawsNothing,
        &[
            "waiting::cancel_at_every_await",
            "waiting::cancel_races_grant",
            "waiting::refused_claim_leaves_nothing",
            "waiting::grant_with_lost_reply_is_adopted",
            "release::close_withdraws_waiters",
            "people::waiting_lists_queue_in_order",
            ORACLE,
        ],
    ),
    (Flaw::WithdrawsAnyClaim, &["loss::stale_requests_harmless", ORACLE]),
    (Flaw::ReleasesAnyClaim, &["loss::release_after_loss_is_err", "loss::stale_requests_harmless", ORACLE]),
    (Flaw::ReleasesSilently, &["loss::release_after_loss_is_err", "loss::stale_requests_harmless", ORACLE]),
    (
        Flaw::KnowsNoClaim,
        &["waiting::grant_with_lost_reply_is_adopted", "store::claim_is_idempotent", ORACLE],
    ),
    (
        Flaw::KeepsForever,
        &["lease::expires_on_time", "lease::max_hold_ends", "store::shortest_lease_is_kept"],
    ),
    (
        Flaw::HalvesLeases,
        &["lease::expires_on_time", "lease::extend_survives_original_lease", "store::shortest_lease_is_kept"],
    ),
    (Flaw::EndsLeasesEarly, &["store::shortest_lease_is_kept"]),
    (Flaw::IgnoresCase, &["names::hostile_names"]),
    (Flaw::TrimsSpaces, &["names::hostile_names"]),
    (Flaw::CutsNames, &["names::long_names_no_collision"]),
    (Flaw::NormalizesPaths, &["names::hostile_names"]),
    (Flaw::SharesNamespaces, &["exclusion::namespaces_never_meet"]),
    (Flaw::LosesWakeups, &["waiting::wakes_on_release"]),
    (Flaw::SleepsThroughLeases, &["waiting::shortened_lease_is_noticed"]),
    (Flaw::ClosesForOthers, &["closing::other_clients_still_get_wakeups"]),
    (Flaw::ServesLastFirst, &["waiting::fair_across_clients"]),
    (Flaw::PrefersWhoWasHere, &["waiting::barging_bounded"]),
    (Flaw::ListsByPattern, &["people::list_by_prefix"]),
    (Flaw::TellsOfTheDead, &["people::holders_describes_grant"]),
    (Flaw::ForcesNothing, &["people::force_release_frees_and_notifies_holder", ORACLE]),
    (Flaw::ForgetsForcedClaims, &["store::forced_claim_is_not_granted_again"]),
    (Flaw::ForgetsLabels, &["people::label_shown"]),
    (Flaw::ShowsWaitersBackwards, &["people::waiting_lists_queue_in_order"]),
    (Flaw::ShowsHoldersAsWaiters, &["people::waiting_lists_queue_in_order"]),
    (
        Flaw::WritesBesideReaders,
        &["readers::writer_excludes", "exclusion_of_writers::two_clients_exclude", ORACLE],
    ),
    (Flaw::UpgradesAnybody, &["readers::failed_upgrade_keeps_read", ORACLE]),
    (Flaw::DowngradesByReleasing, &["readers::downgrade_keeps_lock", ORACLE]),
    (Flaw::CountsHoldersForPermits, &["permits::many_permits_all_or_none", ORACLE_OF_PERMITS]),
    (
        Flaw::AgreesOnAnyNumber,
        &[
            "permits::permit_count_mismatch_refused",
            "exclusion_by_permit::two_clients_exclude",
            ORACLE_OF_PERMITS,
        ],
    ),
    (Flaw::CountsPartiesTwice, &["latch::latch_outlives_its_parties", ORACLE]),
    (Flaw::CountsAnyNumber, &["latch::party_count_mismatch_refused", ORACLE]),
    (
        Flaw::GrantsWhatIsFree,
        &[
            "several::acquire_all_or_nothing",
            "several::all_free_in_one_request",
            "several::overlapping_sets_exclude",
            ORACLE,
        ],
    ),
    (Flaw::OpensForGood, &["latch::latch_opens_once", "latch::latch_names_differ"]),
    (
        Flaw::LetsInOneOfHundreds,
        &[
            "exclusion::held_lock_refuses_thousands_of_tries",
            "exclusion_of_writers::held_lock_refuses_thousands_of_tries",
            "exclusion_by_permit::held_lock_refuses_thousands_of_tries",
        ],
    ),
    (Flaw::LooksThenTakes, &["store::stalled_attempt_sees_who_came"]),
    (
        Flaw::LooksThenRenews,
        &["store::stalled_renewal_revives_nothing", "store::stalled_changes_touch_no_successor"],
    ),
    (Flaw::DatesGrantsLate, &["lease::stalled_answer_counts_from_send"]),
    (Flaw::DatesGrantsOnArrival, &["lease::delayed_answer_counts_from_send"]),
];

/// Each flaw of a store with sessions, and the case that must see it.
const CAUGHT_IN_SESSIONS: &[(SessionFlaw, &str)] = &[
    (SessionFlaw::BelievesForEver, "faults::connection_silent_past_lease"),
    (SessionFlaw::LivesInOneRuntime, "runtimes::held_while_the_executor_is_blocked"),
    (SessionFlaw::LivesInOneRuntime, "runtimes::renewed_when_the_first_runtime_ends"),
    (SessionFlaw::GrantsGhosts, "faults::dying_session_grants_nothing"),
    (SessionFlaw::GivesRemovalsUp, "store::unanswered_release_goes_on"),
    (SessionFlaw::IsNotHurt, "faults::connection_reset_mid_acquire"),
    (SessionFlaw::IsNotHurt, "faults::connection_reset_mid_release"),
    (SessionFlaw::IsNotHurt, "faults::reply_delayed_past_timeout"),
    (SessionFlaw::DatesProofsLate, "lease::delayed_proof_counts_from_send"),
];

/// Each flaw of a record store, the case that must see it, and the request that the message must name.
const CAUGHT_IN_RECORDS: &[(RecordFlaw, &str, &str)] = &[
    (RecordFlaw::ReadsFromCache, "read_sees_every_answered_swap", "read"),
    (RecordFlaw::KeepsEmptyTexts, "removed_key_is_absent", "read"),
    (RecordFlaw::SwapsAnyVersion, "old_version_swaps_nothing", "swap"),
    (RecordFlaw::RemovesAnyVersion, "old_version_swaps_nothing", "swap"),
    (RecordFlaw::CreatesOverText, "old_version_swaps_nothing", "swap"),
    (RecordFlaw::WritesOverAbsence, "old_version_swaps_nothing", "swap"),
    (RecordFlaw::SaysTrueAndWritesNothing, "old_version_swaps_nothing", "swap"),
    (RecordFlaw::SaysTrueAndWritesNothing, "one_of_many_swaps_is_carried_out", "swap"),
    (RecordFlaw::SaysFalseAndWrites, "one_of_many_swaps_is_carried_out", "swap"),
    (RecordFlaw::LooksThenSwaps, "one_of_many_swaps_is_carried_out", "swap"),
    (RecordFlaw::IgnoresCase, "keys_are_kept_byte_for_byte", "read"),
    (RecordFlaw::TrimsSpaces, "keys_are_kept_byte_for_byte", "read"),
    (RecordFlaw::CutsKeys, "keys_are_kept_byte_for_byte", "read"),
    (RecordFlaw::CutsTexts, "texts_are_kept_byte_for_byte", "read"),
    (RecordFlaw::ComparesTextsWithoutCase, "texts_are_kept_byte_for_byte", "swap"),
    (RecordFlaw::CountsSeconds, "read_tells_time_in_small_steps", "read"),
    (RecordFlaw::CountsMillis, "read_tells_time_in_small_steps", "read"),
    (RecordFlaw::StandsStill, "read_tells_time_in_small_steps", "read"),
    (RecordFlaw::TellsClientsClock, "read_tells_one_clock", "read"),
    (RecordFlaw::TellsTimesOfMembers, "read_tells_one_clock", "read or list"),
    (RecordFlaw::ListsWithAnotherClock, "read_tells_one_clock", "list"),
    (RecordFlaw::ReturnsAtOnce, "changed_waits_while_nothing_changes", "changed"),
    (RecordFlaw::WaitsForEver, "changed_waits_while_nothing_changes", "changed"),
    (RecordFlaw::WatchesFromBeginning, "changed_waits_while_nothing_changes", "changed"),
    (RecordFlaw::WatchesFromNow, "changed_ends_on_earlier_change", "changed"),
    (RecordFlaw::WatchesNothing, "changed_ends_on_change", "changed"),
    (RecordFlaw::WatchesWritesOnly, "changed_ends_on_change", "changed"),
    (RecordFlaw::ListsFirstPage, "list_is_complete", "list"),
    (RecordFlaw::ListsLastOfPageTwice, "list_is_complete", "list"),
    (RecordFlaw::ListsByPattern, "list_is_complete", "list"),
    (RecordFlaw::ListsWithoutCase, "list_is_complete", "list"),
    (RecordFlaw::ListsVersionsOfTheList, "list_is_complete", "list"),
    (RecordFlaw::ListsPagesOfSeveralRevisions, "list_shows_one_instant", "list"),
    (RecordFlaw::AnswersErrors(Request::Read), "unreachable_store_is_an_error", "read"),
    (RecordFlaw::AnswersErrors(Request::Swap), "unreachable_store_is_an_error", "swap"),
    (RecordFlaw::AnswersErrors(Request::List), "unreachable_store_is_an_error", "list"),
    (RecordFlaw::FailsForGood(Request::Read), "unreachable_store_is_an_error", "read"),
    (RecordFlaw::FailsForGood(Request::Swap), "unreachable_store_is_an_error", "swap"),
    (RecordFlaw::FailsForGood(Request::List), "unreachable_store_is_an_error", "list"),
    (RecordFlaw::AnswersErrors(Request::Swap), "requests_to_silent_server_end", "swap"),
    (RecordFlaw::HasNoTimeout(Request::Read), "requests_to_silent_server_end", "read"),
    (RecordFlaw::HasNoTimeout(Request::Swap), "requests_to_silent_server_end", "swap"),
    (RecordFlaw::HasNoTimeout(Request::List), "requests_to_silent_server_end", "list"),
    (RecordFlaw::WaitsForEver, "requests_to_silent_server_end", "changed"),
    (RecordFlaw::SendsSwapsAgain, "lost_answer_of_swap_is_not_false", "swap"),
];

#[tokio::test]
async fn record_store_flaw_is_caught_and_request_named() {
    let mut missed = Vec::new();
    for (flaw, case, request) in CAUGHT_IN_RECORDS {
        let (store, name) = (BrokenRecords::with(*flaw), format!("records::record_store::{case}"));
        let report = run(Subjects::new().with(store), &name, |_| {}).await;
        let said: Vec<_> = report.failures().map(|(_, said)| said).collect();
        match said[..] {
            [said] if request.split(" or ").any(|request| said.starts_with(&format!("`{request}`"))) => {}
            _ => missed.push(format!("{flaw:?} by {case}: {said:?}")),
        }
    }
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

#[tokio::test]
async fn sound_record_store_passes() {
    let store = BrokenRecords::with(RecordFlaw::None);
    let report = run(Subjects::new().with(store), "record_store::", |_| {}).await;
    let ignored: Vec<_> = report.ignored().collect();
    assert!(report.is_ok() && !report.entries.is_empty() && ignored.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sound_store_passes() {
    let report = run(Subjects::new().with(Flawed::with(Flaw::None)), "", |_| {}).await;
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flaw_is_caught() {
    let pairs = CAUGHT.iter().flat_map(|(flaw, cases)| cases.iter().map(|case| (*flaw, *case)));
    let lease = |(flaw, case)| async move {
        let seen = missed(Flawed::with(flaw), case).await;
        seen.map(|missed| format!("{flaw:?} by {missed}"))
    };
    let session = |(flaw, case): &'static (SessionFlaw, &'static str)| async move {
        let seen = missed(Sessions::with(*flaw), case).await;
        seen.map(|missed| format!("{flaw:?} by {missed}"))
    };
    // This one sees a sixth of a second, in two looks.
    let (late, sessions): (Vec<_>, Vec<_>) =
        CAUGHT_IN_SESSIONS.iter().partition(|(flaw, _)| *flaw == SessionFlaw::DatesProofsLate);
    let late: Vec<_> = stream::iter(late).then(session).collect().await;
    let (lease, session) =
        tokio::join!(join_all(pairs.map(lease)), join_all(sessions.into_iter().map(session)));
    let missed: Vec<String> = late.into_iter().chain(lease).chain(session).flatten().collect();
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

/// Policy cases run only in virtual time, so another case must catch each flaw of a store.
#[test]
fn store_flaw_is_caught_by_case_on_real_stores() {
    let on_stores: HashSet<String> = tenure_conformance::cases()
        .into_iter()
        .filter(|case| case.clock != Clock::Virtual)
        .map(|case| format!("{}::{}", case.group, case.name))
        .collect();
    for (flaw, cases) in CAUGHT {
        assert!(
            cases.iter().any(|case| on_stores.contains(*case)),
            "{flaw:?} is caught by policy cases alone"
        );
    }
}

/// The complaint if this case does not fail on the store.
async fn missed(subject: impl Subject, case: &str) -> Option<String> {
    let name = format!("{}::{case}", subject.name());
    let report = run(Subjects::new().with(subject), &name, |_| {}).await;
    match &report.entries[..] {
        [entry] if matches!(entry.outcome, Outcome::Failed(_)) => None,
        entries => Some(format!("{case}: {entries:?}")),
    }
}

/// The cases that see a flaw of a store with sessions pass where there is none.
#[tokio::test(flavor = "multi_thread")]
async fn sound_session_store_passes() {
    let cases = [
        "faults::connection_silent_past_lease",
        "store::unanswered_release_goes_on",
        "faults::dying_session",
        "faults::connection_reset",
        "faults::reply_delayed",
        "lease::delayed_proof",
        "exclusion::",
    ];
    let reports = join_all(cases.into_iter().map(|case| async move {
        let subject = Sessions::with(SessionFlaw::None);
        run(Subjects::new().with(subject), &format!("sessions::{case}"), |_| {}).await
    }));
    for report in reports.await {
        assert!(report.is_ok() && !report.entries.is_empty(), "{report}");
    }
}
