//! How a violation is drawn.

use crate::script::{Script, claim};
use tenure_conformance::judge::{Broken, Effect, History, Judge, What};

/// A client whose renewals were delayed past its lease cleans up behind itself, in a store that does not compare the
/// claim: it releases its successor, and a third one comes in.
fn careless_release() -> History {
    let mut script = Script::default();
    script.asks(0, "c1/1", None);
    script.granted(2, "c1/1", 17, 290).asks(20, "c2/1", Some(2020));
    script.asks(150, "p3/2", None);
    script.fault(80, 320, "c1", "renewals arrive 400 ms late", Effect::None);
    script.note(5, "c1/1", What::Reads { name: "stock".into(), token: 17, value: 4 });
    script.note(40, "c1/1", What::Writes { name: "stock".into(), token: 17, over: 4, value: 5 });
    script.lost(291, "c1/1", 17);
    script.granted_as(301, "c2/1", 2, claim(18), 18, 598);
    script.note(303, "c2/1", What::Reads { name: "stock".into(), token: 18, value: 5 });
    script.releases(331, "c1/1", 17);
    script.granted_as(334, "p3/2", 3, claim(19), 19, 631);
    script.note(340, "p3/2", What::Reads { name: "stock".into(), token: 19, value: 5 });
    script.note(371, "c2/1", What::Refused { name: "stock".into(), token: 18, greatest: 19 });
    script.note(390, "p3/2", What::Writes { name: "stock".into(), token: 19, over: 5, value: 6 });
    script.note(402, "c2/1", What::Lost { claim: claim(18), token: 18, cause: "taken_over".into() });
    script.releases(440, "p3/2", 19);
    script.history()
}

#[test]
fn as_text() {
    let history = careless_release();
    let violations = Judge::new().judge(&history);
    let broken: Vec<_> = violations.iter().map(|violation| violation.broken).collect();
    assert_eq!(broken, [Broken::TwoHolders, Broken::LostEarly]);
    insta::assert_snapshot!(violations[0].timeline(&history));
}

#[test]
fn drawing_shows_waiter_and_wipe() {
    let mut script = Script::default();
    script.fault(1000, 4000, "store", "restarted empty", Effect::Forgets { name: None });
    script.asks(0, "c1/1", Some(2000));
    script.note(9000, "store", What::Over);
    let history = script.history();
    let violations = Judge::new().judge(&history);
    insta::assert_snapshot!(violations[0].timeline(&history));
}
