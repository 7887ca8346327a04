//! Passwords that are not in the URL.

use crate::stage::{Done, Stage};
use nix::{sys::stat::Mode, unistd::mkfifo};
use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::mpsc::{Receiver, channel},
    thread,
};

/// Writes a file with this mode.
fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A server that answers the first message with `answer`, and hangs up after the message with `asked` in it. Returns its
/// address, and what its first client sent.
fn server(answer: &'static [u8], asked: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, sent) = channel();
    thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let (mut all, mut some) = (Vec::new(), [0; 1024]);
        let mut answer = Some(answer);
        // A client that sends nothing of the kind hangs up in the end.
        while let Ok(size @ 1..) = client.read(&mut some) {
            all.extend(&some[..size]);
            if String::from_utf8_lossy(&all).contains(asked) {
                break;
            }
            if let Some(answer) = answer.take() {
                client.write_all(answer).unwrap();
            }
        }
        let _ = sender.send(String::from_utf8_lossy(&all).into_owned());
    });
    (address, sent)
}

/// Asks for the password in clear text: `AuthenticationCleartextPassword`.
const WHICH_PASSWORD: &[u8] = b"R\0\0\0\x08\0\0\0\x03";

/// The answer to a PostgreSQL server that asks for the password.
fn told_postgres(stage: &Stage, rest: &str, variables: &[(&str, &str)]) -> String {
    let (address, sent) = server(WHICH_PASSWORD, "hunter2");
    let url = format!("postgres://me@{address}/app?sslmode=disable{rest}");
    let mut tenure = stage.tenure(&["--store", &url, "ls"]);
    for variable in ["PGPASSWORD", "PGPASSFILE"] {
        tenure.env_remove(variable);
    }
    let done = Done::of(tenure.envs(variables.iter().copied())).expect(69);
    assert!(!done.err.contains("hunter2"), "{}", done.err);
    sent.recv().unwrap()
}

#[test]
fn redis_password_is_from_a_file_or_redis_cli() {
    let stage = Stage::new();
    write(&stage.path("password"), "hunter2-of-file\n", 0o600);
    for (url, told) in [
        ("redis://HOST?password_file=password", "AUTH\r\n$15\r\nhunter2-of-file\r\n"),
        ("redis://me@HOST", "AUTH\r\n$2\r\nme\r\n$19\r\nhunter2-of-variable\r\n"),
    ] {
        let (address, sent) = server(b"", "AUTH");
        let mut tenure = stage.tenure(&["--store", &url.replace("HOST", &address), "ls"]);
        let done = Done::of(tenure.env("REDISCLI_AUTH", "hunter2-of-variable")).expect(69);
        assert!(!done.err.contains("hunter2") && !done.err.contains("password"), "{}", done.err);
        let sent = sent.recv().unwrap();
        assert!(sent.contains(told), "{url}: {sent:?}");
    }
}

/// A Redis server that has no password, and so refuses each. Returns its address.
fn server_without_password() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut some) = (client.unwrap(), [0; 1024]);
            thread::spawn(move || {
                while client.read(&mut some).is_ok_and(|size| size > 0) {
                    let refusal =
                        "-ERR AUTH <password> called without any password configured for the default user.";
                    write!(client, "{refusal}\r\n+OK\r\n+OK\r\n").unwrap();
                }
            });
        }
    });
    address
}

/// It may have been exported for another server.
#[test]
fn refused_password_error_names_its_variable() {
    let stage = Stage::new();
    let address = server_without_password();
    let said = |login: &str, args: &[&str]| {
        let mut tenure = stage.tenure(args);
        tenure.env("TENURE_STORE", format!("redis://{login}{address}")).env("REDISCLI_AUTH", "hunter2");
        let done = Done::of(&mut tenure).expect(69);
        assert!(done.err.contains("refused the user or the password"), "{args:?}: {}", done.err);
        assert!(!done.err.contains("hunter2"), "{args:?}: {}", done.err);
        done.err
    };
    for args in [&["ls"][..], &["run", "a", "--", "true"], &["latch", "show", "a"], &["conformance"]] {
        let said = said("", args);
        assert!(said.contains("tenure used the one in REDISCLI_AUTH"), "{args:?}: {said}");
    }
    let said = said(":hunter2@", &["ls"]);
    assert!(!said.contains("REDISCLI_AUTH"), "{said}");
}

#[test]
fn postgres_password_is_from_a_file_or_libpq() {
    let stage = Stage::new();
    write(&stage.path("password"), "hunter2-of-file", 0o600);
    write(&stage.path(".pgpass"), "127.0.0.1:*:app:me:hunter2-of-home\n", 0o600);
    write(&stage.path("passes"), "127.0.0.1:*:app:me:hunter2-of-passfile\n", 0o600);
    let password = ("PGPASSWORD", "hunter2-of-variable");
    let file = ("PGPASSFILE", "passes");
    for (rest, variables, told) in [
        ("", &[][..], "home"),
        ("", &[file], "passfile"),
        ("", &[file, password], "variable"),
        ("&password_file=password", &[file, password], "file"),
    ] {
        let all = told_postgres(&stage, rest, variables);
        let found = all.split_once("hunter2-of-").map(|(_, rest)| rest.trim_end_matches('\0'));
        assert_eq!(found, Some(told), "{rest} {variables:?}: {all:?}");
    }
}

/// The driver would log a line of this file that it cannot read.
#[test]
fn pgpass_line_is_not_printed() {
    let stage = Stage::new();
    write(&stage.path(".pgpass"), "hunter2\n", 0o600);
    for volume in ["--quiet", "--verbose"] {
        let args = ["--store", "postgres://me@127.0.0.1:1/app", volume, "run", "--try", "a", "--", "true"];
        let done = Done::of(stage.tenure(&args).env_remove("PGPASSWORD").env_remove("PGPASSFILE")).expect(69);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
    }
}

#[test]
fn unusable_password_file_is_named() {
    let stage = Stage::new();
    let said = |mode: u32, text: &str, place: &str| {
        write(&stage.path("password"), text, mode);
        let url = format!("{place}?password_file=password");
        let done = stage.done(&["--store", &url, "ls"]).expect(64);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
        done.err
    };
    let place = "redis://127.0.0.1:1";
    let shared = said(0o644, "hunter2\n", place);
    assert!(shared.contains("chmod ") && shared.contains("\"password\""), "{shared}");
    assert!(said(0o600, "\n", place).contains("\"password\" is empty"));
    assert!(said(0o600, "hunter2\nhunter2\n", place).contains("several lines"));
    let long = said(0o600, &"hunter2é".repeat(10_000), place);
    assert!(long.contains("\"password\" is longer than 64 KiB"), "{long}");
    assert!(
        said(0o600, "hunter2", "redis://:other@127.0.0.1:1").contains("both a password and a password_file")
    );
    assert!(said(0o600, "hunter2", "postgres:///app").contains("password_file needs a host in the URL"));
    let done = stage.done(&["--store", "redis://127.0.0.1:1?password_file=none", "ls"]).expect(64);
    assert!(done.err.contains("from \"none\" (No such file"), "{}", done.err);
}

/// Opening it would wait for a writer, and Ctrl-C would wait too.
#[test]
fn fifo_is_refused_as_password_file() {
    let stage = Stage::new();
    mkfifo(&stage.path("password"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    let done = stage.start(&["--store", "redis://127.0.0.1:1?password_file=password", "ls"]).end().expect(64);
    assert!(done.err.contains("\"password\" is not a regular file"), "{}", done.err);
}
