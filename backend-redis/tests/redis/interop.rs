//! Another program's client on the same keys: redis-py's `Lock`.

use crate::{in_time, server::Server};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};
use tenure_core::Locks;
use tenure_redis::RedisBackend;
use tenure_testbed::python;

/// A program that uses redis-py.
struct Peer {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// `None` where redis-py cannot be had.
    fn start(server: &Server) -> Option<Self> {
        let python = python("redis-py", Path::new(env!("CARGO_TARGET_TMPDIR")))?;
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
