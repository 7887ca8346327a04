//! The meaning of MySQL's and MariaDB's errors for locks, and what to do about them.

use crate::{explained::Explained, lane::Verdict, server::tls};
use sqlx::mysql::MySqlDatabaseError;
use tenure_core::StoreError;

/// Where the error came from.
pub(super) struct Origin<'a> {
    pub(super) store: &'a str,
    pub(super) user: &'a str,
    pub(super) table: String,
    /// The command that prints the table's DDL.
    pub(super) schema: String,
}

/// [Error numbers](https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html).
mod number {
    pub(super) const TOO_MANY_CONNECTIONS: u16 = 1040;
    /// More than the user may have.
    pub(super) const TOO_MANY_OF_USER: [u16; 2] = [1203, 1226];
    pub(super) const DATABASE_DENIED: u16 = 1044;
    pub(super) const ACCESS_DENIED: u16 = 1045;
    pub(super) const NO_SUCH_DATABASE: u16 = 1049;
    pub(super) const DISK_FULL: [u16; 2] = [1021, 1114];
    /// The last is a thread that cannot be made for a new connection.
    pub(super) const OUT_OF_MEMORY: [u16; 3] = [1037, 1041, 1135];
    pub(super) const COMMAND_DENIED: [u16; 2] = [1142, 1143];
    pub(super) const NO_SUCH_TABLE: u16 = 1146;
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    /// The row was changed after the statement's snapshot: the server has undone the statement.
    pub(super) const CHANGED_SINCE: u16 = 1020;
    /// A commit that failed, in a hook of replication or otherwise; a statement that has to be prepared anew; a pooler that
    /// reaches no server.
    pub(super) const ELSEWHERE: [u16; 4] = [1180, 1615, 3100, 9001];
    /// Of the connection exceptions, those that another attempt meets too: a message larger than `max_allowed_packet`, and a
    /// way of logging in that this client does not know.
    pub(super) const OF_THE_CLIENT: [u16; 2] = [1153, 1251];
    /// A lock that was not to be waited for: MariaDB reports it as a timeout.
    pub(super) const NOT_WAITED_FOR: [u16; 2] = [LOCK_WAIT_TIMEOUT, 3572];
    /// `read_only`, `super_read_only`, a read-only transaction.
    pub(super) const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
    /// `innodb_read_only` in MariaDB.
    pub(super) const TABLE_READ_ONLY: u16 = 1036;
    /// A table that cannot be made (MariaDB) or changed (MySQL), for a reason of the engine's, which has a number too.
    pub(super) const OF_THE_ENGINE: [u16; 2] = [1005, 1015];
    pub(super) const ENGINE_READ_ONLY: &str = " 165 ";
    /// Interrupted, `max_statement_time`, `max_execution_time`.
    pub(super) const INTERRUPTED: [u16; 3] = [1317, 1969, 3024];
    /// Shutting down, killed, offline, killed, idle for too long: the last three are MySQL's, which reports them on the
    /// connection before it closes it.
    pub(super) const ENDING: [u16; 7] = [1053, 1077, 1079, 1927, 3032, 3169, 4031];
    /// Unknown column, missing default, no key, wrong value, no base table.
    pub(super) const OTHER_SHAPE: [u16; 9] = [1048, 1054, 1136, 1264, 1265, 1347, 1364, 1366, 1406];
}

fn database_error(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| error.number() == number::NO_SUCH_TABLE)
}

/// Whether a row was already locked, and not to be waited for.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| number::NOT_WAITED_FOR.contains(&error.number()))
}

/// Whether another session interrupted the statement.
pub(super) fn is_interrupted(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| number::INTERRUPTED.contains(&error.number()))
}

/// Whether the server undid a statement that waited for a row, and that may be repeated.
pub(super) fn ended_the_wait(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| {
        let number = error.number();
        number == number::LOCK_WAIT_TIMEOUT || number::INTERRUPTED.contains(&number)
    }) || verdict(error) == Verdict::Collided
}

pub(super) fn verdict(error: &sqlx::Error) -> Verdict {
    // Without a number, it is the connection that failed.
    let Some(error) = database_error(error) else { return Verdict::Broken };
    verdict_of(error.number(), error.code().unwrap_or_default(), error.message())
}

fn verdict_of(number: u16, state: &str, message: &str) -> Verdict {
    // A new connection may reach another server.
    if is_read_only(number, message) { Verdict::Broken } else { verdict_on(number, state) }
}

/// Whether the server, or at least its `InnoDB`, is read-only.
fn is_read_only(number: u16, message: &str) -> bool {
    number::READ_ONLY.contains(&number)
        || number == number::TABLE_READ_ONLY
        || number::OF_THE_ENGINE.contains(&number) && message.contains(number::ENGINE_READ_ONLY)
}

/// By number where the class says nothing or too little, otherwise by the class of the `SQLSTATE`.
fn verdict_on(number: u16, state: &str) -> Verdict {
    match number {
        // A new connection looks for the table again, and may reach another server.
        number::NO_SUCH_TABLE => Verdict::Broken,
        number::CHANGED_SINCE => Verdict::Collided,
        _ if number::ENDING.contains(&number) || number::ELSEWHERE.contains(&number) => Verdict::Broken,
        // Connection exceptions.
        _ if state.starts_with("08") => Verdict::Broken,
        // Transactions that the server has undone: a deadlock, or another node's change came first. A wait that timed out
        // is not among them and is not repeated: it could take longer than the client waits.
        _ if state.starts_with("40") => Verdict::Collided,
        _ => Verdict::Refused,
    }
}

/// The meaning of a failed request.
pub(super) fn explain(origin: &Origin<'_>, source: sqlx::Error) -> StoreError {
    let Some(error) = database_error(&source) else { return without_number(origin, source) };
    let Origin { user, table, schema, .. } = origin;
    let message = error.message();
    let (passing, what) = match error.number() {
        number::ACCESS_DENIED => (false, format!("the server refused user {user}; check user and password")),
        number::DATABASE_DENIED => (
            false,
            format!("user {user} has no access to the database ({message}); check its name, or GRANT access"),
        ),
        number::NO_SUCH_DATABASE => (false, format!("{message}; create it, or use another")),
        number::NO_SUCH_TABLE => (false, missing_table(origin)),
        number::DEADLOCK | number::LOCK_WAIT_TIMEOUT => {
            (true, format!("{message}; look for a transaction left open on the table {table}"))
        }
        number::TOO_MANY_CONNECTIONS => (
            true,
            format!(
                "the server has no connection left ({message}); raise max_connections, or use fewer clients"
            ),
        ),
        number if number::TOO_MANY_OF_USER.contains(&number) => (
            true,
            format!(
                "no connection is left ({message}); raise the limit of user {user}, or use fewer clients"
            ),
        ),
        number if number::DISK_FULL.contains(&number) => {
            (false, "the server's disk is full; make room on it".to_owned())
        }
        number if number::OUT_OF_MEMORY.contains(&number) => (
            true,
            format!("the server has no memory left ({message}); give it more, or use fewer connections"),
        ),
        number if number::COMMAND_DENIED.contains(&number) && message.contains("CREATE") => (
            false,
            format!(
                "user {user} cannot create the table {table}; create it with the DDL that `{schema}` prints, or \
                 GRANT CREATE"
            ),
        ),
        number if number::COMMAND_DENIED.contains(&number) => (
            false,
            format!(
                "user {user} has no access to the table {table} ({message}); GRANT SELECT, INSERT, UPDATE, DELETE on it"
            ),
        ),
        number if is_read_only(number, message) => {
            (true, format!("the server is read-only ({message}); connect to the primary"))
        }
        number if number::INTERRUPTED.contains(&number) => (
            true,
            format!(
                "the server ended the statement ({message}); look for a transaction left open on the table {table}, or raise max_statement_time or response_timeout"
            ),
        ),
        number if number::OTHER_SHAPE.contains(&number) => (false, other_shape(table, message)),
        number => {
            let passing = verdict_on(number, error.code().unwrap_or_default()) != Verdict::Refused
                && !number::OF_THE_CLIENT.contains(&number);
            (passing, format!("{message} (error {number})"))
        }
    };
    let explained = Explained::new(what, source);
    if passing { StoreError::unavailable(explained) } else { StoreError::failed(explained) }
}

/// The message for a server that leaves strings from JSON quoted.
pub(super) const QUOTES_JSON: &str = "this version of MariaDB does not read strings from JSON correctly (MDEV-27412); \
                                      use 10.6.20, 10.11.10, 11.2.6, 11.4.4 or later, or strategy=row-lock";

/// The message for row locks in such a cluster.
pub(super) fn several_writers(cluster: &str) -> String {
    format!(
        "row locks do not exclude each other here: the server belongs to {cluster}, where each node locks rows only \
         for its own clients; use lease rows (strategy=lease-row)"
    )
}

/// The message for a missing table.
pub(super) fn missing_table(Origin { table, schema, .. }: &Origin<'_>) -> String {
    format!(
        "the table {table} does not exist; create it with the DDL that `{schema}` prints, or set create_table=true in the URL"
    )
}

fn other_shape(table: &str, message: &str) -> String {
    format!(
        "the table {table} does not match tenure's schema ({message}); choose another table, or rename that one"
    )
}

fn without_number(origin: &Origin<'_>, source: sqlx::Error) -> StoreError {
    match source {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
            let what = other_shape(&origin.table, "a column has another type");
            StoreError::failed(Explained::new(what, source))
        }
        sqlx::Error::Tls(_) => {
            let what = format!("TLS with {} failed; check ssl-mode and the certificates", origin.store);
            StoreError::failed(Explained::new(what, source))
        }
        source if let Some(why) = tls::disagreement(&source, "ssl-mode=verify_ca", "ssl-ca") => {
            StoreError::failed(Explained::new(
                format!("TLS handshake with {} failed: {why}", origin.store),
                source,
            ))
        }
        // The only case in which it fails with settings that it accepted.
        sqlx::Error::Configuration(_) => {
            let what = format!(
                "{} accepts the password only over an encrypted connection; do not disable TLS with ssl-mode",
                origin.store
            );
            StoreError::failed(Explained::new(what, source))
        }
        sqlx::Error::Encode(_) => {
            StoreError::failed(Explained::new(format!("the driver refused the request: {source}"), source))
        }
        source => StoreError::unavailable(Explained::no_connection(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the classes 08 and 40, all that `errmsg-utf8.txt` of MariaDB 10.11 has.
    #[test]
    fn errors_are_classified_by_number_and_by_state() {
        let again = [("HY000", &[1020][..]), ("40001", &[1213]), ("40000", &[3101])];
        let of_08s01 = [
            1042, 1043, 1047, 1053, 1080, 1081, 1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161,
            1184, 1189, 1190, 1218,
        ];
        let elsewhere = [
            ("08S01", &of_08s01[..]),
            ("08004", &[1040, 1251]),
            ("42S02", &[1146]),
            ("70100", &[1927]),
            ("HY000", &[1077, 1180, 1615, 3100, 4031, 9001]),
        ];
        let refused =
            [("42000", &[1064][..]), ("HY000", &[1114, 1205]), ("70100", &[1317]), ("45000", &[1644])];
        for (expected, errors) in [
            (Verdict::Collided, &again[..]),
            (Verdict::Broken, &elsewhere[..]),
            (Verdict::Refused, &refused[..]),
        ] {
            for (state, numbers) in errors {
                for number in *numbers {
                    assert_eq!(verdict_on(*number, state), expected, "{number} {state}");
                }
            }
        }
    }

    /// Errors of MySQL 9.7 and MariaDB 10.11 with `innodb_read_only`, and of other read-only servers.
    #[test]
    fn read_only_server_is_recognized() {
        for (number, message) in [
            (
                1290,
                "The MySQL server is running with the --read-only option so it cannot execute this statement",
            ),
            (1015, "Can't lock file (errno: 165 - Table is read only)"),
            (1836, "Running in read-only mode"),
            (1036, "Table 'tenure_locks' is read only"),
            (1005, "Can't create table `a`.`tenure_locks` (errno: 165 \"Table is read only\")"),
        ] {
            assert!(is_read_only(number, message), "{number}");
            assert_eq!(verdict_of(number, "HY000", message), Verdict::Broken, "{number}");
        }
        let other =
            "Can't create table `a`.`tenure_locks` (errno: 168 \"Unknown (generic) error from engine\")";
        assert!(!is_read_only(1005, other));
    }
}
