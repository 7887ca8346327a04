//! The entries that a store keeps, compared with a page: this build must write them like that, and read them.
//!
//! Two clients play one [`Scene`] with the same claims each time. The page has placeholders for times, tokens and random
//! ids, which differ. So a change of the format fails a test, and this build reads the entries of each build that wrote
//! what the page shows.
//!
//! The page shows control characters as Unicode's pictures of them: `␟` is the unit separator.

use crate::{
    check::{Check, Stop, ensure, eventually},
    pause,
};
use std::{
    fs,
    num::NonZeroU32,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tenure_core::{
    Attempt, Backend, Claim, ClaimId, Conversion, Grant, HolderInfo, LatchStep, LossCause, Mode, Moment,
    Name, Release, Renewal, StandingKind, StoreError, Token,
};

/// The lease of every grant.
const LEASE: Duration = Duration::from_mins(10);
/// How long the waiter may take to come.
const HANG: Duration = Duration::from_mins(2);
/// The random id that a placeholder becomes.
const ANY_ID: &str = "0b0e5c1e-9f0f-4d0c-8f0e-1a2b3c4d5e6f";
/// Tokens that are times are greater. Others stand in few places, where the test itself finds them.
const SMALL: u64 = 1_000_000_000_000_000;
/// Set, it has [`Page::check`] write the page instead.
const WRITE: &str = "TENURE_WRITE_PAGES";

/// A claim of the scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    number: u64,
    name: &'static str,
    mode: Mode,
    /// To which mode its grant is converted.
    becomes: Option<Mode>,
    ends: Option<End>,
}

/// How a grant of the scene ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Released,
    Forced,
}

const fn part(number: u64, name: &'static str, mode: Mode) -> Part {
    Part { number, name, mode, becomes: None, ends: None }
}

const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();
const POOL: Mode = Mode::Permit { take: NonZeroU32::new(2).unwrap(), of: THREE };
const ONE_OF_POOL: Mode = Mode::Permit { take: NonZeroU32::MIN, of: THREE };
const LATCH: &str = "migrated";

const PARTS: [Part; 9] = [
    part(1, "alone", Mode::Exclusive),
    part(2, "readers", Mode::Shared),
    part(3, "readers", Mode::Shared),
    part(4, "pool", POOL),
    part(5, "queue", Mode::Exclusive),
    Part { becomes: Some(Mode::Shared), ..part(7, "downgraded", Mode::Exclusive) },
    Part { becomes: Some(Mode::Exclusive), ..part(8, "upgraded", Mode::Shared) },
    Part { ends: Some(End::Released), ..part(9, "released", Mode::Exclusive) },
    Part { ends: Some(End::Forced), ..part(10, "forced", Mode::Exclusive) },
];
/// It waits for "queue".
const WAITER: Part = part(6, "queue", Mode::Shared);

impl Part {
    fn claim(&self) -> Claim {
        let id = format!("00000000-0000-4000-8000-{:012}", self.number);
        let holder =
            HolderInfo { label: Some("nightly report".to_owned()), host: "db1".to_owned(), pid: 4711 };
        Claim {
            id: id.parse().unwrap_or_default(),
            name: name(self.name),
            mode: self.mode,
            lease: LEASE,
            waits: *self == WAITER,
            reserve: 0,
            holder: Arc::new(holder),
        }
    }

    /// The mode in which it holds in the end.
    fn holds(&self) -> Mode {
        self.becomes.unwrap_or(self.mode)
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name of the scene")
}

/// A newcomer's claim.
fn newcomer(on: &'static str, mode: Mode) -> Claim {
    Claim { id: ClaimId::new(), ..part(0, on, mode).claim() }
}

/// The parts that a store can play.
fn parts(backend: &dyn Backend) -> Vec<Part> {
    let can = backend.capabilities();
    let plays = |part: &Part| match (part.mode, part.becomes) {
        (Mode::Permit { .. }, _) => can.permits,
        (_, Some(_)) | (Mode::Shared, _) => can.shared,
        _ => true,
    };
    PARTS.into_iter().filter(plays).collect()
}

/// A scene that was played in a store: its grants, and its waiter.
#[derive(Debug)]
pub struct Scene {
    grants: Vec<(Part, Grant)>,
    /// It waits until this is dropped.
    waiter: Option<tokio::task::JoinHandle<Result<Grant, StoreError>>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            waiter.abort();
        }
    }
}

impl Scene {
    /// Plays it with two clients of one empty store. What is held stays held.
    ///
    /// # Errors
    ///
    /// If a request fails, or is not answered as it should be.
    pub async fn play(client: &dyn Backend, other: Arc<dyn Backend>) -> Check<Self> {
        let mut scene = Self { grants: Vec::new(), waiter: None };
        for part in parts(client) {
            let grant = granted(client, &part.claim()).await?;
            // Tokens that are milliseconds of a clock differ, too.
            pause::look_again().await;
            if let Some(to) = part.becomes {
                let converted = client.convert(&grant, to).await?;
                same("convert", &converted, &Conversion::Converted)?;
            }
            match part.ends {
                Some(End::Released) => drop(client.release(&grant).await?),
                Some(End::Forced) => drop(client.force_release(&grant.name).await?),
                None => {}
            }
            scene.grants.push((part, grant));
        }
        if client.capabilities().waiting {
            let claim = WAITER.claim();
            let waiter = scene.waiter.insert(tokio::spawn(async move { other.acquire(&claim).await }));
            let queue = name(WAITER.name);
            eventually!(
                HANG,
                !client.waiting(&queue).await?.is_empty() || waiter.is_finished(),
                "the waiter waits"
            );
            ensure!(!waiter.is_finished(), "the waiter does not wait");
        }
        if client.capabilities().latches {
            let step = LatchStep::CountDown { party: name("pod-1"), of: THREE };
            client.latch(&name(LATCH), &step).await?;
        }
        Ok(scene)
    }

    /// An entry with placeholders for what differs from scene to scene.
    fn masked(&self, entry: &str) -> String {
        let mut text: String = entry.chars().map(pictured).collect();
        for (part, grant) in self.grants.iter().filter(|(_, grant)| grant.token.get() > SMALL) {
            // Where the clock counts milliseconds, a token is the time of its grant.
            let since = format!("\"since\":{}", grant.token);
            text =
                text.replace(&since, "\"since\":{now us}").replace(&grant.token.to_string(), &token_of(part));
        }
        mask_times(&mask_ids(&text))
    }
}

async fn granted(client: &dyn Backend, claim: &Claim) -> Check<Grant> {
    match client.try_acquire(claim).await? {
        Attempt::Granted(grant) => Ok(grant),
        Attempt::Busy { .. } => Err(Stop::failed(format_args!("{:?} is held", claim.name))),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Check {
    if got == want {
        return Ok(());
    }
    Err(Stop::failed(format_args!("{what}: {got:?} instead of {want:?}")))
}

/// A block of the page: the entries of one store.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    store: &'static str,
}

impl Page {
    /// The block of this store, which is the first below the heading `## STORE`.
    #[must_use]
    pub fn of(path: impl Into<PathBuf>, store: &'static str) -> Self {
        Self { path: path.into(), store }
    }

    /// The page before the block, the lines of the block, and the page behind it.
    fn cut(&self) -> Check<(String, Vec<String>, String)> {
        let page = fs::read_to_string(&self.path)?;
        let heading = format!("\n## {}\n", self.store);
        let lacks = || Stop::failed(format_args!("{}: no block below {heading:?}", self.path.display()));
        let at = page.find(&heading).ok_or_else(lacks)?;
        let begin = at + page[at..].find("```text\n").ok_or_else(lacks)? + "```text\n".len();
        let end = begin + page[begin..].find("```").ok_or_else(lacks)?;
        let lines = page[begin..end].lines().map(str::to_owned).collect();
        Ok((page[..begin].to_owned(), lines, page[end..].to_owned()))
    }

    /// Compares what a scene left in the store with the page. With `TENURE_WRITE_PAGES` set, it writes the page.
    ///
    /// # Errors
    ///
    /// If they differ.
    pub fn check(&self, scene: &Scene, entries: &[String]) -> Check {
        let written: Vec<String> = entries.iter().map(|entry| scene.masked(entry)).collect();
        let (before, lines, behind) = self.cut()?;
        if std::env::var_os(WRITE).is_some() {
            return Ok(fs::write(&self.path, before + &written.join("\n") + "\n" + &behind)?);
        }
        // A stall may have let a time pass that was to come within seconds.
        let plain = |line: &String| line.replace("{soon ", "{now ");
        let difference =
            written.iter().map(plain).zip(lines.iter().map(plain)).find(|(written, line)| written != line);
        match difference {
            Some((written, line)) => Err(Stop::failed(format_args!(
                "the format has changed. This build writes\n{written}\ninstead of\n{line}\nOther builds read what the \
                 page says: see its rules"
            ))),
            None => same("entries", &written.len(), &lines.len()),
        }
    }

    /// The entries of the page, as a build would have written them just now, with tokens that follow `last`.
    ///
    /// # Errors
    ///
    /// If the page cannot be read.
    pub fn entries(&self, last: u64) -> Check<Entries> {
        let (_, written, _) = self.cut()?;
        let lines = written.iter().map(|line| filled(line, last)).collect();
        Ok(Entries { lines, written, last })
    }
}

/// The entries of the page, as another build would have written them.
#[derive(Debug)]
pub struct Entries {
    /// To be put into an empty store.
    pub lines: Vec<String>,
    /// The page's lines, with their placeholders.
    written: Vec<String>,
    /// The token before those of the entries.
    last: u64,
}

impl Entries {
    /// Has this build's client of a store with these entries, and nothing else, read and change them.
    ///
    /// # Errors
    ///
    /// If a request fails, or its answer is another than if this build had written them.
    pub async fn read(&self, client: &dyn Backend) -> Check {
        for part in parts(client) {
            self.read_part(client, &part).await.map_err(|stop| match stop {
                Stop::Failed(what) => Stop::Failed(format!("{:?}: {what}", part.name)),
                lacks @ Stop::Lacks(_) => lacks,
            })?;
        }
        if self.written.iter().any(|line| line.contains(LATCH)) {
            let look = client.latch(&name(LATCH), &LatchStep::Look).await?;
            same("the latch", &(look.of, look.counted), &(3, 1))?;
            for (party, counted) in [("pod-1", 1), ("pod-2", 2)] {
                let step = LatchStep::CountDown { party: name(party), of: THREE };
                same("counted", &client.latch(&name(LATCH), &step).await?.counted, &counted)?;
            }
        }
        Ok(())
    }

    /// The token of a part's grant, if the entries have it.
    fn token(&self, part: &Part) -> Option<Token> {
        let placeholder = token_of(part);
        let stands = self.written.iter().any(|line| line.contains(&placeholder));
        stands.then(|| Token::new(self.last + part.number)).flatten()
    }

    async fn read_part(&self, client: &dyn Backend, part: &Part) -> Check {
        let (claim, token) = (part.claim(), self.token(part));
        let leases = client.capabilities().standing == StandingKind::Lease;
        let held = Claim { mode: part.holds(), ..claim.clone() };
        let grant = Grant::leased(&held, token.unwrap_or(Token::MIN), Moment::now());
        if leases && part.ends == Some(End::Forced) {
            let renewed = client.renew(std::slice::from_ref(&grant)).await?;
            same("renew", &renewed, &vec![Renewal::Lost(LossCause::Forced)])?;
        }
        let noted = self.written.iter().any(|line| line.contains(&claim.id.to_string()));
        if !leases && noted && part.ends == Some(End::Forced) {
            same("release", &client.release(&grant).await?, &Release::Lost(LossCause::Forced))?;
        }
        // The holders of row locks are connections, which stand in no entry.
        let holders = client.holders(&claim.name).await?;
        let stands = part.ends.is_none() && (leases || !holders.is_empty());
        if stands {
            let holder = holders.iter().find(|holder| holder.claim == Some(claim.id));
            let seen = holder.map(|holder| (holder.mode, holder.info.clone()));
            same("the holder", &seen, &Some((part.holds(), (*claim.holder).clone())))?;
            if token.is_some() {
                same("its token", &holder.and_then(|holder| holder.token), &token)?;
            }
            admits(client, part).await?;
        }
        if stands && leases {
            same("renew", &client.renew(std::slice::from_ref(&grant)).await?, &vec![Renewal::Renewed])?;
        }
        if part.name == WAITER.name && stands {
            // It would be next.
            return waits(client).await;
        }
        match (stands, leases) {
            (true, true) => {
                let released = client.release(&grant).await?;
                same("release", &matches!(released, Release::Released { .. }), &true)?;
            }
            (true, false) => drop(client.force_release(&claim.name).await?),
            (false, _) => {}
        }
        if client.holders(&claim.name).await?.is_empty() {
            let next = granted(client, &newcomer(part.name, Mode::Exclusive)).await?;
            same("a greater token", &(Some(next.token) > token), &true)?;
            client.release(&next).await?;
        }
        Ok(())
    }
}

async fn waits(client: &dyn Backend) -> Check {
    if client.capabilities().waiting {
        let waiters = client.waiting(&name(WAITER.name)).await?;
        let seen: Vec<_> = waiters.iter().map(|waiter| (waiter.claim, waiter.mode)).collect();
        same("the waiters", &seen, &vec![(Some(WAITER.claim().id), WAITER.mode)])?;
    }
    Ok(())
}

/// Whom the holder of a part admits beside it.
async fn admits(client: &dyn Backend, part: &Part) -> Check {
    let can = client.capabilities();
    let shared = matches!(part.holds(), Mode::Shared);
    for (mode, can, admitted) in [
        (Mode::Exclusive, true, false),
        (Mode::Shared, can.shared, shared),
        (POOL, can.permits && part.mode == POOL, false),
        (ONE_OF_POOL, can.permits && part.mode == POOL, true),
    ] {
        if !can {
            continue;
        }
        let attempt = client.try_acquire(&newcomer(part.name, mode)).await?;
        same("granted beside it", &(mode, matches!(attempt, Attempt::Granted(_))), &(mode, admitted))?;
        if let Attempt::Granted(grant) = attempt {
            client.release(&grant).await?;
        }
    }
    Ok(())
}

fn token_of(part: &Part) -> String {
    format!("{{token {}}}", part.number)
}

/// A control character's picture, and any other character itself.
fn pictured(c: char) -> char {
    if c < ' ' { char::from_u32(PICTURES + u32::from(c)).unwrap_or(c) } else { c }
}

/// The character that a picture is of.
fn unpictured(c: char) -> char {
    let control = u32::from(c).checked_sub(PICTURES).filter(|control| *control < u32::from(' '));
    control.and_then(char::from_u32).unwrap_or(c)
}

/// The first of Unicode's pictures of control characters.
const PICTURES: u32 = 0x2400;

/// Puts `{id}` in place of random ids.
fn mask_ids(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let random = |id: &&str| id.parse::<ClaimId>().is_ok() && !id.starts_with("00000000-");
        let length = if rest.get(..ANY_ID.len()).as_ref().is_some_and(random) {
            masked.push_str("{id}");
            ANY_ID.len()
        } else {
            masked.push(first);
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    masked
}

/// Units of time since 1970: the name, and how many of it a second has.
const UNITS: [(&str, u64); 3] = [("s", 1), ("ms", 1_000), ("us", 1_000_000)];

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Puts `{now ms}` and the like in place of times within a month from now.
fn mask_times(text: &str) -> String {
    let now = since_1970().as_secs();
    let masked = |digits: &str| {
        let number: u64 = digits.parse().ok()?;
        UNITS.into_iter().find_map(|(unit, of_a_second)| {
            let seconds = number / of_a_second;
            let near = seconds.abs_diff(now) < 30 * 24 * 3600;
            let when = match seconds.saturating_sub(now) {
                0 => "now",
                1..=60 => "soon",
                _ => "later",
            };
            near.then(|| format!("{{{when} {unit}}}"))
        })
    };
    let mut all = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let others = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        all.push_str(&masked(&rest[..digits]).unwrap_or_else(|| rest[..digits].to_owned()));
        all.push_str(&rest[digits..digits + others]);
        rest = &rest[digits + others..];
    }
    all
}

/// A line of the page as an entry: the opposite of `masked`.
fn filled(line: &str, last: u64) -> String {
    let mut text: String = line.chars().map(unpictured).collect();
    for part in PARTS.iter().chain([&WAITER]) {
        text = text.replace(&token_of(part), &(last + part.number).to_string());
    }
    let now = since_1970();
    for (unit, of_a_second) in UNITS {
        for (when, time) in [("now", now), ("soon", now + LEASE), ("later", now + LEASE)] {
            let number = time.as_micros() / u128::from(1_000_000 / of_a_second);
            text = text.replace(&format!("{{{when} {unit}}}"), &number.to_string());
        }
    }
    text.replace("{id}", ANY_ID)
}

/// A last token that this build has not reached by its clock, so that it must have read those of the entries.
#[must_use]
pub fn token_ahead() -> u64 {
    u64::try_from((since_1970() + Duration::from_mins(1)).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeMap, sync::Mutex};
    use tenure_core::{
        async_trait,
        record::{RecordStore, Records, StoreTime, Stored},
    };

    /// A record store in memory.
    #[derive(Clone, Default)]
    struct Texts(Arc<Mutex<BTreeMap<String, String>>>);

    impl Texts {
        fn all(&self) -> BTreeMap<String, String> {
            self.0.lock().unwrap().clone()
        }
    }

    fn stored(text: Option<String>) -> Stored<Option<String>> {
        let now = StoreTime::from_micros(u64::try_from(since_1970().as_micros()).unwrap());
        Stored { version: text.clone(), text, now }
    }

    #[async_trait]
    impl RecordStore for Texts {
        type Version = Option<String>;

        fn store(&self) -> &'static str {
            "texts"
        }

        async fn read(&self, key: &str) -> Result<Stored<Self::Version>, StoreError> {
            Ok(stored(self.all().get(key).cloned()))
        }

        async fn swap(&self, key: &str, from: &Self::Version, to: Option<&str>) -> Result<bool, StoreError> {
            let mut texts = self.0.lock().unwrap();
            let is_latest = texts.get(key) == from.as_ref();
            match to {
                Some(to) if is_latest => drop(texts.insert(key.to_owned(), to.to_owned())),
                None if is_latest => drop(texts.remove(key)),
                _ => {}
            }
            Ok(is_latest)
        }

        async fn list(&self, prefix: &str) -> Result<Vec<(String, Stored<Self::Version>)>, StoreError> {
            let texts = self.all().into_iter().filter(|(key, _)| key.starts_with(prefix));
            Ok(texts.map(|(key, text)| (key, stored(Some(text)))).collect())
        }
    }

    fn page() -> Page {
        Page::of(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/contributing/formats.md"), "Record stores")
    }

    #[tokio::test]
    async fn records_are_written_as_the_page_says() {
        let texts = Texts::default();
        let [client, other] = [Records::new(texts.clone()), Records::new(texts.clone())];
        let scene = Scene::play(&client, Arc::new(other)).await.unwrap();
        let entries: Vec<_> = texts.all().iter().map(|(key, text)| format!("{key}: {text}")).collect();
        page().check(&scene, &entries).unwrap();
    }

    #[tokio::test]
    async fn records_of_the_page_are_read() {
        let (texts, entries) = (Texts::default(), page().entries(token_ahead()).unwrap());
        for line in &entries.lines {
            let (key, text) = line.split_once(": ").unwrap();
            texts.0.lock().unwrap().insert(key.to_owned(), text.to_owned());
        }
        entries.read(&Records::new(texts)).await.unwrap();
    }

    #[tokio::test]
    async fn later_format_is_named_and_lets_nobody_in() {
        let texts = Texts::default();
        let client = Records::new(texts.clone());
        granted(&client, &PARTS[0].claim()).await.unwrap();
        for text in texts.0.lock().unwrap().values_mut() {
            *text = text.replacen('{', "{\"format\":2,", 1);
        }
        let error = client.try_acquire(&newcomer("alone", Mode::Exclusive)).await.unwrap_err();
        assert!(!error.is_unavailable() && format!("{error:?}").contains("has format 2"), "{error:?}");
    }

    #[test]
    fn entry_is_filled_as_it_was_masked() {
        let scene = Scene { grants: Vec::new(), waiter: None };
        let now = since_1970();
        let (ms, later) = (now.as_millis(), (now + LEASE).as_micros());
        let entry = format!("a\u{1f}{{a}} {ms} -{later} {} 0000000000 {ANY_ID}", PARTS[0].claim().id);
        let masked = scene.masked(&entry);
        let claim = "00000000-0000-4000-8000-000000000001";
        assert_eq!(masked, format!("a\u{241f}{{a}} {{now ms}} -{{later us}} {claim} 0000000000 {{id}}"));
        assert_eq!(scene.masked(&filled(&masked, 7)), masked);
        assert_eq!(filled("{token 10}", 7), "17");
    }
}
