//! Locks over a store of texts in memory, whose swaps collide, are sent twice, or get no answer.

use super::{change::PATIENCE, *};
use crate::{
    api::Locks,
    contract::{ClaimId, HolderInfo, LossCause, lease},
};
use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::time::timeout;

/// Texts in memory, on a clock of their own.
#[derive(Clone, Debug, Default)]
struct Texts(Arc<Kept>);

#[derive(Debug, Default)]
struct Kept {
    texts: Mutex<BTreeMap<String, String>>,
    /// Added to tokio's time, in microseconds since 1970.
    clock: AtomicU64,
    /// How many microseconds the clock was set back, until it is read anew.
    set_back: AtomicU64,
    /// No swap meets the version that was read.
    overtaken: AtomicBool,
    /// Each swap is sent twice, and the second answer told.
    resends: AtomicBool,
    /// Nothing is heard of these keys.
    hang: Mutex<Vec<String>>,
    /// How many microseconds a swap is on its way.
    way: AtomicU64,
    /// How many microseconds its answer is on its way.
    way_back: AtomicU64,
}

impl Texts {
    fn new() -> Self {
        let texts = Self::default();
        texts.0.clock.store(1_000_000_000, Ordering::Relaxed);
        texts
    }

    fn texts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stored(&self, text: Option<&String>) -> Stored<Option<String>> {
        let [clock, set_back] = [&self.0.clock, &self.0.set_back].map(|time| time.load(Ordering::Relaxed));
        let now = StoreTime::from_micros(clock + set_back);
        Stored { text: text.cloned(), version: text.cloned(), now }
    }

    fn keys(&self) -> Vec<String> {
        self.texts().keys().cloned().collect()
    }

    /// Time passes, here and in the store.
    async fn pass(&self, micros: u64) {
        if micros > 0 {
            self.0.clock.fetch_add(micros, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
    }
}

#[async_trait]
impl RecordStore for Texts {
    type Version = Option<String>;

    fn store(&self) -> &'static str {
        "texts"
    }

    async fn read(&self, key: &str) -> Result<Stored<Self::Version>, StoreError> {
        if self.0.hang.lock().unwrap().iter().any(|hangs| hangs == key) {
            std::future::pending::<()>().await;
        }
        Ok(self.stored(self.texts().get(key)))
    }

    async fn swap(&self, key: &str, from: &Self::Version, to: Option<&str>) -> Result<bool, StoreError> {
        self.pass(self.0.way.load(Ordering::Relaxed)).await;
        {
            let mut texts = self.texts();
            if texts.get(key) != from.as_ref() || self.0.overtaken.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match to {
                Some(text) => texts.insert(key.to_owned(), text.to_owned()),
                None => texts.remove(key),
            };
        }
        let answer = !self.0.resends.load(Ordering::Relaxed);
        self.pass(self.0.way_back.load(Ordering::Relaxed)).await;
        Ok(answer)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<Self::Version>)>, StoreError> {
        let texts = self.texts();
        let listed = texts.iter().filter(|(key, _)| key.starts_with(prefix));
        Ok(listed.map(|(key, text)| (key.clone(), self.stored(Some(text)))).collect())
    }

    fn margin(&self) -> Duration {
        Duration::from_micros(self.0.set_back.load(Ordering::Relaxed).min(1))
    }

    fn read_clock_anew(&self) {
        self.0.set_back.store(0, Ordering::Relaxed);
    }
}

fn claim(name: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: Name::new(name).unwrap(),
        mode: Mode::Exclusive,
        lease: Duration::from_secs(10),
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo::here(None)),
    }
}

async fn granted(records: &Records<Texts>, claim: &Claim) -> Grant {
    match records.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        Attempt::Busy { .. } => panic!("{} is busy", claim.name),
    }
}

/// Even if the record was read before the withdrawal, a swap that arrives after it changes nothing.
#[tokio::test(start_paused = true)]
async fn swap_behind_its_withdrawal_grants_nothing() {
    let texts = Texts::new();
    let (records, claim) = (Records::new(texts.clone()), claim("a"));
    for used_before in [false, true] {
        let read = texts.read("lock/a").await.unwrap();
        assert_eq!(read.text.is_some(), used_before);
        records.withdraw(&claim).await.unwrap();
        assert!(!texts.swap("lock/a", &read.version, Some("straggler")).await.unwrap());
    }
}

/// Also where the clock is set back meanwhile.
#[tokio::test(start_paused = true)]
async fn unused_names_are_removed_but_their_tokens_are_kept() {
    let texts = Texts::new();
    let records = Records::new(texts.clone());
    let mut last = 0;
    for number in 0..100 {
        let grant = granted(&records, &claim(&format!("n{number}"))).await;
        last = last.max(grant.token.get());
        assert!(matches!(records.release(&grant).await.unwrap(), Release::Released { .. }));
    }
    let held = granted(&records, &claim("held")).await;
    assert_eq!(texts.keys().len(), 101);
    tokio::time::advance(Duration::from_mins(2)).await;
    texts.0.clock.store(1, Ordering::Relaxed);
    let Renewal::Renewed = records.renew(&[held]).await.unwrap()[0] else { panic!("it is held") };
    let grant = granted(&records, &claim("again")).await;
    records.release(&grant).await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(texts.keys(), ["floor", "lock/again", "lock/held"]);
    assert!(granted(&records, &claim("n0")).await.token.get() > last);
}

/// The client is older than the close, or created after it.
#[tokio::test(start_paused = true)]
async fn names_are_removed_after_another_client_has_closed() {
    for is_older in [true, false] {
        let texts = Texts::new();
        let records = Arc::new(Records::new(texts.clone()));
        let new = || Locks::new(Arc::clone(&records));
        let (other, older) = (new(), is_older.then(new));
        other.close().await;
        let one = older.unwrap_or_else(new);
        one.lock("a").acquire().await.unwrap().release().await.unwrap();
        tokio::time::advance(Duration::from_mins(2)).await;
        one.lock("again").acquire().await.unwrap().release().await.unwrap();
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(texts.keys(), ["floor", "lock/again"], "older than the close: {is_older}");
    }
}

#[tokio::test(start_paused = true)]
async fn reused_name_is_kept() {
    let texts = Texts::new();
    let (records, other) = (Records::new(texts.clone()), Records::new(texts.clone()));
    let first = granted(&records, &claim("a")).await;
    records.release(&first).await.unwrap();
    let idle = texts.read("lock/a").await.unwrap();
    let Some(Edition { edition, .. }) = parse::<_, Record>("lock/a", &idle).unwrap() else {
        panic!("it is there")
    };
    tokio::time::advance(Duration::from_mins(2)).await;
    let held = granted(&other, &claim("a")).await;
    records.changes.forget(vec![(first.name.clone(), edition)]).await;
    assert!(matches!(other.release(&held).await.unwrap(), Release::Released { .. }));
    records.changes.forget(vec![(first.name.clone(), edition)]).await;
    assert_eq!(texts.keys(), ["lock/a"], "another client has used it since, and removes it");
}

#[tokio::test(start_paused = true)]
async fn damaged_record_affects_only_its_own_name() {
    let texts = Texts::new();
    let records = Records::new(texts.clone());
    let (one, other) = (granted(&records, &claim("a")).await, granted(&records, &claim("b")).await);
    let claim_of_b = other.claim;
    texts.texts().insert("lock/a".to_owned(), "not JSON".to_owned());
    assert_eq!(records.renew(&[one, other]).await.unwrap(), [Renewal::Unanswered, Renewal::Renewed]);
    // Its holder is unknown.
    let listed = records.list("").await.unwrap();
    let listed: Vec<_> = listed.iter().map(|holder| (&*holder.name, holder.claim)).collect();
    assert_eq!(listed, [("a", None), ("b", Some(claim_of_b))]);
    let error = records.try_acquire(&claim("a")).await.unwrap_err();
    assert!(!error.is_unavailable() && error.to_string().contains("\"lock/a\""), "{error}");
}

#[tokio::test(start_paused = true)]
async fn request_fails_if_its_swaps_are_always_overtaken() {
    let texts = Texts::new();
    let records = Records::new(texts.clone());
    texts.0.overtaken.store(true, Ordering::Relaxed);
    let began = Moment::now();
    let error = records.try_acquire(&claim("a")).await.unwrap_err();
    let took = Moment::now().since(began);
    assert!(error.is_unavailable() && took >= PATIENCE && took < PATIENCE * 2, "{error} after {took:?}");
}

/// With a version that the store counts or with the text: no two texts of a key are the same.
#[tokio::test(start_paused = true)]
async fn no_text_is_written_twice() {
    let texts = Texts::new();
    let (locks, mut seen) = (Locks::new(Records::new(texts.clone())), Vec::new());
    for _ in 0..3 {
        let guard = locks.lock("a").acquire().await.unwrap();
        seen.push(texts.texts()["lock/a"].clone());
        guard.release().await.unwrap();
        seen.push(texts.texts()["lock/a"].clone());
    }
    let number = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), number);
}

/// One of many, or nearly all, and many more than are renewed at the same time.
#[tokio::test(start_paused = true)]
async fn hanging_records_cost_no_other_lease() {
    for hanging in [1, 90] {
        let texts = Texts::new();
        let records = Records::new(texts.clone());
        let mut grants = Vec::new();
        for number in 0..100 {
            grants.push(granted(&records, &claim(&format!("n{number}"))).await);
        }
        texts.0.hang.lock().unwrap().extend((0..hanging).map(|number| format!("lock/n{number}")));
        let patience = lease::renewal_patience(grants[0].lease);
        for _ in 0..3 {
            let answers =
                timeout(patience, records.renew(&grants)).await.expect("within its caller's patience");
            for (number, answer) in answers.unwrap().into_iter().enumerate() {
                let expected = if number < hanging { Renewal::Unanswered } else { Renewal::Renewed };
                assert_eq!(answer, expected, "number {number} while {hanging} hang");
            }
        }
        // Of one that is alone the policy above says that it failed.
        assert!(records.renew(&grants[..1]).await.unwrap_err().is_unavailable());
    }
}

/// The client of a store may send a swap again whose answer was lost.
#[tokio::test(start_paused = true)]
async fn swap_that_finds_its_own_text_succeeded() {
    let texts = Texts::new();
    let records = Records::new(texts.clone());
    texts.0.resends.store(true, Ordering::Relaxed);
    let grant = granted(&records, &claim("a")).await;
    assert!(matches!(records.release(&grant).await.unwrap(), Release::Released { .. }));
    let grant = granted(&records, &claim("a")).await;
    assert_eq!(records.force_release(&grant.name).await.unwrap().len(), 1);
}

/// How another client interferes with a release that is on its way.
#[derive(Clone, Copy)]
enum Meanwhile {
    /// It acquires after the swap is carried out. Then the swap is sent again, and answers false.
    AcquiresAfterwards,
    /// It releases by force before the swap arrives.
    ForcesBefore,
    /// The lease expires, and it acquires before the swap arrives.
    AcquiresBefore,
}

#[tokio::test(start_paused = true)]
async fn release_succeeds_if_sent_twice_but_is_lost_if_late() {
    for (meanwhile, expected) in [
        (Meanwhile::AcquiresAfterwards, Release::Released { awaited: false }),
        (Meanwhile::ForcesBefore, Release::Lost(LossCause::Forced)),
        (Meanwhile::AcquiresBefore, Release::Lost(LossCause::TakenOver)),
    ] {
        let texts = Texts::new();
        let (records, other) = (Records::new(texts.clone()), Records::new(texts.clone()));
        let (grant, next) = (granted(&records, &claim("a")).await, claim("a"));
        let is_late = !matches!(meanwhile, Meanwhile::AcquiresAfterwards);
        let way = if is_late { &texts.0.way } else { &texts.0.way_back };
        way.store(1_000, Ordering::Relaxed);
        texts.0.resends.store(!is_late, Ordering::Relaxed);
        // Begins once the release is on its way.
        let interferes = async {
            way.store(0, Ordering::Relaxed);
            texts.0.resends.store(false, Ordering::Relaxed);
            match meanwhile {
                Meanwhile::ForcesBefore => {
                    assert_eq!(other.force_release(&next.name).await.unwrap().len(), 1);
                    return;
                }
                Meanwhile::AcquiresBefore => _ = texts.0.clock.fetch_add(11_000_000, Ordering::Relaxed),
                Meanwhile::AcquiresAfterwards => {}
            }
            granted(&other, &next).await;
        };
        let (released, ()) = tokio::join!(records.release(&grant), interferes);
        assert_eq!(released.unwrap(), expected);
        let held = other.holders(&grant.name).await.unwrap();
        let held: Vec<_> = held.iter().map(|holder| holder.claim).collect();
        let is_next = !matches!(meanwhile, Meanwhile::ForcesBefore);
        assert_eq!(held, if is_next { vec![Some(next.id)] } else { vec![] });
    }
}

#[tokio::test(start_paused = true)]
async fn removed_latch_is_not_taken_for_its_successor() {
    let texts = Texts::new();
    let (records, latch) = (Records::new(texts.clone()), Name::new("l").unwrap());
    let of = NonZeroU32::new(3).unwrap();
    let down = |party: &str| LatchStep::CountDown { party: Name::new(party).unwrap(), of };
    let mut lives = Vec::new();
    for _ in 0..2 {
        for party in ["m1", "m2"] {
            records.latch(&latch, &down(party)).await.unwrap();
        }
        lives.push(texts.read("latch/l").await.unwrap());
        records.latch(&latch, &LatchStep::Remove).await.unwrap();
        texts.0.clock.fetch_add(1_000, Ordering::Relaxed);
    }
    assert_ne!(lives[0].version, lives[1].version, "a straggler of one would count in the other");
}

/// A client that was told of its loss does not hold the name again, even if a renewal is still on its way.
#[tokio::test(start_paused = true)]
async fn renewal_behind_a_reported_loss_revives_nothing() {
    for releases in [true, false] {
        let texts = Texts::new();
        let records = Records::new(texts.clone());
        let grant = [granted(&records, &claim("a")).await];
        let renewal = texts.read("lock/a").await.unwrap();
        texts.pass(11_000_000).await;
        if !releases {
            assert_eq!(records.renew(&grant).await.unwrap(), [Renewal::Lost(LossCause::Expired)]);
            assert!(!texts.swap("lock/a", &renewal.version, Some("straggler")).await.unwrap());
        }
        assert_eq!(records.release(&grant[0]).await.unwrap(), Release::Lost(LossCause::Expired));
        assert!(!texts.swap("lock/a", &renewal.version, Some("straggler")).await.unwrap());
    }
}

/// The record is read while the lease lasts, and swapped when it has expired. It has not been written in between.
#[tokio::test(start_paused = true)]
async fn late_renewal_revives_nothing() {
    let texts = Texts::new();
    let records = Records::new(texts.clone());
    for (left, renewal) in [(500_000, Renewal::Renewed), (100_000, Renewal::Lost(LossCause::Expired))] {
        let grant = [granted(&records, &claim("a")).await];
        texts.pass(10_000_000 - left).await;
        texts.0.way.store(300_000, Ordering::Relaxed);
        assert_eq!(records.renew(&grant).await.unwrap(), [renewal], "with {left} left");
        texts.0.way.store(0, Ordering::Relaxed);
        let is_held = renewal == Renewal::Renewed;
        assert_eq!(records.holders(&grant[0].name).await.unwrap().len(), usize::from(is_held));
        assert_eq!(matches!(records.release(&grant[0]).await.unwrap(), Release::Lost(_)), !is_held);
    }
}

/// A client counts on from a reading of before. By that, the lease has ended.
#[tokio::test(start_paused = true)]
async fn clock_set_back_ends_no_lease() {
    let texts = Texts::new();
    let (records, other) = (Records::new(texts.clone()), Records::new(texts.clone()));
    let grant = granted(&records, &claim("a")).await;
    let set_back = || texts.0.set_back.store(20_000_000, Ordering::Relaxed);
    set_back();
    assert_eq!(other.holders(&grant.name).await.unwrap().len(), 1, "holders");
    set_back();
    assert_eq!(other.list("").await.unwrap().len(), 1, "list");
    set_back();
    assert!(matches!(other.try_acquire(&claim("a")).await.unwrap(), Attempt::Busy { .. }), "another claim");
    set_back();
    assert_eq!(records.renew(std::slice::from_ref(&grant)).await.unwrap(), [Renewal::Renewed]);
    set_back();
    assert_eq!(records.convert(&grant, Mode::Shared).await.unwrap(), Conversion::Converted);
    set_back();
    assert!(matches!(records.release(&grant).await.unwrap(), Release::Released { .. }));
    // A claim that was released by force stays spent.
    let forced = claim("b");
    granted(&records, &forced).await;
    set_back();
    assert_eq!(other.force_release(&forced.name).await.unwrap().len(), 1);
    set_back();
    assert!(records.try_acquire(&forced).await.is_err(), "a claim that was released by force");
}
