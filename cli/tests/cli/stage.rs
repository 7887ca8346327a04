//! A directory with a store of its own, and `tenure` processes over it.

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        signal::{Signal, kill, killpg},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};
use sqlx::{Connection, Executor, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long anything may take that is sure to come. Only a test that fails waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

pub(crate) struct Stage(TempDir);

impl Stage {
    pub(crate) fn new() -> Self {
        // In memory where that can be: what else writes to the disk would decide how long a commit takes.
        let memory = Path::new("/dev/shm");
        Self(if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap())
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.0.path()
    }

    /// Makes a closed gate of this name.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        Gate(path)
    }

    /// `tenure` with these arguments, over this stage's store.
    pub(crate) fn tenure(&self, args: &[&str]) -> Command {
        self.program(Path::new(env!("CARGO_BIN_EXE_tenure")), args)
    }

    /// `tenure` with these arguments, which another program starts: a shell, or `env`.
    pub(crate) fn under(&self, starter: &[&str], args: &[&str]) -> Command {
        let tenure = self.tenure(args);
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(tenure.get_program()).args(tenure.get_args());
        command.current_dir(self.dir()).env("TENURE_STORE", "sqlite:locks.db").stdin(Stdio::null());
        command
    }

    /// Runs a copy of the program.
    pub(crate) fn program(&self, program: &Path, args: &[&str]) -> Command {
        // A background process of a script ignores some signals, and so would all that it starts.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP,INT,QUIT")
            .arg(program)
            .args(args)
            .current_dir(self.dir())
            .env("TENURE_STORE", "sqlite:locks.db")
            .env("HOME", self.dir())
            .env_remove("XDG_STATE_HOME")
            .env("COLUMNS", "100")
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn done(&self, args: &[&str]) -> Done {
        Done::of(&mut self.tenure(args))
    }

    /// Starts a shell script under `tenure run`; `options` are words, the lock's name among them.
    pub(crate) fn script(&self, options: &str, script: &str) -> Running {
        let options: Vec<&str> = options.split(' ').collect();
        self.start(&[&["run"], &options[..], &["--", "/bin/sh", "-c", script]].concat())
    }

    /// A lock's holder, whose command prints its process number.
    pub(crate) fn holder(&self, options: &str) -> Running {
        self.script(options, "echo $$; exec sleep 1000")
    }

    /// Starts it.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(&mut self.tenure(args))
    }

    /// How many rows the table has for names that begin with this.
    pub(crate) fn rows(&self, prefix: &str) -> usize {
        self.in_file(async |connection| {
            let rows = sqlx::query("SELECT 1 FROM tenure_locks WHERE name LIKE ? || '%'").bind(prefix);
            rows.fetch_all(connection).await.unwrap().len()
        })
    }

    /// Takes the table away, as an administrator might.
    pub(crate) fn drop_table(&self) {
        self.in_file(async |connection| {
            connection.execute("DROP TABLE tenure_locks").await.unwrap();
        });
    }

    /// Damages the row of a used name, as another program might. Its holder is then unknown.
    pub(crate) fn damage(&self, name: &str) {
        self.in_file(async |connection| {
            let damage =
                sqlx::query("UPDATE tenure_locks SET record = 'no record' WHERE name = ?").bind(name);
            assert_eq!(damage.execute(connection).await.unwrap().rows_affected(), 1);
        });
    }

    /// Works on the file, which has to be there, past `tenure`.
    fn in_file<T>(&self, work: impl AsyncFnOnce(&mut SqliteConnection) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let file = SqliteConnectOptions::new().filename(self.path("locks.db"));
        runtime.block_on(async {
            let mut connection = SqliteConnection::connect_with(&file).await.unwrap();
            let done = work(&mut connection).await;
            connection.close().await.unwrap();
            done
        })
    }

    /// Locks the whole file, which has to be there, as a foreign program might. The store then fails soon with
    /// [`Frozen::URL`].
    pub(crate) fn freeze(&self) -> Frozen {
        self.frozen(false, "BEGIN IMMEDIATE")
    }

    /// Creates the file, which must not be there, and locks it so that it cannot be opened either.
    pub(crate) fn freeze_new(&self) -> Frozen {
        self.frozen(true, "BEGIN EXCLUSIVE")
    }

    fn frozen(&self, creates: bool, begin: &'static str) -> Frozen {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let file = SqliteConnectOptions::new().filename(self.path("locks.db")).create_if_missing(creates);
        let mut connection = runtime.block_on(SqliteConnection::connect_with(&file)).unwrap();
        runtime.block_on(connection.execute(begin)).unwrap();
        Frozen { runtime, connection }
    }
}

/// A stage's store, locked against writes.
pub(crate) struct Frozen {
    runtime: tokio::runtime::Runtime,
    connection: SqliteConnection,
}

impl Frozen {
    /// The store, for those who do not wait for long until it is thawed.
    pub(crate) const URL: &str = "sqlite:locks.db?busy_timeout=50ms&create_table=false";

    pub(crate) fn thaw(mut self) {
        self.runtime.block_on(self.connection.execute("COMMIT")).unwrap();
    }
}

/// A full pipe that no process reads, as before a pager that was stopped.
pub(crate) struct FullPipe {
    /// Kept open, or who writes would get an error and go on.
    _reader: PipeReader,
    writer: PipeWriter,
}

impl FullPipe {
    pub(crate) fn new() -> Self {
        let (reader, writer) = pipe().unwrap();
        let set = |flags| fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
        set(OFlag::O_NONBLOCK);
        // To the last byte.
        while (&writer).write(b"x").is_ok() {}
        set(OFlag::empty());
        Self { _reader: reader, writer }
    }

    pub(crate) fn writer(&self) -> Stdio {
        self.writer.try_clone().unwrap().into()
    }
}

/// A named pipe. Its reader, such as `read x < gate` in a shell, waits until the gate is opened.
///
/// A gate serves one reader only. A process that another test starts meanwhile has a copy of the writer until it runs
/// its program: a second reader would take that copy for its writer, and read nothing.
pub(crate) struct Gate(PathBuf);

impl Gate {
    /// Waits for the reader, and lets it go on.
    #[track_caller]
    pub(crate) fn open(self) {
        writeln!(self.writer(), "x").unwrap();
    }

    /// Waits for the reader, and returns the writer. The reader reads on until the writer is dropped.
    #[track_caller]
    pub(crate) fn writer(self) -> File {
        let mut writer = None;
        until("a process reads from the gate", || {
            // Without a reader, opening it this way fails.
            let opened = File::options().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&self.0);
            writer = opened.ok();
            writer.is_some()
        });
        writer.unwrap()
    }
}

/// How a process ended, and what it said.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(!err.contains("panicked"), "{err}");
        Self { code: status.code(), out, err }
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
}

/// A process that runs. Killed when the test ends.
pub(crate) struct Running {
    child: Child,
    out: Receiver<String>,
    err: Arc<Mutex<String>>,
    /// Ends when all is in `err`.
    reads_err: Option<thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_on(Stdio::piped(), command)
    }

    /// Starts it with such a stderr.
    pub(crate) fn start_on(stderr: Stdio, command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let (sender, out) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let (stderr, err) = (child.stderr.take(), Arc::<Mutex<String>>::default());
        let said = Arc::clone(&err);
        let reads_err = stderr.map(|stderr| {
            thread::spawn(move || {
                let lines = BufReader::new(stderr).lines().map_while(Result::ok);
                lines.for_each(|line| writeln!(said.lock().unwrap(), "{line}").unwrap());
            })
        });
        Self { child, out, err, reads_err }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// The next line that it prints.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.out.recv_timeout(PATIENCE).expect("it prints a line")
    }

    /// Waits until it has said this on stderr.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        until(text, || self.err.lock().unwrap().contains(text));
    }

    /// Its stderr so far.
    pub(crate) fn said(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// The next line, which is a number.
    #[track_caller]
    pub(crate) fn number<T: std::str::FromStr>(&self) -> T {
        let line = self.line();
        line.parse().unwrap_or_else(|_| panic!("{line:?} is not a number"))
    }

    /// Waits until the process and all that inherited its stdout have ended.
    #[track_caller]
    pub(crate) fn silence(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.out.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("something still has its stdout"),
            }
        }
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        let status = self.status();
        let out = self.out.iter().collect::<Vec<_>>().join("\n");
        self.reads_err.take().map(thread::JoinHandle::join).transpose().unwrap();
        let err = self.err.lock().unwrap().clone();
        assert!(!err.contains("panicked"), "{err}");
        Done { code: status.code(), out, err }
    }

    #[track_caller]
    fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "it does not end");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The group of its command, which prints its process number first.
    #[track_caller]
    pub(crate) fn group(&self) -> Group {
        Group(Pid::from_raw(self.number()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its command goes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process group of a command.
#[derive(Clone, Copy)]
pub(crate) struct Group(Pid);

impl Group {
    pub(crate) fn signal(self, signal: Signal) {
        killpg(self.0, signal).unwrap();
    }

    pub(crate) fn has_ended(self) -> bool {
        killpg(self.0, None) == Err(Errno::ESRCH)
    }

    /// Kills it when that is dropped, however the test ends: also what is stopped, and what the command started.
    pub(crate) fn ends(self) -> Ends {
        Ends(self)
    }
}

/// The end of a process group.
pub(crate) struct Ends(Group);

impl Drop for Ends {
    fn drop(&mut self) {
        // As a rule it has ended by itself.
        let _ = killpg(self.0.0, Signal::SIGKILL);
    }
}

/// The kernel's view of a process, from `/proc/PID/status`.
pub(crate) fn status(pid: Pid, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?.trim().to_owned())
}

/// A set of signals, as the kernel writes it.
#[track_caller]
pub(crate) fn mask(hexadecimal: &str) -> u64 {
    u64::from_str_radix(hexadecimal, 16).unwrap()
}

/// A signal's place in such a set.
pub(crate) fn bit(signal: Signal) -> u64 {
    1 << (signal as u64 - 1)
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(2));
    }
}
