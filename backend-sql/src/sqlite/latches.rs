//! Latches: a row each, that names the parties that have counted down.

use super::connection::{Connection, File};
use crate::{rows::latch_state, statement::Statement, table::TableName};
use std::sync::Arc;
use tenure_core::{Error, LatchState, LatchStep, Name, StoreError};

/// Latches in a SQLite file, on a connection of their own that is opened when the first of them is used.
pub(super) struct SqliteLatches {
    file: Arc<File>,
    connection: Connection,
    statements: Statements,
}

/// Each commits by itself, and tells how many parties there are and how many of them have counted down.
struct Statements {
    create: Statement,
    /// `?1` prefix, `?2` name.
    look: Statement,
    /// `?1` prefix, `?2` name, `?3` how many parties, `?4` the party.
    count_down: Statement,
    /// `?1` prefix, `?2` name. Tells nothing.
    remove: Statement,
}

/// The DDL of the table of the latches beside `table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless `table` is 1 to 55 letters, digits and underscores.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::sqlite_latch_schema("tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"tenure_locks_latches\""));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn sqlite_latch_schema(table: &str) -> Result<String, Error> {
    Ok(schema(&TableName::new(table)?.of_latches()?))
}

fn schema(table: &TableName) -> String {
    let table = table.as_str();
    format!(
        r#"CREATE TABLE IF NOT EXISTS "{table}" (
  prefix  TEXT    NOT NULL, -- the namespace
  name    TEXT    NOT NULL, -- what waits for its parties
  parties INTEGER NOT NULL, -- how many there are
  counted TEXT    NOT NULL, -- those that have counted down, a JSON array
  PRIMARY KEY (prefix, name)
) STRICT, WITHOUT ROWID;
"#
    )
}

impl Statements {
    fn new(table: &TableName) -> Self {
        let fill = |text: &str| Statement::new(text.replace("{t}", &format!("\"{}\"", table.as_str())));
        Self {
            create: Statement::new(schema(table)),
            look: fill("SELECT parties, json_array_length(counted) FROM {t} WHERE prefix = ?1 AND name = ?2"),
            count_down: fill(COUNT_DOWN),
            remove: fill("DELETE FROM {t} WHERE prefix = ?1 AND name = ?2"),
        }
    }
}

const COUNT_DOWN: &str = "
INSERT INTO {t} AS latch (prefix, name, parties, counted) VALUES (?1, ?2, ?3, json_array(?4))
ON CONFLICT (prefix, name) DO UPDATE SET counted =
  CASE WHEN latch.parties = excluded.parties AND NOT EXISTS (SELECT 1 FROM json_each(latch.counted) WHERE value = ?4)
  THEN json_insert(latch.counted, '$[#]', ?4) ELSE latch.counted END
RETURNING parties, json_array_length(counted)";

impl SqliteLatches {
    pub(super) fn new(file: &Arc<File>) -> Result<Self, Error> {
        let statements = Statements::new(&file.options.table.of_latches()?);
        Ok(Self { file: Arc::clone(file), connection: Connection::new(file), statements })
    }

    pub(super) async fn step(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let Statements { create, look, count_down, remove } = &self.statements;
        // Where the table is there already this takes no lock. The file may be a new one since the last step.
        if self.file.options.create_table {
            self.connection.run(create, |query| query).await?;
        }
        let statement = match step {
            LatchStep::CountDown { .. } => count_down,
            LatchStep::Remove => remove,
            LatchStep::Look => look,
        };
        let (prefix, name) = (self.file.options.prefix.clone(), name.to_string());
        let rows = self
            .connection
            .run(statement, |query| {
                let query = query.bind(prefix).bind(name);
                match step {
                    LatchStep::CountDown { party, of } => query.bind(of.get()).bind(party.to_string()),
                    LatchStep::Look | LatchStep::Remove => query,
                }
            })
            .await?;
        let Some(row) = rows.first() else { return Ok(LatchState::default()) };
        let (of, counted) = self.connection.row::<(i64, i64)>(row)?;
        Ok(latch_state(of, counted))
    }

    pub(super) async fn close(&self) {
        self.connection.close().await;
    }
}
