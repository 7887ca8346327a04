//! Tests that meet a server should assert no duration, because each machine stalls at times. They sleep through
//! `tenure_conformance::pause` alone, whose functions say why a longer pause does no harm. An upper bound on a measured time
//! is seen where a line compares `elapsed()`; a limit of minutes, after which something hangs, is none.

/// Files that sleep by themselves, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("backend-etcd/tests/etcd/server.rs", "looks again, before there is a runtime"),
    ("backend-redis/tests/redis/server.rs", "looks again, before there is a runtime"),
    ("backend-zk/tests/zookeeper/special.rs", "looks again, before there is a runtime"),
    ("cli/tests/cli/stage.rs", "looks again, without a runtime"),
    ("testbed/tests/faults.rs", "looks again, without a runtime"),
    ("testbed/tests/servers/endings.rs", "looks again, without a runtime"),
    ("tests/blocking.rs", "looks again, without a runtime"),
];

/// The faults of these files: each sleep that is not among the exceptions, and each exception that does not sleep.
pub(crate) fn faults(files: &[(String, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in files {
        let bounds = text.lines().zip(1..).filter(|(line, _)| is_bounded(line));
        faults.extend(bounds.map(|(_, number)| format!("{path}:{number}: a machine may stall for longer")));
        let lines = text.lines().zip(1..).filter(|(line, _)| sleeps(line));
        let is_excepted = EXCEPTIONS.iter().any(|(excepted, _)| excepted == path);
        if !is_excepted {
            faults.extend(lines.map(|(_, number)| format!("{path}:{number}: sleep through `pause`")));
        } else if lines.count() == 0 {
            faults.push(format!("{path} does not sleep any more: no exception is needed"));
        }
    }
    let gone = EXCEPTIONS.iter().filter(|(excepted, _)| files.iter().all(|(path, _)| path != excepted));
    faults.extend(gone.map(|(excepted, _)| format!("{excepted} is an exception, and not there")));
    faults
}

fn sleeps(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let calls = code.match_indices("sleep(");
    calls.map(|(at, _)| code[..at].chars().next_back()).any(|before| before.is_none_or(|it| !is_in_name(it)))
}

fn is_bounded(line: &str) -> bool {
    let is_hang = ["HANG", "PATIENCE", "from_mins"].iter().any(|limit| line.contains(limit));
    line.contains(".elapsed() <") && !is_hang
}

fn is_in_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
