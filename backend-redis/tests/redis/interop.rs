//! Another program's client on the same keys: redis-py's `Lock`.

use crate::{in_time, server::Server};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};
use tenure_core::Locks;
use tenure_redis::RedisBackend;

/// The version that is installed for the tests.
const REDIS_PY: &str = "redis==7.1.0";

/// A Python with redis-py: the one that `TENURE_TEST_PYTHON` names, or one in a virtual environment of the tests' own.
fn python() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("TENURE_TEST_PYTHON") {
        return Ok(named.into());
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redis-py");
    let python = directory.join("bin/python");
    let run = |program: &Path, arguments: &[&str]| {
        let ended = Command::new(program).args(arguments).stdout(Stdio::null()).output();
        let ended = ended.map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        if ended.status.success() { Ok(()) } else { Err(said) }
    };
    if run(&python, &["-c", "import redis"]).is_err() {
        run(Path::new("python3"), &["-m", "venv", &directory.display().to_string()])?;
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", REDIS_PY])?;
    }
    Ok(python)
}

/// A program that uses redis-py.
struct Peer {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// `None` where redis-py cannot be had.
    fn start(server: &Server) -> Option<Self> {
        let python = match python() {
            Ok(python) => python,
            Err(error) => {
                tenure_conformance::skip("redis-py", &error).unwrap();
                return None;
            }
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/peer.py");
        let mut process = Command::new(python)
            .arg(script)
            .arg(server.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python");
        let commands = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut peer = Self { process, commands, answers };
        assert!(peer.answer().starts_with("ready"));
        Some(peer)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }

    fn tell(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("it listens");
        self.answer()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn redis_py_excludes_and_is_excluded() {
    let server = Server::start();
    let Some(mut peer) = Peer::start(&server) else { return };
    // The other side's key is the name alone, or begins with what its programmers chose.
    for prefix in ["tenure:", "", "app:locks:"] {
        // A client that no longer waits may listen until its connection is closed. If a lock is released meanwhile, it is
        // let in first, and a try reports busy. So each client has a name of its own.
        for (fair, name) in [(false, "a"), (true, "b")] {
            let key = format!("{prefix}{name}");
            let options = server.options().prefix(prefix).fair(fair);
            let locks = Locks::new(RedisBackend::connect(options).await.unwrap());
            let guard = locks.lock(name).acquire().await.unwrap();
            assert_eq!(peer.tell(&format!("acquire {key} 600")), "False");
            assert_eq!(peer.tell(&format!("release {key}")), "LockError", "it does not own it");
            assert!(guard.is_held());
            guard.release().await.unwrap();
            assert_eq!(peer.tell(&format!("acquire {key} 600")), "True");
            assert!(locks.lock(name).try_acquire().await.unwrap().is_none());
            let [holder] = &locks.holders(name).await.unwrap()[..] else { panic!("one holder") };
            assert!(holder.claim.is_none() && holder.left.unwrap() <= Duration::from_mins(10));
            assert_eq!(peer.tell(&format!("owned {key}")), "True", "a failed attempt changes nothing");
            assert_eq!(peer.tell(&format!("release {key}")), "released");
            let next = locks.lock(name).try_acquire().await.unwrap().expect("it is free");
            next.release().await.unwrap();
            // Its time limit is a lease like any other.
            assert_eq!(peer.tell(&format!("acquire {key} 0.5")), "True");
            let next = in_time("the grant", locks.lock(name).acquire()).await.unwrap();
            assert_eq!(peer.tell(&format!("release {key}")), "LockNotOwnedError");
            assert!(next.is_held());
            next.release().await.unwrap();
        }
    }
}
