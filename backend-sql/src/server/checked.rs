//! Checked options.

use crate::{
    strategy::Strategy,
    table::{TablePath, schema_command},
};
use std::time::Duration;
use tenure_core::{Error, record::Record};

/// The least time that making a table is given. The server waits for its disk, which may stall for many seconds.
const MAKING: Duration = Duration::from_secs(30);

/// [`ServerOptions`](super::ServerOptions), each within its range. `own` has those of one kind of server.
#[derive(Clone)]
pub(crate) struct Checked<O> {
    pub(crate) strategy: Strategy,
    pub(crate) table: TablePath,
    pub(crate) prefix: String,
    pub(crate) poll: Duration,
    pub(crate) connections: usize,
    pub(crate) fair: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) create_table: bool,
    pub(crate) own: O,
}

impl<O: Clone> Checked<O> {
    /// These options for latches beside other locks, in a table of lease rows.
    pub(crate) fn of_latches(&self) -> Result<Self, Error> {
        let connections = Strategy::LeaseRow.check_connections(None)?;
        let table = self.table.of_latches()?;
        Ok(Self { strategy: Strategy::LeaseRow, table, connections, ..self.clone() })
    }

    /// Fails if there is a prefix, for locks whose keys are those of programs without tenure.
    pub(crate) fn refuse_prefix(&self, key: impl std::fmt::Display) -> Result<(), Error> {
        if self.prefix.is_empty() {
            return Ok(());
        }
        let allowed = format!("none with key={key}, because programs without tenure add no prefix");
        Err(Error::invalid_option("prefix", format_args!("{:?}", self.prefix), allowed))
    }

    /// The command that prints the table's DDL in this dialect.
    pub(crate) fn schema_command(&self, dialect: &str) -> String {
        let strategy = match self.strategy {
            Strategy::LeaseRow => String::new(),
            other => format!(" --strategy {}", other.word()),
        };
        let default = self.strategy.default_table();
        schema_command(&format!("{dialect}{strategy}"), &self.table.to_string(), default)
    }

    /// How long making the table may take: longer than other requests, which have to be answered sooner.
    pub(crate) fn making_timeout(&self) -> Duration {
        self.response_timeout.max(MAKING)
    }

    /// The longest pause of a waiter before it looks again. A waiter in a queue shows up often enough to keep its
    /// place.
    pub(crate) fn longest_poll(&self) -> Duration {
        if self.fair { self.poll.min(Record::PLACE / 6) } else { self.poll }
    }
}
