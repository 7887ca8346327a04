//! Which stores must be available for a run of tests to pass, and which tests are skipped because others are missing.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, Write},
};

/// Whether the store or server of this name is required. With `TENURE_TEST_REQUIRE=1` in the environment all are,
/// except those that `TENURE_TEST_WITHOUT` lists, separated by commas.
///
/// If a required one is missing, its tests fail; otherwise they are [skipped](skip).
#[must_use]
pub fn is_required(name: &str) -> bool {
    decide(
        name,
        env::var("TENURE_TEST_REQUIRE").ok().as_deref(),
        env::var("TENURE_TEST_WITHOUT").ok().as_deref(),
    )
}

/// Lists tests as skipped that need the store, server or program of this name. `why` says why it is missing here.
///
/// Appends a line to the file that `TENURE_TEST_SKIPPED` names; `./test` prints these lines at its end. Without that
/// variable, it prints the line to standard error. [`main`](crate::main) calls this for absent stores.
///
/// # Errors
///
/// If what the tests need is [required](is_required), or the file cannot be written: they must fail with this message.
pub fn skip(name: &str, why: &str) -> Result<(), String> {
    if is_required(name) {
        return Err(format!("{why}, and TENURE_TEST_REQUIRE=1"));
    }
    let skipped = env::var_os("TENURE_TEST_SKIPPED");
    list(skipped.as_deref(), name, why).map_err(|error| format!("{why}; not listed as skipped: {error}"))
}

fn decide(name: &str, require: Option<&str>, without: Option<&str>) -> bool {
    let mut excused = without.unwrap_or_default().split(',').map(str::trim);
    require == Some("1") && !excused.any(|excused| excused == name)
}

fn list(skipped: Option<&OsStr>, name: &str, why: &str) -> io::Result<()> {
    let line = format!("{name}: {}\n", why.split_whitespace().collect::<Vec<_>>().join(" "));
    match skipped {
        // In one write, because other processes append lines too.
        Some(file) => File::options().append(true).create(true).open(file)?.write_all(line.as_bytes()),
        None => io::stderr().write_all(format!("skipped: {line}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::{decide, list};
    use std::fs;

    #[test]
    fn excused_stores_are_not_required() {
        assert!(!decide("redis", None, None));
        assert!(!decide("redis", Some("0"), None));
        assert!(decide("redis", Some("1"), None));
        assert!(decide("redis", Some("1"), Some("mysql, rediss")));
        assert!(!decide("redis", Some("1"), Some("mysql, redis")));
    }

    #[test]
    fn skipped_tests_are_listed_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("skipped");
        list(Some(file.as_os_str()), "redis", "no server").unwrap();
        list(Some(file.as_os_str()), "root", "setpriv:\n  not permitted\n").unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), "redis: no server\nroot: setpriv: not permitted\n");
        assert!(list(Some(directory.path().as_os_str()), "redis", "no server").is_err());
    }
}
