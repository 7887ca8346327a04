//! Locks that follow a recipe, beside the bare recipe on the same client library: locks that are free, and from the call
//! that releases to the grant in another process.

use crate::{
    hand_offs::report_hand_offs,
    pinning::server_core,
    process::{Process, now},
    support::{Way, report},
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tenure_core::Locks;
use tenure_testbed::free_ports;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    runtime::Builder,
};

/// The recipe, one request after the other, and nothing else: it looks after no lease or session, and expects no lost
/// answer and no cancelled claim.
pub(crate) trait Recipe: Sized {
    const STORE: &'static str;
    const ROUNDS: u32;
    const CYCLES: u32;

    /// The program and the arguments of a server for clients at the first port.
    fn server(ports: [u16; 2], directory: &Path) -> Vec<String>;

    /// A new client's locks.
    async fn locks(address: &str) -> Locks;

    /// A client past tenure; `None` while the server starts.
    async fn connect(address: &str) -> Option<Self>;

    /// Takes the lock. Returns what releases it.
    async fn acquire(&mut self, lock: &str) -> String;

    async fn release(&mut self, held: &str);
}

/// The argument that starts the other process.
const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 300;
const FREE: &str = "bare-free";
const HANDED_ON: &str = "bare-hand-off";

/// A bench of these locks. Its arguments may name the figures to measure.
pub(crate) fn main<R: Recipe>() {
    let arguments: Vec<String> = std::env::args().collect();
    // As a small program has it: one thread for all tasks.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    if let Some(at) = arguments.iter().position(|argument| argument == CHILD) {
        return runtime.block_on(Box::pin(child::<R>(&arguments[at + 1])));
    }
    let named: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| *wanted == name);
    let server = Server::start::<R>();
    runtime.block_on(async {
        if wanted("uncontended") {
            Box::pin(uncontended::<R>(&server.address)).await;
        }
        if wanted("hand_off") {
            Box::pin(hand_off::<R>(&server.address)).await;
        }
    });
}

/// On a core of its own. Killed when dropped.
struct Server {
    process: Child,
    address: String,
    _directory: TempDir,
}

impl Server {
    fn start<R: Recipe>() -> Self {
        let (directory, ports) =
            (tempfile::tempdir().expect("a directory"), free_ports(2).expect("two ports"));
        let process = Command::new("taskset")
            .args(["-c", &server_core().to_string()])
            .args(R::server([ports[0], ports[1]], directory.path()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("taskset is installed");
        Self { process, address: format!("127.0.0.1:{}", ports[0]), _directory: directory }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn connected<R: Recipe>(address: &str) -> R {
    for _ in 0..100 {
        if let Some(recipe) = R::connect(address).await {
            return recipe;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the server does not answer: is it installed?")
}

async fn uncontended<R: Recipe>(address: &str) {
    let mut bare = connected::<R>(address).await;
    let locks = R::locks(address).await;
    let (mut theirs, mut ours, mut reads) =
        (Way::new("the bare recipe"), Way::new("tenure"), Way::new("tenure, a reader"));
    for _ in 0..R::ROUNDS {
        let cycle = async || {
            let held = bare.acquire(FREE).await;
            bare.release(&held).await;
        };
        theirs.round(R::CYCLES, cycle).await;
        let cycle = async || {
            let guard = locks.lock("free").acquire().await.expect("it is free");
            guard.release().await.expect("it was held");
        };
        ours.round(R::CYCLES, cycle).await;
        let cycle = async || {
            let guard = locks.rw("free").read().acquire().await.expect("it is free");
            guard.release().await.expect("it was held");
        };
        reads.round(R::CYCLES, cycle).await;
    }
    report(&format!("{}: uncontended acquire + release", R::STORE), &theirs, &ours);
    report(&format!("{}: uncontended read + release", R::STORE), &ours, &reads);
    locks.close().await;
}

async fn hand_off<R: Recipe>(address: &str) {
    let mut recipe = connected::<R>(address).await;
    let ours = R::locks(address).await;
    let mut other = Process::start(CHILD, address);
    let (mut theirs, mut own) = (Way::new("the bare recipe"), Way::new("tenure"));
    for _ in 0..SAMPLES {
        let held = recipe.acquire(HANDED_ON).await;
        other.waits("bare").await;
        let begin = now();
        recipe.release(&held).await;
        theirs.rounds.push(other.granted().await.saturating_sub(begin));

        let guard = ours.lock("hand-off").acquire().await.expect("it is free");
        other.waits("tenure").await;
        let begin = now();
        guard.release().await.expect("it was held");
        own.rounds.push(other.granted().await.saturating_sub(begin));
    }
    report_hand_offs(R::STORE, &[theirs, own], 0..1);
    ours.close().await;
}

/// Runs in the other process.
async fn child<R: Recipe>(address: &str) {
    let mut recipe = connected::<R>(address).await;
    let ours = R::locks(address).await;
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let granted = if way == "bare" {
            let held = recipe.acquire(HANDED_ON).await;
            let granted = now();
            recipe.release(&held).await;
            granted
        } else {
            let guard = ours.lock("hand-off").acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
