//! The clock of a store that tells no time, but dates what is written.

use super::StoreTime;
use crate::contract::{Moment, StoreError};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// For how long a client counts on from one reading, because its clock and the store's may run at different rates.
const FRESH: Duration = Duration::from_secs(15);
/// For how long probes are written until one is answered in time.
const PATIENCE: Duration = Duration::from_secs(5);

/// The clock of a [`RecordStore`](super::RecordStore) that tells no time but dates what is written, such as NATS or an
/// object store.
///
/// A reading is the date of a write of this client, with the moments before it was sent and after it was answered. From
/// there the client's monotonic clock counts on, for 15 s. No wall clock of a client is read.
///
/// [`timed`](Self::timed) tells a time that is never ahead of the store's clock, and behind it by less than
/// [`margin`](Self::margin), which is what [`RecordStore::margin`](super::RecordStore::margin) returns.
///
/// Before its next write, a client reads its last one, with the date. Only a client whose last reading is too old writes
/// a probe, and reads its date.
///
/// # When the clock is set
///
/// A client notices with its next reading. So for up to 15 s, it may grant leases by the clock as it was.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tenure_core::record::{DatedClock, StoreTime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure_core::StoreError> {
/// // Whole seconds, by servers that differ by up to 500 ms, and answer within a second.
/// let clock = DatedClock::new(Duration::from_secs(1), Duration::from_millis(500), Duration::from_secs(1));
/// let read = || async {
///     let (text, version, date) = ("text", 7, StoreTime::from_micros(90_000_000));
///     clock.saw(&version, date);
///     Ok(text)
/// };
/// let probe = || async { Ok(StoreTime::from_micros(100_000_000)) };
/// let (text, now) = clock.timed(read, probe).await?;
/// assert_eq!(text, "text");
/// assert!(now <= StoreTime::from_micros(100_000_000));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DatedClock<V> {
    resolution: Duration,
    skew: Duration,
    round_trip: Duration,
    state: Mutex<State<V>>,
}

#[derive(Debug)]
struct State<V> {
    reading: Option<Reading>,
    /// Readings of writes that were sent before this are dropped.
    since: Moment,
    /// The last write of this client, until its date is read.
    written: Option<(V, Write)>,
}

/// A write that was sent and answered at these moments.
#[derive(Clone, Copy, Debug)]
struct Write {
    sent: Moment,
    answered: Moment,
}

/// A write, and its date.
#[derive(Clone, Copy, Debug)]
struct Reading {
    date: StoreTime,
    of: Write,
}

impl<V> State<V> {
    fn take(&mut self, reading: Reading) {
        // Another task may have read a later write's date before.
        let is_newer = self.reading.is_none_or(|known| known.of.sent <= reading.of.sent);
        if self.since <= reading.of.sent && is_newer {
            self.reading = Some(reading);
        }
    }
}

impl<V: PartialEq> DatedClock<V> {
    /// Makes the clock of a store whose dates are cut to multiples of `resolution`, whose servers' clocks differ by
    /// `skew` at most, and that usually answers within `round_trip`: a write that takes longer gives no reading.
    #[must_use]
    pub fn new(resolution: Duration, skew: Duration, round_trip: Duration) -> Self {
        let state = State { reading: None, since: Moment::now(), written: None };
        Self { resolution, skew, round_trip, state: Mutex::new(state) }
    }

    /// How far the time of [`timed`](Self::timed) may be behind the store's clock.
    #[must_use]
    pub fn margin(&self) -> Duration {
        // Both clocks may run 1 % too fast or too slow (clause L3).
        self.resolution + self.skew + self.round_trip + self.oldest() / 50
    }

    /// Notes a write of this client that the store has answered: the version that it wrote, and the moment before it was
    /// sent.
    pub fn wrote(&self, version: V, sent: Moment) {
        self.state().written = self.in_time(sent).map(|write| (version, write));
    }

    /// Notes the date of a version that was read.
    pub fn saw(&self, version: &V, date: StoreTime) {
        let mut state = self.state();
        if let Some((_, of)) = state.written.take_if(|(written, _)| written == version) {
            state.take(Reading { date, of });
        }
    }

    /// Forgets its readings, so that the next time it tells is by a new one.
    pub fn forget(&self) {
        let mut state = self.state();
        (state.reading, state.since) = (None, Moment::now());
    }

    /// Reads, and tells the store's time at the moment before. If the last reading is too old, it first writes a probe,
    /// and reads once more.
    ///
    /// `read` tells [`saw`](Self::saw) of each date. `probe` writes something, and returns the date that it or a later
    /// write has got.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a probe changes no lock.
    ///
    /// # Errors
    ///
    /// Those of `read` and `probe`, and [`StoreError::unavailable`] if for 5 s the store takes too long to write and read a
    /// probe.
    pub async fn timed<T, R, M>(
        &self,
        read: impl Fn() -> R,
        probe: impl Fn() -> M,
    ) -> Result<(T, StoreTime), StoreError>
    where
        R: Future<Output = Result<T, StoreError>>,
        M: Future<Output = Result<StoreTime, StoreError>>,
    {
        // Its own probe is new enough for this call, even if another task has asked for a new reading since.
        let (mut own, give_up) = (None, Moment::now() + PATIENCE);
        loop {
            let asked = Moment::now();
            let found = read().await?;
            let reading = self.state().reading.or(own);
            if let Some(now) = reading.and_then(|reading| self.told(reading, asked)) {
                return Ok((found, now));
            }
            if give_up.has_passed() {
                return Err(StoreError::unavailable(format!(
                    "cannot tell the store's time: a write and a read took over {:?}; check its load",
                    self.round_trip
                )));
            }
            let sent = Moment::now();
            let date = probe().await?;
            if let Some(of) = self.in_time(sent) {
                own = Some(Reading { date, of });
                self.state().take(Reading { date, of });
            }
        }
    }

    /// The earliest time that any of the store's clocks may have shown at that moment.
    fn told(&self, Reading { date, of }: Reading, at: Moment) -> Option<StoreTime> {
        let behind = StoreTime::from_micros(0) + date.since(StoreTime::from_micros(0) + self.skew);
        (at.since(of.sent) <= self.oldest()).then(|| behind + at.since(of.answered) * 99 / 100)
    }

    /// A write that is answered now, unless that took too long.
    fn in_time(&self, sent: Moment) -> Option<Write> {
        let answered = Moment::now();
        (answered.since(sent) <= self.round_trip).then_some(Write { sent, answered })
    }

    fn oldest(&self) -> Duration {
        FRESH + self.round_trip
    }

    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use tokio::time::sleep;

    const SECOND: Duration = Duration::from_secs(1);

    /// A store with one key, whose clock runs at this rate, and its client.
    struct Scene {
        start: Moment,
        rate: f64,
        resolution: Duration,
        /// How far the clock was set ahead.
        ahead: Cell<Duration>,
        /// How long a request or an answer is on its way.
        way: Cell<Duration>,
        /// The last version, and its date.
        written: Cell<(u64, StoreTime)>,
        probes: Cell<usize>,
        clock: DatedClock<u64>,
    }

    impl Scene {
        fn new(rate: f64, resolution: Duration) -> Self {
            let clock = DatedClock::new(resolution, Duration::ZERO, SECOND / 4);
            Self {
                start: Moment::now(),
                rate,
                resolution,
                ahead: Cell::default(),
                way: Cell::default(),
                written: Cell::new((0, StoreTime::from_micros(0))),
                probes: Cell::default(),
                clock,
            }
        }

        fn now(&self) -> StoreTime {
            let start = StoreTime::from_micros(1_000_000_000) + self.ahead.get();
            start + Moment::now().since(self.start).mul_f64(self.rate)
        }

        fn date(&self) -> StoreTime {
            let (now, unit) = (self.now().as_micros(), self.resolution.as_micros());
            StoreTime::from_micros(now - now % u64::try_from(unit).unwrap())
        }

        async fn write(&self) {
            let sent = Moment::now();
            sleep(self.way.get()).await;
            let version = self.written.get().0 + 1;
            self.written.set((version, self.date()));
            sleep(self.way.get()).await;
            self.clock.wrote(version, sent);
        }

        /// Reads, and returns the time that the clock tells.
        async fn read(&self) -> Result<StoreTime, StoreError> {
            let read = async || {
                sleep(self.way.get()).await;
                let (version, date) = self.written.get();
                if version > 0 {
                    self.clock.saw(&version, date);
                }
                Ok(())
            };
            let probe = async || {
                sleep(self.way.get()).await;
                self.probes.set(self.probes.get() + 1);
                let date = self.date();
                sleep(self.way.get()).await;
                Ok(date)
            };
            self.clock.timed(read, probe).await.map(|((), now)| now)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn probe_is_written_only_after_stale_reading() {
        let scene = Scene::new(1.0, SECOND);
        scene.read().await.unwrap();
        for _ in 0..10 {
            scene.write().await;
            sleep(SECOND * 10).await;
            scene.read().await.unwrap();
        }
        assert_eq!(scene.probes.get(), 1);
        sleep(SECOND * 6).await;
        scene.read().await.unwrap();
        assert_eq!(scene.probes.get(), 2);
        scene.clock.forget();
        scene.read().await.unwrap();
        assert_eq!(scene.probes.get(), 3);
    }

    /// A reading from before was taken by the clock as it was.
    #[tokio::test(start_paused = true)]
    async fn write_before_forget_gives_no_reading() {
        let scene = Scene::new(1.0, SECOND);
        scene.write().await;
        sleep(SECOND).await;
        scene.clock.forget();
        scene.read().await.unwrap();
        assert_eq!(scene.probes.get(), 1);
    }

    /// As where one task probes, and another then reads the record that this client wrote long before.
    #[tokio::test(start_paused = true)]
    async fn reading_of_earlier_write_replaces_none_of_later_write() {
        let scene = Scene::new(1.0, SECOND);
        let (before, sent) = (scene.date(), Moment::now());
        scene.clock.wrote(1, sent);
        sleep(SECOND * 60).await;
        scene.read().await.unwrap();
        scene.clock.saw(&1, before);
        scene.read().await.unwrap();
        assert_eq!(scene.probes.get(), 1);
    }

    /// A record may be from before the clock was set back.
    #[tokio::test(start_paused = true)]
    async fn probe_tells_time_after_clock_is_set_back() {
        let scene = Scene::new(1.0, SECOND);
        scene.ahead.set(SECOND * 60);
        scene.written.set((1, scene.date()));
        scene.ahead.set(Duration::ZERO);
        assert!(scene.read().await.unwrap() <= scene.now());
        assert_eq!(scene.probes.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_ask_for_new_readings_do_not_starve_each_other() {
        let scene = Scene::new(1.0, SECOND);
        scene.way.set(SECOND / 100);
        let task = || async {
            scene.read().await?;
            scene.clock.forget();
            scene.read().await
        };
        for told in futures_util::future::join_all((0..20).map(|_| task())).await {
            assert!(told.unwrap() <= scene.now());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_store_tells_no_time() {
        let scene = Scene::new(1.0, SECOND);
        scene.way.set(SECOND);
        let asked = Moment::now();
        assert!(scene.read().await.unwrap_err().is_unavailable());
        let took = Moment::now().since(asked);
        assert!(PATIENCE <= took && took < PATIENCE + SECOND * 4, "{took:?}");
        assert!(1 < scene.probes.get());
    }

    proptest! {
        #[test]
        fn time_is_not_ahead_and_behind_by_less_than_the_margin(
            rate in 0.99..1.01,
            resolution in prop::sample::select(vec![1, 1_000, 1_000_000]),
            steps in prop::collection::vec((any::<bool>(), 0_u64..20_000, 0_u64..120), 1..40),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let scene = Scene::new(rate, Duration::from_micros(resolution));
                for (writes, pause, way) in steps {
                    sleep(Duration::from_millis(pause)).await;
                    scene.way.set(Duration::from_millis(way));
                    if writes {
                        scene.write().await;
                        continue;
                    }
                    let before = scene.now();
                    let told = scene.read().await.unwrap();
                    prop_assert!(told <= scene.now(), "{told:?} {:?}", scene.now());
                    prop_assert!(before < told + scene.clock.margin(), "{before:?} {told:?}");
                }
                Ok(())
            })?;
        }
    }
}
