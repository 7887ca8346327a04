//! A client that is any program, told what to do on its standard input and heard on its standard output.
//!
//! | the run writes | the program answers |
//! |---|---|
//! | `acquire NAME LEASE_MS WAIT_MS` | `held [TOKEN [DEADLINE]]`, `busy` or `error TEXT` |
//! | `release NAME` | `released`, `lost [CAUSE]` or `error TEXT` |
//!
//! While it holds, it may also say `lost NAME [CAUSE]` or `renewed NAME DEADLINE`. The end of its input tells it to end.

use super::{
    client::{Setting, patience, seeded},
    schedule::between,
};
use crate::{
    check::{Check, Stop},
    judge::{Event, Outcome, Stamp, What},
};
use fastrand::Rng;
use std::{pin::pin, process::Stdio, time::Duration};
use tenure_core::{Mode, Token};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy, sink},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// A program, as the run drives it: one request after the other.
pub(super) struct Program {
    lane: String,
    setting: Setting,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// As far as it has been read.
    line: Vec<u8>,
    stop: CancellationToken,
    rng: Rng,
    calls: u64,
}

/// Why nothing more comes from a program.
pub(super) enum End {
    /// Its output has ended.
    Output,
    /// Long after it was to stop it has not answered.
    Hangs,
    /// Its line is no answer.
    Failed(Stop),
}

impl From<Stop> for End {
    fn from(stop: Stop) -> Self {
        Self::Failed(stop)
    }
}

struct Held {
    name: String,
    claim: String,
    token: u64,
    heard: Stamp,
}

impl Program {
    /// Starts this command, with the store's URL in place of `{url}`. There is no shell between them. It leads a process
    /// group, so signals reach its children, too.
    pub(super) fn start(
        command: &str,
        setting: &Setting,
        lane: &str,
        stop: CancellationToken,
    ) -> Check<(Child, Self)> {
        let url = setting.subject.url();
        if url.is_none() && command.contains("{url}") {
            return Err(Stop::failed("{url}: this store has no URL"));
        }
        let url = url.unwrap_or_default();
        let mut words = command.split_whitespace().map(|word| word.replace("{url}", &url));
        let program = words.next().unwrap_or_default();
        let mut child = Command::new(&program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Stop::failed(format_args!("the client {program:?} does not start: {error}")))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Stop::failed("the client program started without pipes"));
        };
        let (lane, output, line) = (lane.to_owned(), BufReader::new(output), Vec::new());
        let (setting, rng) = (setting.clone(), seeded(setting.seed, &lane));
        Ok((child, Self { lane, setting, input, output, line, stop, rng, calls: 0 }))
    }

    /// Lets it acquire, hold and release until it is stopped or its output ends; `true` if it hangs instead.
    pub(super) async fn work(mut self) -> Check<bool> {
        let outcome = match self.take_turns().await {
            Ok(()) => self.close().await,
            Err(end) => Err(end),
        };
        match outcome {
            Ok(()) | Err(End::Output) => Ok(false),
            Err(End::Hangs) => Ok(true),
            Err(End::Failed(stop)) => Err(stop),
        }
    }

    async fn take_turns(&mut self) -> Result<(), End> {
        while !self.stop.is_cancelled() {
            if let Some(held) = self.take().await? {
                self.hold(&held).await?;
                self.release(held).await?;
            }
            sleep(between(&mut self.rng, Duration::from_millis(1), self.setting.lease / 10)).await;
        }
        Ok(())
    }

    async fn take(&mut self) -> Result<Option<Held>, End> {
        let lease = self.setting.lease;
        let name = self.setting.names[self.rng.usize(..self.setting.names.len())].clone();
        let wait = match self.rng.u8(..5) {
            0 => Duration::ZERO,
            _ => between(&mut self.rng, lease / 4, lease * 4),
        };
        self.calls += 1;
        let call = self.calls;
        // Without an answer, one attempt ends after a lease. The first takes as long as the program takes to start.
        let by = Stamp::now() + if wait.is_zero() { lease } else { wait };
        self.note(What::Asks { call, name: name.clone(), by: Some(by).filter(|_| call > 1) });
        let answer = self.acquire(&name, wait).await?;
        if let Some((token, until)) = held(&answer) {
            let (claim, mode, label) = (format!("{} {call}", self.lane), Mode::Exclusive, String::new());
            let held = (name.clone(), claim.clone());
            self.note(What::Granted { call, name, claim, mode, token, until, lease, label });
            return Ok(Some(Held { name: held.0, claim: held.1, token, heard: Stamp::now() }));
        }
        match words(&answer)[..] {
            ["busy"] | ["error", ..] => self.note(What::Ended { call, why: answer }),
            _ => return Err(self.rubbish(&answer)),
        }
        Ok(None)
    }

    /// Uses what the lock protects, until it has had its time or the lock is lost.
    async fn hold(&mut self, held: &Held) -> Result<(), End> {
        let lease = self.setting.lease;
        let longest = match self.rng.u8(..10) {
            0..=3 => lease / 10,
            4..=7 => lease,
            _ => lease * 3,
        };
        let after = between(&mut self.rng, Duration::from_millis(1), longest);
        let think = between(&mut self.rng, Duration::ZERO, lease / 20);
        // Without a token it cannot pass a fence.
        let token = Token::new(held.token).filter(|_| self.rng.u8(..4) == 0);
        let (lane, resource, stop) = (self.lane.clone(), self.setting.resource.clone(), self.stop.clone());
        let mut using = pin!(async {
            if let Some(token) = token
                && let Some(value) = resource.read(&lane, &held.name, token).await
            {
                sleep(think).await;
                resource.write(&lane, &held.name, token, value).await;
            }
            sleep(after).await;
        });
        loop {
            let line = tokio::select! {
                biased;
                line = self.line() => line?,
                () = stop.cancelled() => return Ok(()),
                () = &mut using => return Ok(()),
            };
            let (claim, token) = (held.claim.clone(), held.token);
            match words(&line)[..] {
                ["lost", name, ref cause @ ..] if name == held.name => {
                    self.note(What::Lost { claim, token, cause: cause.join(" ") });
                    return Ok(());
                }
                ["renewed", name, until] if name == held.name => {
                    let until = until.parse().map(deadline).map_err(|_| self.rubbish(&line))?;
                    // It may have said so long before it is heard.
                    let (at, client) = (Stamp::now().min(until).max(held.heard), self.lane.clone());
                    let what = What::Holds { claim, token, until };
                    self.setting.recorder.add(Event { at, client, what });
                }
                _ => return Err(self.rubbish(&line)),
            }
        }
    }

    async fn release(&mut self, Held { name, claim, token, .. }: Held) -> Result<(), End> {
        self.note(What::Releases { claim: claim.clone(), token });
        let answer = self.give_back(&name).await?;
        let outcome = match words(&answer)[..] {
            ["released"] => Outcome::Released,
            ["lost"] => Outcome::Lost(answer),
            ["lost", cause] => Outcome::Lost(cause.to_owned()),
            ["error", ..] => Outcome::Failed(answer),
            _ => return Err(self.rubbish(&answer)),
        };
        self.note(What::Released { claim, token, outcome });
        Ok(())
    }

    pub(super) async fn acquire(&mut self, name: &str, wait: Duration) -> Result<String, End> {
        let lease = self.setting.lease.as_millis();
        self.ask(format!("acquire {name} {lease} {}\n", wait.as_millis()), wait).await
    }

    pub(super) async fn give_back(&mut self, name: &str) -> Result<String, End> {
        self.ask(format!("release {name}\n"), Duration::ZERO).await
    }

    /// The answer to a request that may take so long, past what it said of an earlier hold.
    async fn ask(&mut self, request: String, wait: Duration) -> Result<String, End> {
        // If it has ended, so does its output.
        let _ = self.input.write_all(request.as_bytes()).await;
        let (stop, patience) = (self.stop.clone(), wait + patience(self.setting.lease));
        let mut hangs = pin!(async {
            stop.cancelled().await;
            sleep(patience).await;
        });
        loop {
            let line = tokio::select! {
                line = self.line() => line?,
                () = &mut hangs => return Err(End::Hangs),
            };
            let names = &self.setting.names;
            if !matches!(words(&line)[..], ["lost" | "renewed", name, ..] if names.iter().any(|known| known == name))
            {
                return Ok(line);
            }
        }
    }

    /// The next line. One that does not end is what a killed program was about to say.
    async fn line(&mut self) -> Result<String, End> {
        self.output.read_until(b'\n', &mut self.line).await.map_err(Stop::from)?;
        let line = self.line.strip_suffix(b"\n").ok_or(End::Output)?;
        let line = String::from_utf8_lossy(line).into_owned();
        self.line.clear();
        Ok(line)
    }

    /// Ends its input, and waits for the end of its output.
    async fn close(self) -> Result<(), End> {
        let Self { lane, setting, input, mut output, .. } = self;
        setting.recorder.note(&lane, What::Closes);
        drop(input);
        let ended = timeout(patience(setting.lease), copy(&mut output, &mut sink())).await;
        ended.map_err(|_| End::Hangs)?.map_err(Stop::from)?;
        setting.recorder.note(&lane, What::Closed);
        Ok(())
    }

    pub(super) fn rubbish(&self, line: &str) -> End {
        End::Failed(Stop::failed(format_args!("the client {} said {line:?}, which is no answer", self.lane)))
    }

    fn note(&self, what: What) {
        self.setting.recorder.note(&self.lane, what);
    }
}

pub(super) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Token and deadline of `held [TOKEN [DEADLINE]]`; none is written as `-`, or left out.
fn held(answer: &str) -> Option<(u64, Stamp)> {
    let words = words(answer);
    let ["held", ref numbers @ ..] = words[..] else { return None };
    let number = |place: usize| numbers.get(place).filter(|number| **number != "-");
    let token = number(0).map_or(Ok(0), |token| token.parse());
    let until = number(1).map_or(Ok(Stamp::NEVER), |until| until.parse().map(deadline));
    token.ok().zip(until.ok())
}

/// A deadline in milliseconds of the clock of [`Stamp`].
fn deadline(millis: u64) -> Stamp {
    Stamp::ZERO + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offer_is_read_as_written(token: Option<u64>, millis in 0..u64::MAX / 1_000_000, extra in "( [a-z]{1,3})?") {
            let word = token.map_or("-".to_owned(), |token| token.to_string());
            let until = Stamp::ZERO + Duration::from_millis(millis);
            prop_assert_eq!(held(&format!("held {word} {millis}{extra}")), Some((token.unwrap_or(0), until)));
            prop_assert_eq!(held(&format!("held {word}")), Some((token.unwrap_or(0), Stamp::NEVER)));
        }

        #[test]
        fn other_line_is_no_offer(line in ".*|(held|busy|lost)( [0-9+-]{0,22}){0,3}") {
            if let Some((token, _)) = held(&line) {
                let words = words(&line);
                prop_assert_eq!(words[0], "held");
                let written = words.get(1).filter(|word| **word != "-").map_or(Ok(0), |word| word.parse());
                prop_assert_eq!(written, Ok(token));
            }
        }
    }
}
