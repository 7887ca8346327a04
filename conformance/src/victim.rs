//! Another process that holds locks and can be killed.

use crate::{
    Form, Subjects,
    check::{Check, Stop, chain, ensure, within},
    faults,
    parent::{self, say},
    pause,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{env, future::Future, io::Write, time::Duration};
use tenure_core::{Guard, Lock, Locks, LossCause, Token};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

/// Names the subject whose locks a victim is to hold. A process in which it is set is a victim.
const SUBJECT: &str = "TENURE_CONFORMANCE_VICTIM";
/// The form in which it is to hold them, as JSON.
const FORM: &str = "TENURE_CONFORMANCE_FORM";
/// How long a victim may take for one command.
const PATIENCE: Duration = Duration::from_secs(30);

/// Another process that holds locks of the store under test: this very program, started once more.
///
/// It reads one command per line from its standard input, and answers each with one line on its standard output. It
/// ends when its input does, so it does not outlive the suite. On Linux that is also true of one that is stopped.
pub(crate) struct Victim {
    process: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Victim {
    pub(crate) async fn start(subject: &str, form: Form, environment: Vec<(String, String)>) -> Check<Self> {
        let part = [(SUBJECT, subject.to_owned()), (FORM, serde_json::to_string(&form)?)];
        let environment = environment.iter().map(|(name, value)| (&**name, value.clone()));
        let (process, commands, answers) = parent::start(&env::current_exe()?, environment.chain(part))?;
        let mut victim = Self { process, commands, answers: BufReader::new(answers).lines() };
        let greeting = victim.answer().await?;
        ensure!(
            greeting == "ready",
            "another process that holds locks began with {greeting:?}, not \"ready\": `main` must call \
             `tenure_conformance::main` or `play_victim_if_asked` before anything else"
        );
        Ok(victim)
    }

    async fn answer(&mut self) -> Check<String> {
        self.answer_within(PATIENCE).await
    }

    async fn answer_within(&mut self, patience: Duration) -> Check<String> {
        let line = within(patience, "an answer of the other process", self.answers.next_line()).await??;
        let line = line.ok_or_else(|| Stop::failed("the other process ended by itself"))?;
        match line.strip_prefix("error ") {
            Some(error) => Err(Stop::failed(format_args!("in another process: {error}"))),
            None => Ok(line),
        }
    }

    async fn send(&mut self, command: &str) -> Check {
        Ok(self.commands.write_all(format!("{command}\n").as_bytes()).await?)
    }

    async fn tell(&mut self, command: &str) -> Check<String> {
        self.send(command).await?;
        self.answer().await
    }

    /// Acquires a lock, with renewal, and keeps it. A victim keeps one lock at a time.
    pub(crate) async fn hold(&mut self, name: &str, lease: Duration) -> Check<Token> {
        let token = self.tell(&format!("hold {} {name}", lease.as_millis())).await?;
        Ok(Token::try_from(token.parse::<i64>()?)?)
    }

    /// Whether the victim believes that it holds its lock, as its guard says.
    pub(crate) async fn is_held(&mut self) -> Check<bool> {
        Ok(self.tell("held?").await? == "true")
    }

    /// Stops the case if this lock, which excludes the victim's, is granted while the victim holds its own. On a busy
    /// machine the victim may have lost it.
    pub(crate) async fn keeps_out(&mut self, lock: &Lock) -> Check {
        let Some(second) = lock.try_acquire().await? else { return Ok(()) };
        ensure!(
            !self.is_held().await?,
            "granted while another process holds it, expected a refusal: {second:?}"
        );
        Ok(second.release().await?)
    }

    /// Why the victim believes that its lock is lost, in one word; `None` if it does not.
    pub(crate) async fn loss(&mut self) -> Check<Option<String>> {
        let cause = self.tell("loss?").await?;
        Ok((cause != "none").then_some(cause))
    }

    /// Releases the lock.
    pub(crate) async fn release(&mut self) -> Check {
        self.tell("release").await.map(drop)
    }

    /// Acquires the lock `rounds` times, and each time appends two lines to the file at `path`, with a pause between
    /// them.
    pub(crate) async fn append(&mut self, name: &str, rounds: usize, path: &str) -> Check {
        self.send(&format!("append {rounds} {name}\t{path}")).await?;
        // Each round waits for its turn, and others have as many.
        self.answer_within(PATIENCE * 8).await.map(drop)
    }

    /// Stops the process (SIGSTOP), as when its machine is paused.
    pub(crate) fn stop(&self) -> Check {
        self.signal(Signal::STOP)
    }

    /// Resumes the process.
    pub(crate) fn resume(&self) -> Check {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Check {
        let pid = self.process.id().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let pid = pid.ok_or_else(|| Stop::failed("the other process has ended"))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Kills the process (SIGKILL), with no chance to release anything, and waits until it is gone.
    pub(crate) async fn kill(mut self) -> Check {
        Ok(self.process.kill().await?)
    }
}

/// If this process is a victim, plays its part and ends the process; otherwise returns.
///
/// [`main`](crate::main) does this by itself. A program with its own `main` that calls [`run`](crate::run) calls this
/// first, before it reads arguments or prints anything: cases that need other processes start the program again.
pub async fn play_victim_if_asked<Making>(subjects: impl FnOnce() -> Making)
where
    Making: Future<Output = Subjects>,
{
    if !is_victim() {
        return;
    }
    if faults::is_client() {
        let named = |name: String| async move {
            let subject = subjects().await.named(&name).cloned();
            subject.ok_or_else(|| format!("no subject is named {name:?}").into())
        };
        return faults::play_client_if_asked(named).await;
    }
    let outcome = match parent::end_with_it() {
        Ok(()) => play(subjects().await).await,
        stop => stop,
    };
    if let Err(Stop::Failed(error)) = outcome {
        say(&format!("error {error}"));
    }
    std::process::exit(0);
}

/// Whether this process is a victim. A program may ask before it makes a runtime.
#[must_use]
pub fn is_victim() -> bool {
    env::var_os(SUBJECT).is_some() || faults::is_client()
}

async fn play(subjects: Subjects) -> Check {
    let name = env::var(SUBJECT)?;
    let subject =
        subjects.named(&name).ok_or_else(|| Stop::failed(format_args!("no subject is named {name:?}")))?;
    let backend = subject.backend().await.map_err(|error| Stop::failed(chain(&*error)))?;
    let (locks, form) = (Locks::new(backend), serde_json::from_str(&env::var(FORM)?)?);
    let lock = |name: &str| Form::of(form, &locks, name);
    let mut commands = parent::heard(Some);
    let mut guard = None;
    say("ready");
    while let Some(command) = commands.recv().await {
        match obey(&lock, &mut guard, &command).await {
            Ok(answer) => say(&answer),
            Err(Stop::Failed(error)) => say(&format!("error {}", error.replace('\n', " "))),
            Err(Stop::Lacks(need)) => say(&format!("error {need}")),
        }
    }
    Ok(())
}

async fn obey(lock: &impl Fn(&str) -> Lock, guard: &mut Option<Guard>, command: &str) -> Check<String> {
    let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
    match verb {
        "hold" => {
            let (millis, name) = rest.split_once(' ').unwrap_or_default();
            let lock = lock(name).lease(Duration::from_millis(millis.parse()?)).wait(PATIENCE / 2);
            let taken = guard.insert(lock.acquire().await?);
            Ok(taken.token().to_string())
        }
        "held?" => Ok(guard.as_ref().is_some_and(|guard| guard.is_held()).to_string()),
        "loss?" => {
            let loss = guard.as_ref().and_then(|guard| guard.loss());
            Ok(loss.map_or("none", LossCause::as_str).to_owned())
        }
        "release" => match guard.take() {
            Some(guard) => guard.release().await.map(|()| "released".to_owned()).map_err(Stop::from),
            None => Err(Stop::failed("this process holds no lock")),
        },
        "append" => {
            let (rounds, rest) = rest.split_once(' ').unwrap_or_default();
            let (name, path) = rest.split_once('\t').unwrap_or_default();
            append(&lock(name), rounds.parse()?, path).await.map(|()| "done".to_owned())
        }
        _ => Err(Stop::failed(format_args!("unknown command {command:?}"))),
    }
}

async fn append(lock: &Lock, rounds: usize, path: &str) -> Check {
    let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
    let pid = std::process::id();
    for round in 0..rounds {
        let guard = lock.clone().wait(PATIENCE * 4).acquire().await?;
        writeln!(file, "begin {pid} {round}")?;
        pause::settle(Duration::from_millis(1)).await;
        writeln!(file, "end {pid} {round}")?;
        guard.release().await?;
    }
    Ok(())
}
