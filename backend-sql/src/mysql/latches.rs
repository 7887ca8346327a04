//! Latches: a row each, that names the parties that have counted down.

use super::server::{MySql, arguments};
use crate::{
    lane::{Again, Lane},
    rows::latch_state,
    server::{Checked, LatchTable},
    statement::Statement,
    table::TablePath,
};
use sqlx::mysql::MySqlConnectOptions;
use std::sync::Arc;
use tenure_core::{Error, LatchState, LatchStep, Name, StoreError};

/// Latches in MySQL or MariaDB, on a connection of their own that is opened when the first of them is used.
pub(crate) struct MySqlLatches {
    server: Arc<MySql>,
    statements: Statements,
    desk: Lane<MySql>,
}

/// Each commits by itself; `?` stand in the order that is told.
struct Statements {
    /// Prefix, name. How many parties there are, and how many of them have counted down.
    look: Statement,
    /// Prefix, name, how many parties, the party.
    count_down: Statement,
    /// Prefix, name.
    remove: Statement,
}

/// The DDL of the table of the latches beside `table`, which may be `database.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores, and the last at most 55.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::mysql_latch_schema("app.tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS `app`.`tenure_locks_latches`"));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn mysql_latch_schema(table: &str) -> Result<String, Error> {
    Ok(schema(&TablePath::new(table)?.of_latches()?))
}

/// The parties' names are kept as hexadecimal digits, so that no collation and no comma is in the way.
fn schema(table: &TablePath) -> String {
    let table = table.quoted('`');
    format!(
        r"CREATE TABLE IF NOT EXISTS {table} (
  prefix  VARBINARY(200) NOT NULL, -- the namespace
  name    VARBINARY(200) NOT NULL, -- what waits for its parties
  parties BIGINT         NOT NULL, -- how many there are
  counted BIGINT         NOT NULL, -- how many of them have counted down
  who     LONGTEXT       NOT NULL, -- which
  PRIMARY KEY (prefix, name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
"
    )
}

impl Statements {
    fn new(table: &TablePath) -> Self {
        let name = table.quoted('`');
        let fill = |text: &str| Statement::new(text.replace("{new}", NEW).replace("{t}", &name));
        Self {
            look: fill("SELECT parties, counted FROM {t} WHERE prefix = ? AND name = ?"),
            count_down: fill(COUNT_DOWN),
            remove: fill("DELETE FROM {t} WHERE prefix = ? AND name = ?"),
        }
    }
}

const NEW: &str = "parties = VALUES(parties) AND FIND_IN_SET(VALUES(who), who) = 0";

/// The assignments are made one after the other: `who` still is what it was when `counted` is set.
const COUNT_DOWN: &str = "
INSERT INTO {t} (prefix, name, parties, counted, who) VALUES (?, ?, ?, 1, HEX(?))
ON DUPLICATE KEY UPDATE
  counted = IF({new}, counted + 1, counted),
  who = IF({new}, CONCAT(who, ',', VALUES(who)), who)";

impl MySqlLatches {
    pub(super) fn new(options: Checked<()>, connect: MySqlConnectOptions) -> Result<Self, Error> {
        let table = options.table.of_latches()?;
        let statements = Statements::new(&table);
        let (create, probe) = (Statement::new(schema(&table)), statements.count_down.clone());
        let server = Arc::new(MySql::new(Checked { table, ..options }, connect, create, probe));
        Ok(Self { desk: Lane::new(&server), server, statements })
    }
}

impl LatchTable for MySqlLatches {
    async fn step(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (prefix, name) = (self.server.options.prefix.as_str(), name.as_str());
        let Statements { look, count_down, remove } = &self.statements;
        let change = match step {
            LatchStep::CountDown { party, of } => {
                Some((count_down, arguments![prefix, name, i64::from(of.get()), party.as_str()]))
            }
            LatchStep::Remove => Some((remove, arguments![prefix, name])),
            LatchStep::Look => None,
        };
        if let Some((statement, arguments)) = change {
            self.desk.run(statement, arguments, Again::Safe).await?;
        }
        let done = self.desk.run(look, arguments![prefix, name], Again::Safe).await?;
        let told = self.server.rows::<(i64, i64)>(&done)?;
        Ok(told.first().map_or(LatchState::default(), |(of, counted)| latch_state(*of, *counted)))
    }

    async fn close(&self) {
        self.desk.close().await;
    }
}
