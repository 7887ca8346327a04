//! Other clients' locks on the same path: both exclude each other.

use crate::{Scene, eventually, in_time, server};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use tokio::task::spawn_blocking;

/// The version that `docs/zookeeper.md` names.
const KAZOO: &str = "kazoo==2.11.0";
const CURATOR: [&str; 3] = ["curator-recipes", "curator-framework", "curator-client"];

#[tokio::test]
async fn kazoo_excludes_and_is_excluded() {
    let Some(python) = kazoo() else { return };
    let script = foreign("kazoo_lock.py");
    exclude_each_other("kazoo", move || {
        let mut command = Command::new(&python);
        command.arg(&script);
        command
    })
    .await;
}

#[tokio::test]
async fn curator_excludes_and_is_excluded() {
    let Some(classes) = curator() else { return };
    let source = foreign("CuratorLock.java");
    exclude_each_other("curator", move || {
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", &classes]).arg(&source);
        command
    })
    .await;
}

async fn exclude_each_other(who: &str, command: impl Fn() -> Command) {
    if !server::available() {
        return;
    }
    let scene = Scene::on(server::shared(), who).await;
    let (locks, path) = (scene.locks().await, scene.path("orders"));
    let start = |how: &str| Foreign::start(command().args([scene.address.as_str(), path.as_str(), how]));

    let guard = locks.lock("orders").acquire().await.unwrap();
    start("try").says("busy").await;
    let waiting = start("wait");
    scene.until_nodes("orders", 2).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let mut holding = waiting.says("held").await;

    assert!(locks.lock("orders").try_acquire().await.unwrap().is_none(), "{who} was passed over");
    let holder = locks.holders("orders").await.unwrap().remove(0);
    assert_eq!((holder.claim, holder.token), (None, None));
    let ours = tokio::spawn({
        let lock = locks.lock("orders");
        async move { lock.acquire().await }
    });
    eventually("both stand in the queue", async || scene.nodes("orders").await.len() == 2).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!ours.is_finished(), "{who} still holds it");
    holding.let_go();
    holding.says("released").await;
    let guard = in_time("our grant", ours).await.unwrap().unwrap();

    // And once more, the other behind us.
    let waiting = start("wait");
    scene.until_nodes("orders", 2).await;
    guard.release().await.unwrap();
    let mut holding = waiting.says("held").await;
    holding.let_go();
    holding.says("released").await;
}

/// Another client's process.
struct Foreign {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Foreign {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    async fn says(mut self, word: &str) -> Self {
        let (this, said) = spawn_blocking(move || {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            (self, line)
        })
        .await
        .unwrap();
        assert_eq!(said.trim(), word);
        this
    }

    fn let_go(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn foreign(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zookeeper/foreign").join(name)
}

/// Where other clients are kept between runs.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("zookeeper-interop")
}

/// Python with kazoo in an environment of its own; `None` where that cannot be made.
fn kazoo() -> Option<PathBuf> {
    let home = tools().join("kazoo");
    let python = home.join("bin/python");
    let ready = || runs(Command::new(&python).args(["-c", "import kazoo"]));
    if !ready() {
        runs(Command::new("python3").args(["-m", "venv"]).arg(&home));
        runs(Command::new(&python).args(["-m", "pip", "--quiet", "install", KAZOO]));
    }
    found(ready(), "kazoo (python3-venv, and an index of packages)").then_some(python)
}

/// Curator's classes, of Debian's package, installed or only unpacked here; `None` where they cannot be had.
fn curator() -> Option<String> {
    let unpacked = tools().join("curator");
    let system = PathBuf::from("/usr/share/java");
    let complete = |jars: &Path| CURATOR.iter().all(|jar| jars.join(format!("{jar}.jar")).exists());
    if !complete(&system) && !complete(&unpacked.join("usr/share/java")) {
        fs::create_dir_all(&unpacked).unwrap();
        let packages = CURATOR.map(|jar| format!("lib{jar}-java"));
        if runs(Command::new("apt-get").arg("download").args(packages).current_dir(&unpacked)) {
            for package in fs::read_dir(&unpacked).unwrap() {
                let package = package.unwrap().path();
                if package.extension().is_some_and(|extension| extension == "deb") {
                    runs(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked));
                }
            }
        }
    }
    let jars = [system, unpacked.join("usr/share/java")].into_iter().find(|jars| complete(jars));
    let here = jars.is_some() && runs(Command::new("javac").arg("-version"));
    if !found(here, "Curator (libcurator-recipes-java, and a JDK)") {
        return None;
    }
    let mut classes = vec![server::JARS.to_owned()];
    let jars = jars?;
    classes.extend(CURATOR.map(|jar| jars.join(format!("{jar}.jar")).display().to_string()));
    classes.extend(
        ["guava", "failureaccess", "slf4j-api", "slf4j-nop"].map(|jar| format!("/usr/share/java/{jar}.jar")),
    );
    Some(classes.join(":"))
}

fn runs(command: &mut Command) -> bool {
    let output = command.stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

fn found(here: bool, what: &str) -> bool {
    let required = tenure_conformance::is_required(what);
    assert!(here || !required, "there is no {what} here, and TENURE_TEST_REQUIRE=1");
    if !here {
        eprintln!("skipped: there is no {what} here");
    }
    here
}
