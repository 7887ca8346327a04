//! The clauses, one request after the other.

use super::{
    tests::{MARK, acquire, claim, name, permits, start},
    *,
};

#[test]
fn grant_unknown_to_an_empty_record_is_forgotten() {
    let grant = acquire(&mut Record::default(), &claim(Mode::Exclusive, 1000), start()).unwrap();
    assert_eq!(Record::default().renew(&grant, start()), Renewal::Lost(LossCause::Forgotten));
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

/// The clock ends a reader's lease, another reader becomes a writer, and the clock is set right again.
#[test]
fn clock_set_back_restores_no_reader_beside_a_writer() {
    let mut record = Record::default();
    let [brief, other] = [1000, 9000].map(|lease| claim(Mode::Shared, lease));
    let reader = acquire(&mut record, &brief, start()).unwrap();
    let writer = acquire(&mut record, &other, start()).unwrap();
    let ahead = start() + Duration::from_secs(5);
    assert_eq!(record.convert(&writer, Mode::Exclusive, ahead), Conversion::Converted);
    assert_eq!(record.renew(&reader, start()), Renewal::Lost(LossCause::TakenOver));
}

/// An exclusive claim waits for all holders, any other for the first.
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
fn tokens_end_with_an_error() {
    let mut record = Record::after(Token::MAX.get());
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
    let refused = record.acquire(&claim(Mode::Exclusive, 1000), start(), Moment::now());
    assert!(refused.is_err(), "{refused:?}");
}
