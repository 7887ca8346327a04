//! The peers of `conformance/peers`: locks of other libraries, driven and judged as `docs/prove.md` says. The store is
//! given by its URL, so the only faults are frozen and killed peers.

use std::{
    path::{Path, PathBuf},
    process::Command,
};
use tenure_conformance::skip;
use tenure_testbed::{Kind, Server, python};

const NO_TOKEN: &str = "not offered: token (clauses T1 and U2)";
const NO_DEADLINE: &str = "not offered: deadline (clauses L1 and L5)";

/// The exit code of a fault run of clients that are this peer, and what it said.
fn judged(server: &Server, python: &Path, peer: &str, seed: &str, words: &[&str]) -> (Option<i32>, String) {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/peers");
    let client = format!("{} {}/{peer}", python.display(), peers.display());
    let mut run = Command::new(env!("CARGO_BIN_EXE_tenure-conformance"));
    run.args(["faults", &server.url(), "--seed", seed, "--client", &client]).args(words);
    let output = run.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    (output.status.code(), said.concat())
}

/// The peer's Python and its server; `None` where one of them cannot be had.
async fn scene(client: &str, kind: Kind) -> Option<(PathBuf, Server)> {
    let python = python(client, Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    let server = Server::find(kind).await;
    Some((python, server.map_err(|why| skip(kind.name(), &why.to_string()).unwrap()).ok()?))
}

fn has_grants(said: &str) -> bool {
    let grants = said.lines().find_map(|line| line.strip_prefix("grants")?.trim().parse().ok());
    grants.is_some_and(|grants: u64| grants > 0)
}

/// One in eight holds lasts longer than the lease. A run ends with its first violation, which may be another: on a busy
/// machine, a wait may end late.
#[tokio::test]
async fn redis_py_has_two_holders_unless_it_tells_its_deadline() {
    let Some((python, server)) = scene("redis-py", Kind::Redis).await else { return };
    let frequent = ["--lease", "500ms", "--round", "4s", "--names", "1", "--minutes"];
    let run =
        |peer, seed, minutes| judged(&server, &python, peer, seed, &[&frequent[..], &[minutes]].concat());
    let mut runs = ["7", "8", "9", "10"].into_iter().map(|seed| run("redis_lock.py {url}", seed, "3"));
    let is_it = |(code, said): &(Option<i32>, String)| *code == Some(1) && said.contains("two holders");
    let (_, said) = runs.find(is_it).expect("two holders in one of four runs");
    assert!(said.contains(NO_TOKEN) && said.contains(NO_DEADLINE), "{said}");
    let (code, said) = run("redis_lock.py {url} deadline", "7", "0");
    assert!(
        matches!(code, Some(0 | 1)) && has_grants(&said) && !said.contains("two holders"),
        "{code:?}: {said}"
    );
    assert!(said.contains(NO_TOKEN) && !said.contains(NO_DEADLINE), "{said}");
}

/// Whether it keeps the contract is its own affair: once a waiter ended 3 s late (clause W2).
#[tokio::test]
async fn kazoo_is_driven_and_judged() {
    let Some((python, server)) = scene("kazoo", Kind::Zookeeper).await else { return };
    let one_round = ["--lease", "1s", "--round", "15s", "--minutes", "0"];
    let (code, said) = judged(&server, &python, "kazoo_lock.py {url}?session_timeout=4s", "7", &one_round);
    assert!(matches!(code, Some(0 | 1)) && has_grants(&said), "{code:?}: {said}");
    assert!(said.contains(NO_DEADLINE) && !said.contains(NO_TOKEN), "{said}");
}
