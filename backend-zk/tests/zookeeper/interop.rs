//! Other clients' locks on the same path: both exclude each other.

use crate::{Scene, granted, none_is_finished, server::ONE, special, wait};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};
use tenure_core::{Locks, Mode};
use tenure_testbed::python;
use tenure_zk::ZkBackend;
use tokio::task::spawn_blocking;

const CURATOR: [&str; 3] = ["curator-recipes", "curator-framework", "curator-client"];

#[tokio::test]
async fn kazoo_excludes_and_is_excluded() {
    let Some(command) = kazoo_command() else { return };
    exclude_each_other("kazoo", command).await;
}

#[tokio::test]
async fn curator_excludes_and_is_excluded() {
    let Some(command) = curator_command() else { return };
    exclude_each_other("curator", command).await;
}

#[tokio::test]
async fn kazoo_reads_beside_us() {
    let Some(command) = kazoo_command() else { return };
    for read_write in [false, true] {
        read_beside_each_other("kazoo-read", read_write, &command).await;
    }
}

#[tokio::test]
async fn curator_reads_beside_us() {
    let Some(command) = curator_command() else { return };
    read_beside_each_other("curator-read", true, &command).await;
}

fn kazoo_command() -> Option<impl Fn() -> Command> {
    let python = python("kazoo", Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    let script = foreign("kazoo_lock.py");
    Some(move || {
        let mut command = Command::new(&python);
        command.arg(&script);
        command
    })
}

fn curator_command() -> Option<impl Fn() -> Command> {
    let (classes, source) = (curator()?, foreign("CuratorLock.java"));
    Some(move || {
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", &classes]).arg(&source);
        command
    })
}

/// Readers of both share, and writers of both exclude everybody.
async fn read_beside_each_other(who: &str, read_write: bool, command: impl Fn() -> Command) {
    let Some(scene) = Scene::on(&ONE, who).await else { return };
    let options = scene.options().read_write_nodes(read_write);
    let (locks, path) = (Locks::new(ZkBackend::connect(options).await.unwrap()), scene.path("orders"));
    let rw = locks.rw("orders");
    let start = |how: &str, kind: &str| {
        Foreign::start(command().args([scene.hosts[0].as_str(), path.as_str(), how, kind]))
    };

    // We read, so others may only read.
    let mut reader = rw.read().acquire().await.unwrap();
    let mut beside = start("try", "read").says("held").await;
    start("try", "write").says("busy").await;
    assert!(!reader.try_upgrade().await.unwrap(), "{who} reads as well");
    let told = locks.holders("orders").await.unwrap();
    assert!(told.len() == 2 && told.iter().all(|holder| holder.mode == Mode::Shared), "{told:?}");
    beside.let_go();
    beside.says("released").await;
    // We upgrade in place, and no client gets past.
    assert!(reader.try_upgrade().await.unwrap());
    start("try", "read").says("busy").await;
    start("try", "write").says("busy").await;
    let waiting = start("wait", "write");
    scene.until_nodes("orders", 2).await;
    // A reader again, and their writer stays behind.
    reader.downgrade().await.unwrap();
    assert_eq!(scene.nodes("orders").await.len(), 2);
    reader.release().await.unwrap();
    let mut writer = waiting.says("held").await;

    // They write.
    assert!(rw.read().try_acquire().await.unwrap().is_none(), "read beside a writer of {who}");
    assert!(rw.write().try_acquire().await.unwrap().is_none(), "written beside a writer of {who}");
    let ours = wait(&scene, "orders", rw.read(), 2).await;
    writer.let_go();
    writer.says("released").await;
    granted(ours).await.release().await.unwrap();

    // They read.
    let mut reading = start("wait", "read").says("held").await;
    let ours = rw.read().try_acquire().await.unwrap().expect("beside a reader");
    ours.release().await.unwrap();
    assert!(rw.write().try_acquire().await.unwrap().is_none(), "written beside a reader of {who}");
    let ours = wait(&scene, "orders", rw.write(), 2).await;
    // Our writer that waits keeps their new readers out.
    start("try", "read").says("busy").await;
    reading.let_go();
    reading.says("released").await;
    let writer = granted(ours).await;

    // We write.
    start("try", "read").says("busy").await;
    start("try", "write").says("busy").await;
    let waiting = start("wait", "read");
    scene.until_nodes("orders", 2).await;
    writer.release().await.unwrap();
    let mut reading = waiting.says("held").await;
    reading.let_go();
    reading.says("released").await;
}

async fn exclude_each_other(who: &str, command: impl Fn() -> Command) {
    let Some(scene) = Scene::on(&ONE, who).await else { return };
    let (locks, path) = (scene.locks().await, scene.path("orders"));
    let start =
        |how: &str| Foreign::start(command().args([scene.hosts[0].as_str(), path.as_str(), how, "lock"]));

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
    let ours = wait(&scene, "orders", locks.lock("orders"), 2).await;
    none_is_finished(&[&ours]).await;
    holding.let_go();
    holding.says("released").await;
    let guard = granted(ours).await;

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
    if !found("curator", here, "libcurator-recipes-java, and a JDK") {
        return None;
    }
    let mut classes = vec![special::JARS.to_owned()];
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

fn found(client: &str, here: bool, needs: &str) -> bool {
    if !here {
        tenure_conformance::skip(client, &format!("not here, and could not be had ({needs})")).unwrap();
    }
    here
}
