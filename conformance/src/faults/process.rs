//! A client in a process of its own, which can be frozen and killed.
//!
//! It is [any program](super::program), or this very one, started once more. This one writes its notes and its requests
//! to the resource on its standard output, one JSON object a line, and reads the answers on its standard input. It ends
//! when its input does, so it does not outlive the run; on Linux neither does one that is frozen.

use super::{
    client::{Client, Setting, patience},
    options::BESIDE,
    program::Program,
    resource::{Resource, Shelf},
    schedule::AnyFault,
};
use crate::{
    Subject,
    check::{Check, Stop, chain, within},
    judge::{Event, Recorder, What},
    parent,
};
use rustix::process::{Pid, Resource as Limited, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    env,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tenure_core::{Token, async_trait};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout},
    signal::unix::{SignalKind, signal},
    sync::{Mutex as AsyncMutex, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Holds the [`Part`] that a process is to play. A process that finds it set is a client.
const PART: &str = "TENURE_CONFORMANCE_CLIENT";
/// How long a process may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first message to a client process.
#[derive(Serialize, Deserialize)]
struct Part {
    subject: String,
    client: String,
    names: Vec<String>,
    lease: Duration,
    seed: u64,
}

/// A message from it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Note(Event),
    Ask {
        id: u64,
        lane: String,
        name: String,
        token: u64,
        /// A write, over this value; else a reading.
        over: Option<u64>,
    },
}

/// A message to it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    /// The answer of the resource; `None` when it refused.
    Answer {
        id: u64,
        value: Option<u64>,
    },
    Stop,
}

/// A client in a process of its own, seen from the run.
pub(super) struct Process {
    pub(super) name: String,
    child: Child,
    control: Control,
    /// Whether it is this version's client, and was granted a lock: all that it starts has begun.
    works: Arc<AtomicBool>,
    /// Whether it hangs.
    listening: JoinHandle<Check<bool>>,
}

/// How it is told to stop.
enum Control {
    Own(Arc<AsyncMutex<ChildStdin>>),
    Program(CancellationToken),
}

impl Process {
    pub(super) fn start(setting: &Setting, shelf: &Shelf, name: &str, own: bool) -> Check<Self> {
        if let Some(command) = &setting.program {
            let stop = CancellationToken::new();
            let (child, program) = Program::start(command, setting, name, stop.clone())?;
            let (control, listening) = (Control::Program(stop), tokio::spawn(program.work()));
            return Ok(Self { name: name.to_owned(), child, control, works: Arc::default(), listening });
        }
        let (program, name) = match &setting.beside {
            Some(beside) if !own => (beside.clone(), format!("{name}{BESIDE}")),
            _ => (env::current_exe()?, name.to_owned()),
        };
        let environment = setting.subject.environment().unwrap_or_default();
        let part = Part {
            subject: setting.subject.name().to_owned(),
            client: name.clone(),
            names: setting.names.to_vec(),
            lease: setting.lease,
            seed: setting.seed,
        };
        let environment = environment.iter().map(|(name, value)| (&**name, value.clone()));
        let part = [(PART, serde_json::to_string(&part)?)];
        let (child, commands, said) = parent::start(&program, environment.chain(part))?;
        let commands = Arc::new(AsyncMutex::new(commands));
        let (heard, works) = (setting.recorder.clone(), Arc::<AtomicBool>::default());
        let (shelf, answers, begun) = (shelf.clone(), Arc::clone(&commands), Arc::clone(&works));
        let is_ours = !name.contains(BESIDE);
        let listening = tokio::spawn(async move {
            let heard = |event: Event| {
                if matches!(event.what, What::Granted { .. }) {
                    begun.store(is_ours, Ordering::Relaxed);
                }
                heard.add(event);
            };
            listen(said, answers, heard, shelf).await;
            Ok(false)
        });
        Ok(Self { name, child, control: Control::Own(commands), works, listening })
    }

    fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()))
    }

    /// Freezes it, or keeps it from opening or writing files; or ends that.
    pub(super) fn hurt(&self, what: AnyFault, begins: bool) -> Check {
        match what {
            AnyFault::NoFiles => self.limit(Limited::Nofile, begins.then_some(0)),
            AnyFault::NoWrites(most) => self.limit(Limited::Fsize, begins.then_some(most)),
            _ if begins => self.signal(Signal::STOP),
            _ => self.signal(Signal::CONT),
        }
    }

    /// Sends it a signal; nothing when it has ended.
    fn signal(&self, signal: Signal) -> Check {
        let Some(pid) = self.pid() else { return Ok(()) };
        match self.control {
            Control::Own(_) => kill_process(pid, signal)?,
            Control::Program(_) => kill_process_group(pid, signal)?,
        }
        Ok(())
    }

    /// Whether it can go on without files. Another program may be a script, which needs some for each of its steps, and
    /// this suite's clients need some to begin.
    pub(super) fn can_lack_files(&self) -> bool {
        cfg!(any(target_os = "linux", target_os = "android")) && self.works.load(Ordering::Relaxed)
    }

    /// Gives it so little, or as much as this process has. It keeps the files and connections that it has open.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn limit(&self, what: Limited, to: Option<u64>) -> Check {
        use rustix::process::{Rlimit, getrlimit, prlimit};

        let Some(pid) = self.pid() else { return Ok(()) };
        let ours = getrlimit(what);
        prlimit(Some(pid), what, Rlimit { current: to.or(ours.current), ..ours })?;
        Ok(())
    }

    /// Only Linux can do so.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn limit(&self, _: Limited, _: Option<u64>) -> Check {
        Ok(())
    }

    /// Kills it with no chance to release anything, and hears out what it had said.
    pub(super) async fn kill(mut self) -> Check {
        self.goes_on().await?;
        self.signal(Signal::KILL)?;
        self.child.wait().await?;
        within(PATIENCE, "reading the last answers of a killed process", self.listening).await???;
        Ok(())
    }

    /// Fails if nothing more comes from it, though it was not told to end.
    async fn goes_on(&mut self) -> Check {
        if !self.listening.is_finished() {
            return Ok(());
        }
        (&mut self.listening).await??;
        let status = within(PATIENCE, "the end of a client process", self.child.wait()).await??;
        Err(Stop::failed(format_args!("{} ended by itself: {status}", self.name)))
    }

    /// Lets it close its locks and end.
    pub(super) async fn stop(mut self, lease: Duration) -> Check {
        self.goes_on().await?;
        match &self.control {
            // A process that ends by itself says so below.
            Control::Own(commands) => _ = tell(commands, &Told::Stop).await,
            Control::Program(stop) => stop.cancel(),
        }
        let limit = PATIENCE + patience(lease) * 3;
        if within(limit, "reading the last answers of a client process", &mut self.listening).await??? {
            // The judge sees what it did not do.
            self.signal(Signal::KILL)?;
            self.child.wait().await?;
            return Ok(());
        }
        let status = within(PATIENCE, "the end of a client process", self.child.wait()).await??;
        if status.success() {
            Ok(())
        } else {
            Err(Stop::failed(format_args!("{} ended with {status}", self.name)))
        }
    }
}

async fn tell(commands: &AsyncMutex<ChildStdin>, told: &Told) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    commands.lock().await.write_all(&line).await
}

async fn listen(
    said: ChildStdout,
    commands: Arc<AsyncMutex<ChildStdin>>,
    heard: impl Fn(Event),
    shelf: Shelf,
) {
    let mut lines = BufReader::new(said);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line).await;
        // A line without an end is what a killed process was about to say.
        if read.is_err() || line.last() != Some(&b'\n') {
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(Said::Note(event)) => heard(event),
            Ok(Said::Ask { id, lane, name, token, over }) => {
                let Some(token) = Token::new(token) else { continue };
                let value = match over {
                    None => shelf.read(&lane, &name, token).await,
                    Some(over) => shelf.write(&lane, &name, token, over).await.then_some(over + 1),
                };
                // A frozen process must not hold up what others have to say, and a dead one needs no answer.
                let commands = Arc::clone(&commands);
                tokio::spawn(async move { tell(&commands, &Told::Answer { id, value }).await });
            }
            Err(error) => panic!("a client process said {:?}: {error}", String::from_utf8_lossy(&line)),
        }
    }
}

/// Whether this process was started to play a client.
pub(crate) fn is_client() -> bool {
    env::var_os(PART).is_some()
}

/// Plays a client, and ends the process, if this process was started for that; returns otherwise.
///
/// The run's own program does this by itself. A program with a `main` of its own that calls [`run`](super::run) calls
/// this first, before it reads arguments or prints anything.
pub async fn play_client_if_asked<Making>(subject: impl FnOnce(String) -> Making)
where
    Making: Future<Output = Result<Arc<dyn Subject>, crate::BoxError>>,
{
    if !is_client() {
        return;
    }
    match play(subject).await {
        Ok(()) => std::process::exit(0),
        Err(stop) => {
            eprintln!("a client process of the fault run: {stop:?}");
            std::process::exit(1);
        }
    }
}

async fn play<Making>(subject: impl FnOnce(String) -> Making) -> Check
where
    Making: Future<Output = Result<Arc<dyn Subject>, crate::BoxError>>,
{
    parent::end_with_it()?;
    // A write beyond the limit sends it, and it would end this process. The handler stays when its receiver is gone.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    let part: Part = serde_json::from_str(&env::var(PART)?)?;
    let subject = subject(part.subject).await.map_err(|error| Stop::failed(chain(&*error)))?;
    let recorder = Recorder::to(|event| say(&Said::Note(event)));
    let resource = Arc::new(Remote::default());
    let (stop, told) = (CancellationToken::new(), parent::heard(|line| serde_json::from_str(&line).ok()));
    tokio::spawn(obey(told, Arc::clone(&resource), stop.clone()));
    let names = part.names.into();
    let (lease, seed) = (part.lease, part.seed);
    let setting = Setting { subject, names, lease, seed, recorder, resource, program: None, beside: None };
    if let Some(client) = Client::start(&setting, &part.client, &stop).await {
        stop.cancelled().await;
        client.close().await;
    }
    Ok(())
}

async fn obey(mut told: mpsc::UnboundedReceiver<Told>, resource: Arc<Remote>, stop: CancellationToken) {
    while let Some(told) = told.recv().await {
        match told {
            Told::Answer { id, value } => resource.answer(id, value),
            Told::Stop => stop.cancel(),
        }
    }
}

fn say(said: &Said) {
    let Ok(line) = serde_json::to_string(said) else { unreachable!("every note can be written") };
    parent::say(&line);
}

/// The resource, as a client process reaches it.
#[derive(Default)]
struct Remote {
    last: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Option<u64>>>>,
}

impl Remote {
    async fn ask(&self, lane: &str, name: &str, token: Token, over: Option<u64>) -> Option<u64> {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let token = token.get();
        say(&Said::Ask { id, lane: lane.to_owned(), name: name.to_owned(), token, over });
        answer.await.ok().flatten()
    }

    fn answer(&self, id: u64, value: Option<u64>) {
        if let Some(sender) = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
            // The asking task may have ended.
            let _ = sender.send(value);
        }
    }
}

#[async_trait]
impl Resource for Remote {
    async fn read(&self, lane: &str, name: &str, token: Token) -> Option<u64> {
        self.ask(lane, name, token, None).await
    }

    async fn write(&self, lane: &str, name: &str, token: Token, over: u64) -> bool {
        self.ask(lane, name, token, Some(over)).await.is_some()
    }
}
