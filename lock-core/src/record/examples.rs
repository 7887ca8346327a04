//! The clauses, one request after the other.

use super::{
    tests::{MARK, MODES, acquire, claim, name, permits, start},
    *,
};

#[test]
fn a_holder_learns_of_a_forced_release() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    let grant = acquire(&mut record, &one, now).unwrap();
    assert_eq!(record.force_release(&name(), now).len(), 1);
    for _ in 0..2 {
        assert_eq!(record.release(&grant, now), Release::Lost(LossCause::Forced));
        assert_eq!(record.renew(&grant, now), Renewal::Lost(LossCause::Forced));
    }
    let later = now + Duration::from_secs(1);
    assert!(record.is_idle(later), "{record:?}");
    let second = acquire(&mut record, &other, later).unwrap();
    assert_eq!(record.release(&grant, later), Release::Lost(LossCause::TakenOver));
    assert_eq!(record.renew(&second, later + Duration::from_secs(1)), Renewal::Lost(LossCause::Expired));
    assert_eq!(Record::default().renew(&second, later), Renewal::Lost(LossCause::Forgotten));
}

/// A copy of the attempt comes after the force, and after the next holder.
#[test]
fn forced_claim_is_not_granted_again_while_its_holder_may_rely_on_it() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    let lost = acquire(&mut record, &one, now).unwrap();
    record.force_release(&name(), now);
    let next = acquire(&mut record, &other, now).unwrap();
    record.release(&next, now);
    assert!(record.acquire(&one, now, Moment::now()).unwrap_err().spends_claim());
    assert_eq!(record.renew(&lost, now), Renewal::Lost(LossCause::Forced));
    assert!(acquire(&mut record, &one, now + Duration::from_secs(1)).is_some());
}

/// Also when the one who took the name has gone again.
#[test]
fn whoever_held_a_name_alone_is_told_that_it_was_taken() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Shared, 1000));
    let lost = acquire(&mut record, &one, now).unwrap();
    let over = now + Duration::from_secs(1);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::Expired));
    let second = acquire(&mut record, &other, over).unwrap();
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
    record.release(&second, over);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
}

/// A later token beside others took nothing away.
#[test]
fn a_reader_whose_lease_is_over_is_taken_over_by_a_writer_alone() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Shared, 1000), claim(Mode::Shared, 9000));
    let lost = acquire(&mut record, &one, now).unwrap();
    let second = acquire(&mut record, &other, now).unwrap();
    let over = now + Duration::from_secs(1);
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::Expired));
    record.release(&second, over);
    acquire(&mut record, &claim(Mode::Exclusive, 1000), over).unwrap();
    assert_eq!(record.renew(&lost, over), Renewal::Lost(LossCause::TakenOver));
}

/// Who wants a name alone waits for all who share it, others for the first.
#[test]
fn whoever_is_refused_is_told_how_long_it_takes() {
    let (mut record, now) = (Record::default(), start());
    for lease in [3000, 9000, 5000] {
        acquire(&mut record, &claim(permits(1, 3), lease), now).unwrap();
    }
    let seconds = |mode| match record.clone().acquire(&claim(mode, 1000), now, Moment::now()) {
        Ok(Attempt::Busy { expires_in: Some(left) }) => left.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(seconds(Mode::Exclusive), 9);
    assert_eq!(seconds(permits(1, 3)), 3);
}

#[test]
fn a_lease_is_over_at_its_end_and_not_before() {
    let (mut record, now) = (Record::default(), start());
    let (one, other) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    let grant = acquire(&mut record, &one, now).unwrap();
    let last = now + Duration::from_micros(999_999);
    assert!(acquire(&mut record, &other, last).is_none());
    assert_eq!(record.clone().renew(&grant, last), Renewal::Renewed);
    assert!(acquire(&mut record, &other, now + Duration::from_secs(1)).is_some());
}

/// A request for the first lease may arrive after the lease was extended.
#[test]
fn a_lease_is_not_shortened_by_being_granted_again() {
    for mode in MODES {
        let (mut record, now) = (Record::default(), start());
        let claim = claim(mode, 1000);
        let grant = acquire(&mut record, &claim, now).unwrap();
        let longer = Grant { lease: Duration::from_secs(9), ..grant };
        assert_eq!(record.renew(&longer, now), Renewal::Renewed);
        assert_eq!(acquire(&mut record, &claim, now).map(|again| again.token), Some(longer.token));
        assert_eq!(record.holders(&name(), now)[0].left, Some(longer.lease));
        // Where less is left than was asked for, it lasts as long as a fresh one.
        let late = now + Duration::from_millis(8500);
        assert!(acquire(&mut record, &claim, late).is_some());
        assert_eq!(record.holders(&name(), late)[0].left, Some(claim.lease));
    }
}

#[test]
fn a_writer_that_waits_stops_new_readers() {
    let (mut record, now) = (Record::default(), start());
    let (reader, late, writer) =
        (claim(Mode::Shared, 9000), claim(Mode::Shared, 9000), claim(Mode::Exclusive, 9000));
    let grant = acquire(&mut record, &reader, now).unwrap();
    assert!(acquire(&mut record, &writer, now).is_none());
    record.leave_mark(&writer, now, MARK);
    assert!(acquire(&mut record, &late, now).is_none(), "past the writer");
    // A reader's mark would make the record forget the writer.
    record.leave_mark(&late, now, MARK);
    assert!(record.has_mark(writer.id, now) && !record.has_mark(late.id, now));
    assert!(!record.has_mark(writer.id, now + MARK));
    assert!(acquire(&mut record, &late, now).is_none(), "past the writer");
    assert!(acquire(&mut record, &reader, now).is_some(), "it holds the name already");
    assert_eq!(record.release(&grant, now), Release::Released { awaited: true });
    assert!(acquire(&mut record, &writer, now).is_some());
    assert_eq!(record.mark, None);
    // One that died keeps the readers out for no longer than its mark stands.
    let mut record = Record::default();
    record.leave_mark(&writer, now, MARK);
    assert!(acquire(&mut record, &late, now).is_none());
    assert!(acquire(&mut record, &late, now + MARK).is_some());
}

#[test]
fn a_dead_waiter_delays_the_others_for_as_long_as_its_place_lasts() {
    let (mut record, now) = (Record::default(), start());
    let (dead, next) = (claim(Mode::Exclusive, 1000), claim(Mode::Exclusive, 1000));
    record.join_queue(&dead, now);
    record.join_queue(&next, now + Duration::from_secs(2));
    let almost = StoreTime::from_micros((now + Record::PLACE).as_micros() - 1);
    assert!(acquire(&mut record, &next, almost).is_none());
    assert_eq!(record.next(almost), Some(dead.id));
    assert_eq!(record.next(now + Record::PLACE), Some(next.id));
    assert!(acquire(&mut record, &next, now + Record::PLACE).is_some());
    assert!(record.queue.is_empty(), "whoever is served forgets the dead");
}

#[test]
fn those_who_wait_are_told_in_order_and_since_when() {
    let (mut record, now) = (Record::default(), start());
    let waiters = [claim(Mode::Exclusive, 1000), claim(Mode::Shared, 1000), claim(permits(2, 3), 1000)];
    for (seconds, waiter) in (0..).zip(&waiters) {
        record.join_queue(waiter, now + Duration::from_secs(seconds));
    }
    let later = now + Duration::from_millis(2500);
    let told = record.waiting(&name(), later);
    let expected = waiters.each_ref().map(|waiter| (Some(waiter.id), waiter.mode, (*waiter.holder).clone()));
    let who: Vec<_> = told.iter().map(|waiter| (waiter.claim, waiter.mode, waiter.info.clone())).collect();
    assert_eq!(who, expected);
    let ages: Vec<_> = told.iter().filter_map(|waiter| waiter.age).collect();
    assert_eq!(ages, [2500, 1500, 500].map(Duration::from_millis));
    // A place that is renewed is still the same place.
    record.join_queue(&waiters[0], later);
    assert_eq!(record.waiting(&name(), later), told);
    let shown = |record: &Record| {
        let told = record.waiting(&name(), now + Duration::from_secs(4));
        told.iter().filter_map(|waiter| waiter.claim).collect::<Vec<_>>()
    };
    assert_eq!(shown(&record), [waiters[0].id, waiters[2].id], "nothing was heard of the second");
    record.withdraw(waiters[0].id);
    assert_eq!(shown(&record), [waiters[2].id]);
}

#[test]
fn whoever_is_woken_is_told_by_its_bell() {
    let now = start();
    let (holder, first, next) =
        (claim(Mode::Exclusive, 9000), claim(Mode::Exclusive, 9000), claim(Mode::Exclusive, 9000));
    let woken = |record: &Record, grant: &Grant| {
        let mut after = record.clone();
        after.release(grant, now);
        after.wakes(record, now).bell()
    };
    let mut record = Record::default();
    let grant = acquire(&mut record, &holder, now).unwrap();
    record.set_bell(first.id, Some(Bell(5)));
    assert_eq!(
        (woken(&record, &grant), record.rings(first.id, Bell(5), now)),
        (None, false),
        "it left no mark"
    );
    record.leave_mark(&first, now, MARK);
    assert_eq!(woken(&record, &grant), None);
    record.set_bell(first.id, Some(Bell(5)));
    record.set_bell(next.id, Some(Bell(6)));
    assert_eq!(woken(&record, &grant), Some(Bell(5)));
    assert!(record.rings(next.id, Bell(5), now), "another waits in the same process");
    assert!(!record.rings(next.id, Bell(6), now) && !record.rings(first.id, Bell(5), now + MARK));
    record.set_bell(first.id, None);
    assert_eq!(woken(&record, &grant), None);

    let mut record = Record::default();
    let grant = acquire(&mut record, &holder, now).unwrap();
    for (waiter, bell) in [(&first, Bell(5)), (&next, Bell(6))] {
        record.join_queue(waiter, now);
        record.set_bell(waiter.id, Some(bell));
    }
    assert_eq!(woken(&record, &grant), Some(Bell(5)));
    assert!(record.rings(next.id, Bell(6), now) && !record.rings(next.id, Bell(5), now));
    record.leave_queue(first.id);
    assert_eq!(woken(&record, &grant), Some(Bell(6)));
}

#[test]
fn those_who_disagree_about_permits_are_told() {
    let (mut record, now) = (Record::default(), start());
    acquire(&mut record, &claim(permits(1, 3), 1000), now).unwrap();
    let refused = record.acquire(&claim(permits(1, 4), 1000), now, Moment::now());
    let said = refused.unwrap_err().to_string();
    assert!(said.contains('3') && said.contains('4'), "{said}");
}

#[test]
fn tokens_end_with_an_error() {
    let mut record = Record::after(Token::MAX);
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
}
