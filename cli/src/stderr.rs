//! Messages on stderr. `tenure` never waits for a reader: acting comes before reporting.
//!
//! A pipe without a reader and a terminal stopped by Ctrl-S block a writer without a limit. So only one thread writes;
//! all others put their messages into a bounded channel and go on. When the channel is full,
//! messages are dropped, and their number is reported as soon as there is a reader again. (`tracing-appender` has such
//! a thread too, but if its guard is dropped while the writer is blocked, it reports that on stderr itself, and hangs.)

use indicatif::ProgressBar;
use nix::sys::signal::{SigSet, Signal};
use std::{
    io::{self, Write},
    panic,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};
use tokio::{sync::oneshot, time::timeout};

/// How many messages wait for a reader.
const CAPACITY: usize = 1024;
/// How long the end of the process waits for a reader.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the start of a command waits until the moving line is cleared.
const CLEARING: Duration = Duration::from_millis(200);
/// How often that line moves.
const TICK: Duration = Duration::from_millis(100);

static VOICE: OnceLock<Voice> = OnceLock::new();

/// Messages are written as long as this lives, and for a short while after it is dropped.
pub(crate) struct Stderr(());

impl Stderr {
    /// Starts the thread that writes. It reports panics too: the default hook would wait for a reader before the panic
    /// ends the command.
    pub(crate) fn open() -> io::Result<Self> {
        let voice = Voice::of(io::stderr(), CAPACITY)?;
        if VOICE.set(voice).is_ok() {
            panic::set_hook(Box::new(|panic| say(&panic.to_string())));
        }
        Ok(Self(()))
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        let (written, all) = sync_channel(1);
        // The process ends even without a reader.
        when_written(move || {
            let _ = written.send(());
        });
        let _ = all.recv_timeout(LAST_WORDS);
    }
}

/// How much `tenure` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Volume {
    /// Only the reasons for a failure, and a warning if no store is named.
    Errors,
    /// Also warnings, and news while waiting.
    #[default]
    Warnings,
    /// Also successes.
    Everything,
}

/// Sets how much `tenure` prints from now on.
pub(crate) fn set_volume(volume: Volume) {
    if let Some(voice) = VOICE.get() {
        *voice.shared.volume.lock().unwrap_or_else(PoisonError::into_inner) = volume;
    }
}

/// How much `tenure` prints.
pub(crate) fn volume() -> Volume {
    let voice = VOICE.get();
    voice.map(|voice| *voice.shared.volume.lock().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
}

/// Prints an error. Never waits.
pub(crate) fn say(text: &str) {
    write(format!("tenure: {text}\n").into_bytes());
}

/// Prints a message that is no error, unless only errors are wanted. Never waits.
pub(crate) fn mention(text: &str) {
    if volume() > Volume::Errors {
        say(text);
    }
}

/// Prints a detail of the last message. Never waits.
pub(crate) fn detail(text: &str) {
    write(format!("  {text}\n").into_bytes());
}

/// Writes whole lines. Never waits.
pub(crate) fn write(lines: Vec<u8>) {
    if let Some(voice) = VOICE.get() {
        voice.write(lines);
    }
}

/// Shows a moving line during a wait, unless only errors are wanted, or clears it. Never blocks.
pub(crate) fn show(line: Option<String>) {
    let line = line.filter(|_| volume() > Volume::Errors);
    if let Some(voice) = VOICE.get() {
        voice.show(line);
    }
}

/// Waits a moment until everything is written, so that it does not mix with a command's output. The command begins even
/// without a reader.
pub(crate) async fn written() {
    let (written, all) = oneshot::channel();
    when_written(move || {
        let _ = written.send(());
    });
    let _ = timeout(CLEARING, all).await;
}

fn when_written(tell: impl FnOnce() + Send + 'static) {
    if let Some(voice) = VOICE.get() {
        // A full channel means that there is no reader; dropping `tell` ends the wait as well.
        voice.send(Message::Written(Box::new(tell)));
    }
}

enum Message {
    Lines(Vec<u8>),
    /// The moving line has changed.
    Moving,
    /// To be called when everything before it is written.
    Written(Box<dyn FnOnce() + Send>),
}

/// The handle that all threads write with.
struct Voice {
    messages: SyncSender<Message>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// How many messages were dropped and not reported yet.
    dropped: AtomicUsize,
    /// A state, not a message, so that clearing it cannot be dropped.
    moving: Mutex<Option<String>>,
    volume: Mutex<Volume>,
}

impl Voice {
    fn of(writer: impl Write + Send + 'static, capacity: usize) -> io::Result<Self> {
        let (messages, receiver) = sync_channel(capacity);
        let shared = Arc::new(Shared::default());
        let scribe = Scribe { messages: receiver, shared: Arc::clone(&shared), writer, bar: None };
        thread::Builder::new().name("tenure-stderr".to_owned()).spawn(|| scribe.write_all())?;
        Ok(Self { messages, shared })
    }

    /// Whether there was room for the message; if not, it is dropped.
    fn send(&self, message: Message) -> bool {
        self.messages.try_send(message).is_ok()
    }

    fn write(&self, lines: Vec<u8>) {
        if !self.send(Message::Lines(lines)) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn show(&self, line: Option<String>) {
        *self.shared.moving.lock().unwrap_or_else(PoisonError::into_inner) = line;
        // If there is no room, the writer looks at it after the messages in the channel.
        self.send(Message::Moving);
    }
}

/// The thread that writes.
struct Scribe<W> {
    messages: Receiver<Message>,
    shared: Arc<Shared>,
    writer: W,
    bar: Option<ProgressBar>,
}

impl<W: Write> Scribe<W> {
    fn write_all(mut self) {
        // A terminal may stop background processes that write to it (`stty tostop`), which would stop the threads that
        // must act. If this fails, that can happen.
        let _ = SigSet::from(Signal::SIGTTOU).thread_block();
        loop {
            let message = match &self.bar {
                Some(_) => self.messages.recv_timeout(TICK),
                None => self.messages.recv().map_err(RecvTimeoutError::from),
            };
            self.draw();
            match message {
                Ok(Message::Lines(lines)) => self.write(&lines),
                Ok(Message::Written(tell)) => tell(),
                Ok(Message::Moving) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let dropped = self.shared.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                let lost = format!("tenure: messages dropped because stderr was blocked: {dropped}\n");
                self.write(lost.as_bytes());
            }
        }
    }

    /// If writing fails, there is nowhere to report it.
    fn write(&mut self, lines: &[u8]) {
        let mut write = || drop(self.writer.write_all(lines));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Shows the moving line as it is now.
    fn draw(&mut self) {
        let line = self.shared.moving.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match line {
            Some(line) => {
                let bar = self.bar.get_or_insert_with(ProgressBar::new_spinner);
                bar.set_message(line);
                bar.tick();
            }
            None => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// Takes a write only when the reader reads, as a full pipe does.
    struct Pipe {
        begun: Sender<()>,
        read: Receiver<()>,
        written: Sender<String>,
    }

    impl Write for Pipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            let _ = self.begun.send(());
            // Its end is read to the end.
            let _ = self.read.recv();
            let _ = self.written.send(String::from_utf8_lossy(text).into_owned());
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn messages_without_room_are_dropped_and_counted() {
        let ((begun, begins), (reads, read), (written, lines)) = (channel(), channel(), channel());
        let voice = Voice::of(Pipe { begun, read, written }, 2).unwrap();
        let say = |text: &str| voice.write(format!("{text}\n").into_bytes());
        say("first");
        begins.recv().unwrap();
        for text in ["second", "third", "dropped", "dropped too"] {
            say(text);
        }
        drop(reads);
        let mut told: Vec<String> = lines.iter().take(4).collect();
        // It comes as soon as there is a reader, before the messages in the channel.
        assert_eq!(told.remove(1), "tenure: messages dropped because stderr was blocked: 2\n");
        assert_eq!(told, ["first\n", "second\n", "third\n"]);
    }
}
