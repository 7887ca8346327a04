//! The meaning of PostgreSQL's errors for locks, and what to do about them.

use crate::{explained::Explained, lane::Verdict, server::tls};
use sqlx::error::DatabaseError;
use tenure_core::StoreError;

/// Where the error came from.
pub(super) struct Origin<'a> {
    pub(super) store: &'a str,
    pub(super) user: &'a str,
    pub(super) table: String,
    /// The command that prints the table's DDL.
    pub(super) schema: String,
}

/// [Error codes](https://www.postgresql.org/docs/current/errcodes-appendix.html).
mod code {
    pub(super) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(super) const UNIQUE_VIOLATION: &str = "23505";
    pub(super) const READ_ONLY: &str = "25006";
    /// The server heard nothing for as long as the transaction may be idle.
    pub(super) const IDLE_TRANSACTION: &str = "25P03";
    /// The transaction took too long. From version 17 on.
    pub(super) const TRANSACTION_TIMEOUT: &str = "25P04";
    pub(super) const NO_SUCH_STATEMENT: &str = "26000";
    pub(super) const DUPLICATE_STATEMENT: &str = "42P05";
    pub(super) const WRONG_PASSWORD: &str = "28P01";
    pub(super) const NOT_AUTHORIZED: &str = "28000";
    pub(super) const NO_SUCH_DATABASE: &str = "3D000";
    pub(super) const NO_SUCH_SCHEMA: &str = "3F000";
    pub(super) const SERIALIZATION_FAILURE: &str = "40001";
    pub(super) const COMPLETION_UNKNOWN: &str = "40003";
    pub(super) const DEADLOCK: &str = "40P01";
    /// The database's encoding lacks a character.
    pub(super) const UNTRANSLATABLE: &str = "22P05";
    pub(super) const DIVISION_BY_ZERO: &str = "22012";
    pub(super) const NO_PERMISSION: &str = "42501";
    pub(super) const DUPLICATE_TABLE: &str = "42P07";
    /// The type of a table's rows.
    pub(super) const DUPLICATE_OBJECT: &str = "42710";
    pub(super) const NO_SUCH_TABLE: &str = "42P01";
    pub(super) const NO_SUCH_SETTING: &str = "42704";
    /// A prepared statement's table was changed.
    pub(super) const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub(super) const DISK_FULL: &str = "53100";
    pub(super) const TOO_MANY_CONNECTIONS: &str = "53300";
    pub(super) const LOCK_TIMEOUT: &str = "55P03";
    pub(super) const CANCELED: &str = "57014";
    pub(super) const INTERNAL: &str = "XX000";
    /// Undefined column, wrong type, no unique constraint, a foreign constraint.
    pub(super) const OTHER_SHAPE: [&str; 6] = ["42703", "42804", "42883", "42P10", "42809", "23502"];
}

fn code_of(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

/// Whether another client created the table at the same moment.
pub(super) fn is_creation_race(error: &sqlx::Error) -> bool {
    let races = [code::UNIQUE_VIOLATION, code::DUPLICATE_TABLE, code::DUPLICATE_OBJECT, code::INTERNAL];
    code_of(error).is_some_and(|code| races.contains(&code.as_str()))
}

pub(super) fn is_missing_table(error: &sqlx::Error) -> bool {
    code_of(error).is_some_and(|code| code == code::NO_SUCH_TABLE)
}

/// Whether the server ended a wait for a lock because it took too long.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    code_of(error).is_some_and(|code| code == code::LOCK_TIMEOUT)
}

/// Whether the server undid a statement that waited for a row, and that may be repeated.
pub(super) fn ended_the_wait(error: &sqlx::Error) -> bool {
    let over = [code::LOCK_TIMEOUT, code::CANCELED, code::DEADLOCK, code::SERIALIZATION_FAILURE];
    code_of(error).is_some_and(|code| over.contains(&code.as_str()))
}

pub(super) fn verdict(error: &sqlx::Error) -> Verdict {
    code_of(error).map_or(Verdict::Broken, |code| verdict_on(&code))
}

fn verdict_on(code: &str) -> Verdict {
    match code {
        // It comes from a request for several names of which another client has just acquired one.
        code::DIVISION_BY_ZERO => Verdict::Collided,
        // A new connection looks for the table again, and may reach another server.
        code::NO_SUCH_TABLE
        | code::FEATURE_NOT_SUPPORTED
        | code::READ_ONLY
        | code::NO_SUCH_STATEMENT
        | code::IDLE_TRANSACTION
        | code::TRANSACTION_TIMEOUT
        | code::COMPLETION_UNKNOWN => Verdict::Broken,
        // Connection exceptions, operator intervention, system errors.
        code if code.starts_with("08") || code.starts_with("57P") || code.starts_with("58") => {
            Verdict::Broken
        }
        // Transactions that the server has undone.
        code if code.starts_with("40") => Verdict::Collided,
        _ => Verdict::Refused,
    }
}

/// The meaning of a failed request.
pub(super) fn explain(origin: &Origin<'_>, source: sqlx::Error) -> StoreError {
    let source = match beyond_encoding("this name or prefix", source) {
        Ok(explained) => return explained,
        Err(source) => source,
    };
    let Some(error) = source.as_database_error() else { return without_code(origin, source) };
    let Origin { user, table, .. } = origin;
    let code = error.code().unwrap_or_default();
    let message = error.message();
    let (passing, what) = match code.as_ref() {
        // No server refuses the options of a session that way.
        code::PROTOCOL_VIOLATION | code::FEATURE_NOT_SUPPORTED if message.contains("options") => {
            (false, pooler(origin.store, message))
        }
        code::PROTOCOL_VIOLATION if message.contains("statement pooling") => {
            (false, format!("the pooler in front of {} is in statement mode ({message}); set its pool_mode to \
                             transaction, or use strategy=lease-row", origin.store))
        }
        code::WRONG_PASSWORD => {
            (false, format!("the server refused the password of user {user}, or got none; check it"))
        }
        code::NOT_AUTHORIZED => {
            (false, format!("the server refused user {user} ({message}); check user, password and pg_hba.conf"))
        }
        code::NO_SUCH_DATABASE => (false, format!("{message}; create it, or use another")),
        code::NO_SUCH_SCHEMA => (false, format!("the schema of the table {table} does not exist; create it, or use another")),
        code::NO_SUCH_TABLE => (false, missing_table(origin)),
        code::NO_PERMISSION => (false, no_permission(origin, error)),
        code::READ_ONLY => (
            true,
            "the server is read-only: it is a standby, or default_transaction_read_only is on; connect to the primary"
                .to_owned(),
        ),
        code::TOO_MANY_CONNECTIONS => {
            let raise = if message.contains("for role") {
                format!("raise the CONNECTION LIMIT of role {user}")
            } else if message.contains("for database") {
                "raise the CONNECTION LIMIT of the database".to_owned()
            } else {
                "raise max_connections".to_owned()
            };
            (true, format!("the server has no connection left ({message}); {raise}, or use fewer clients or a pooler"))
        }
        code::CANCELED | code::LOCK_TIMEOUT => (
            true,
            format!(
                "the server ended the statement ({message}); look for a transaction left open on the table {table}, or raise \
                 statement_timeout or lock_timeout for user {user}, or response_timeout"
            ),
        ),
        code::NO_SUCH_STATEMENT | code::DUPLICATE_STATEMENT => (
            true,
            "a prepared statement was lost, probably behind a pooler in transaction mode; set pooler=true"
                .to_owned(),
        ),
        code::IDLE_TRANSACTION => {
            (true, format!("the server ended the connection after one lease without a request ({message})"))
        }
        code::TRANSACTION_TIMEOUT => {
            (true, format!("the server ended the connection ({message}); raise transaction_timeout for user {user}"))
        }
        code::NO_SUCH_SETTING if message.contains("idle_session_timeout") => {
            (false, "advisory locks need PostgreSQL 14 or later; use another strategy".to_owned())
        }
        code::DISK_FULL => (false, "the server's disk is full; make room on it".to_owned()),
        code if code::OTHER_SHAPE.contains(&code) => (false, other_shape(table, message)),
        code => {
            let classes = ["08", "40", "53", "57", "58", "0A"];
            (classes.iter().any(|class| code.starts_with(class)), format!("{message} (SQLSTATE {code})"))
        }
    };
    let explained = Explained::new(what, source);
    if passing { StoreError::unavailable(explained) } else { StoreError::failed(explained) }
}

/// Explains an error which says that the database cannot store `what`. Returns any other error unchanged.
pub(super) fn beyond_encoding(what: &str, source: sqlx::Error) -> Result<StoreError, sqlx::Error> {
    match source.as_database_error() {
        Some(error) if error.code().is_some_and(|code| code == code::UNTRANSLATABLE) => {
            let why = format!(
                "the database cannot store {what} ({}); create a database with ENCODING 'UTF8', or use only characters \
                 of this one's encoding",
                error.message()
            );
            Ok(StoreError::failed(Explained::new(why, source)))
        }
        _ => Err(source),
    }
}

/// The message for a pooler, which shows by this sign.
pub(super) fn pooler(store: &str, sign: &str) -> String {
    format!(
        "a pooler seems to be in front of {store} ({sign}), so other programs may use the same sessions of the server; \
         set pooler=true, or pooler=false if the pooler is in session mode"
    )
}

/// The message for a user whose sessions begin as read-only, where a pooler keeps that from being changed.
pub(super) fn read_only_sessions(user: &str) -> String {
    format!(
        "user {user} can only read in this database (default_transaction_read_only); ALTER ROLE {user} SET \
         default_transaction_read_only = off, or log in as another user"
    )
}

/// The message for a missing table.
pub(super) fn missing_table(Origin { table, schema, .. }: &Origin<'_>) -> String {
    format!(
        "the table {table} does not exist; create it with the DDL that `{schema}` prints, or set create_table=true in the URL"
    )
}

/// The message for a user who may not draw tokens, which shows by this sign.
pub(super) fn no_tokens(user: &str, table: &str, sign: &str) -> String {
    format!(
        "user {user} may not draw tokens ({sign}); GRANT USAGE, UPDATE ON SEQUENCE {table}_tokens TO {user}"
    )
}

fn no_permission(origin: &Origin<'_>, error: &dyn DatabaseError) -> String {
    let Origin { user, table, schema, .. } = origin;
    let message = error.message();
    if message.contains("for schema") {
        format!(
            "user {user} cannot create the table {table} ({message}); create it with the DDL that `{schema}` prints, or \
             GRANT CREATE on its schema"
        )
    } else if message.contains("for database") {
        format!("user {user} may not connect to this database ({message}); GRANT CONNECT on it to {user}")
    } else if message.contains("for sequence") {
        no_tokens(user, table, message)
    } else if message.contains("process") {
        format!(
            "user {user} cannot end the holder's connection ({message}); log in as the user whose connection it is"
        )
    } else {
        format!(
            "user {user} has no access to the table {table} ({message}); GRANT SELECT, INSERT, UPDATE, DELETE on it"
        )
    }
}

fn other_shape(table: &str, message: &str) -> String {
    format!(
        "the table {table} does not match tenure's schema ({message}); choose another table, or rename that one"
    )
}

fn without_code(origin: &Origin<'_>, source: sqlx::Error) -> StoreError {
    match source {
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) | sqlx::Error::Decode(_) => {
            let what = other_shape(&origin.table, "a column has another type");
            StoreError::failed(Explained::new(what, source))
        }
        sqlx::Error::Tls(_) => {
            let what = format!("TLS with {} failed; check sslmode and the certificates", origin.store);
            StoreError::failed(Explained::new(what, source))
        }
        source if let Some(why) = tls::disagreement(&source, "sslmode=verify-ca", "sslrootcert") => {
            StoreError::failed(Explained::new(
                format!("TLS handshake with {} failed: {why}", origin.store),
                source,
            ))
        }
        sqlx::Error::Configuration(_) | sqlx::Error::Encode(_) => {
            StoreError::failed(Explained::new(format!("the driver refused the request: {source}"), source))
        }
        source => StoreError::unavailable(Explained::no_connection(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the classes 08, 40 and 58, all that `errcodes.txt` of PostgreSQL 15 has; and of others, those that pass.
    #[test]
    fn errors_are_classified_by_code() {
        let again = ["22012", "40000", "40001", "40002", "40P01"];
        let elsewhere = [
            "08000", "08001", "08003", "08004", "08006", "08007", "08P01", "0A000", "25006", "25P03",
            "25P04", "26000", "40003", "42P01", "57P01", "57P02", "57P03", "57P04", "57P05", "58000",
            "58030", "58P01", "58P02",
        ];
        let refused = ["23505", "42501", "53100", "53300", "55P03", "57014", "P0001", "XX000"];
        for (expected, codes) in [
            (Verdict::Collided, &again[..]),
            (Verdict::Broken, &elsewhere[..]),
            (Verdict::Refused, &refused[..]),
        ] {
            for code in codes {
                assert_eq!(verdict_on(code), expected, "{code}");
            }
        }
    }
}
