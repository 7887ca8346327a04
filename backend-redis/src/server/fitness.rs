//! Whether a server can keep locks.

use crate::{
    connection::{
        errors::Failure,
        link::{Answer, Connection, Link},
    },
    requests::script::Scripts,
};
use redis::Value;
use std::borrow::Cow;
use tenure_core::StoreError;

/// The oldest version that replicates the effects of scripts instead of the scripts, so that they may read the clock.
const OLDEST: u32 = 5;

/// Asks the server for its version and role, and whether this user has the permissions that locks need. Returns the
/// connection.
pub(crate) async fn check(
    link: &Link,
    scripts: &Scripts,
    prefix: &str,
    in_cluster: bool,
) -> Result<Connection, StoreError> {
    match link.ask(&redis::cmd("INFO")).await {
        Ok(Answer { value, connection, .. }) => {
            if let Some(info) = text(&value) {
                look_at(&link.dial().server_name().address, &info, in_cluster)?;
                // Another task may have asked.
                let _ = connection.run_id().set(run_id(&info));
            }
        }
        Err(Failure { error, .. }) if error.is_unavailable() => return Err(error),
        // Some users may not ask this.
        Err(_) => {}
    }
    // Looking at a key that no lock uses needs the same permissions as a lock, except for writing.
    let key = key(prefix);
    let mut call = scripts.look.call(2, 2 * key.len());
    call.arg(&key).arg(&key);
    Ok(link.run(&scripts.look, &call, &key).await?.connection)
}

/// Returns the `run_id` of the server on a connection, which is new after each start; `None` if it does not tell. It is
/// asked once.
pub(crate) async fn identity<'c>(
    link: &Link,
    connection: &'c Connection,
) -> Result<Option<&'c str>, StoreError> {
    let ask = || async {
        match link.ask_on(connection, redis::cmd("INFO").arg("server")).await {
            Ok(Answer { value, .. }) => Ok(text(&value).and_then(|info| run_id(&info))),
            Err(Failure { error, .. }) if error.is_unavailable() => Err(error),
            // Some users may not ask this.
            Err(_) => Ok(None),
        }
    };
    Ok(connection.run_id().get_or_try_init(ask).await?.as_deref())
}

/// A server's description of itself, in either protocol.
fn text(answer: &Value) -> Option<Cow<'_, str>> {
    match answer {
        Value::BulkString(text) => Some(String::from_utf8_lossy(text)),
        Value::VerbatimString { text, .. } => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

fn value<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn run_id(info: &str) -> Option<String> {
    value(info, "run_id").filter(|id| !id.is_empty()).map(str::to_owned)
}

/// A key that no lock uses.
pub(crate) fn key(prefix: &str) -> String {
    format!("{prefix}\u{1f}")
}

fn look_at(address: &str, info: &str, in_cluster: bool) -> Result<(), StoreError> {
    let value = |name| value(info, name);
    if value("role") == Some("slave") {
        let what = format!(
            "{address} is a read-only replica; give the master's address, or use redis+sentinel: if there are sentinels"
        );
        return Err(StoreError::unavailable(what));
    }
    if value("cluster_enabled") == Some("1") && !in_cluster {
        return Err(StoreError::failed(format!(
            "{address} is a node of a Redis Cluster; write redis+cluster:"
        )));
    }
    let version = value("redis_version").unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < OLDEST) {
        let what = format!("{address} is Redis {version}; tenure needs {OLDEST}.0 or later");
        return Err(StoreError::failed(what));
    }
    if let Some(policy) = value("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        tracing::warn!(
            server = address,
            policy,
            "this server evicts locks when its memory is full; set maxmemory-policy noeviction"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(info: &str) -> Option<String> {
        look_at("host:6379", info, false).err().map(|error| error.to_string())
    }

    proptest::proptest! {
        #[test]
        fn server_info_never_panics(
            info in ".*|((run_id|role|redis_version|cluster_enabled|maxmemory_policy):[^\r\n]{0,9}\r\n){0,5}",
        ) {
            let _ = look_at("host:6379", &info, false);
            proptest::prop_assert!(run_id(&info).is_none_or(|id| !id.is_empty() && info.contains(&id)));
        }
    }

    #[test]
    fn server_info_is_read_in_either_protocol() {
        let verbatim =
            Value::VerbatimString { format: redis::VerbatimFormat::Text, text: "role:slave".into() };
        for answer in [verbatim, Value::BulkString(b"role:slave".to_vec())] {
            assert_eq!(text(&answer).as_deref(), Some("role:slave"));
        }
        assert_eq!(text(&Value::Nil), None);
    }

    #[test]
    fn servers_that_cannot_keep_locks_are_refused() {
        assert_eq!(refusal("redis_version:7.0.15\r\nrole:master\r\ncluster_enabled:0\r\n"), None);
        assert_eq!(refusal(""), None);
        assert!(refusal("role:slave\r\n").unwrap().contains("read-only replica"));
        assert!(refusal("cluster_enabled:1\r\n").unwrap().contains("redis+cluster:"));
        assert!(refusal("redis_version:3.2.1\r\n").unwrap().contains("5.0 or later"));
    }
}
