//! Python with another project's client, for the tests beside that client.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_conformance::skip;

/// The clients, and the version of each that is installed for the tests.
const CLIENTS: [(&str, &str); 2] = [("redis-py", "redis==7.1.0"), ("kazoo", "kazoo==2.11.0")];

/// A Python with this client: the one that `TENURE_TEST_PYTHON` names if it has it, or one in a virtual environment that
/// all tests share. `tools` is their `CARGO_TARGET_TMPDIR`.
///
/// `None` if the client cannot be had. The test is then listed as skipped.
///
/// # Panics
///
/// If the client is [required](tenure_conformance::is_required) and cannot be had.
#[must_use]
pub fn python(client: &str, tools: &Path) -> Option<PathBuf> {
    find(client, tools).map_err(|why| skip(client, &why).expect("a required client")).ok()
}

fn find(client: &str, tools: &Path) -> Result<PathBuf, String> {
    let known = CLIENTS.iter().find(|(name, _)| *name == client);
    let (_, version) = known.ok_or_else(|| format!("no version of {client} is known"))?;
    let import = format!("import {}", version.split('=').next().unwrap_or_default());
    let has_it = |python: &Path| run(python, &["-c", &import]).is_ok();
    let named = env::var_os("TENURE_TEST_PYTHON").map(PathBuf::from);
    if let Some(named) = named.filter(|named| has_it(named)) {
        return Ok(named);
    }
    // Another test program may be installing it just now.
    let lock = File::create(tools.join(format!("{client}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let home = tools.join(client);
    let python = home.join("bin/python");
    if !has_it(&python) {
        run(Path::new("python3"), &["-m", "venv", &home.display().to_string()])?;
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", version])?;
    }
    Ok(python)
}

fn run(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let ended = Command::new(program).args(arguments).output();
    let ended = ended.map_err(|error| format!("{}: {error}", program.display()))?;
    if ended.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ended.stderr).into_owned()) }
}
