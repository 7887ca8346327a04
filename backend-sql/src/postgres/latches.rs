//! Latches: a row each, that names the parties that have counted down.

use super::{
    options::{Durability, Own},
    server::{Postgres, arguments},
};
use crate::{
    lane::{Again, Lane},
    rows::latch_state,
    server::{Checked, LatchTable},
    statement::Statement,
    table::TablePath,
};
use sqlx::postgres::PgConnectOptions;
use std::sync::Arc;
use tenure_core::{Error, LatchState, LatchStep, Name, StoreError};

/// Latches in PostgreSQL, on a connection of their own that is opened when the first of them is used.
pub(crate) struct PostgresLatches {
    server: Arc<Postgres>,
    statements: Statements,
    desk: Lane<Postgres>,
}

/// Each commits by itself, and tells how many parties there are and how many of them have counted down.
struct Statements {
    /// `$1` prefix, `$2` name.
    look: Statement,
    /// `$1` prefix, `$2` name, `$3` how many parties, `$4` the party.
    count_down: Statement,
    /// `$1` prefix, `$2` name. Tells nothing.
    remove: Statement,
}

/// The DDL of the table of the latches beside `table`, which may be `schema.table`.
///
/// # Errors
///
/// [`Error::InvalidOption`] unless each part is 1 to 63 letters, digits and underscores, and the last at most 55.
///
/// # Examples
///
/// ```
/// let ddl = tenure_sql::postgres_latch_schema("app.tenure_locks")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"app\".\"tenure_locks_latches\""));
/// # Ok::<(), tenure_core::Error>(())
/// ```
pub fn postgres_latch_schema(table: &str) -> Result<String, Error> {
    Ok(schema(&TablePath::new(table)?.of_latches()?))
}

fn schema(table: &TablePath) -> String {
    let table = table.quoted('"');
    format!(
        r#"CREATE TABLE IF NOT EXISTS {table} (
  prefix  text COLLATE "C" NOT NULL, -- the namespace
  name    text COLLATE "C" NOT NULL, -- what waits for its parties
  parties bigint           NOT NULL, -- how many there are
  counted text[]           NOT NULL, -- those that have counted down
  PRIMARY KEY (prefix, name)
);
"#
    )
}

impl Statements {
    fn new(table: &TablePath) -> Self {
        let name = table.quoted('"');
        let fill = |text: &str| Statement::new(text.replace("{t}", &name));
        Self {
            look: fill(
                "SELECT parties, cardinality(counted)::bigint FROM {t} WHERE prefix = $1 AND name = $2",
            ),
            count_down: fill(COUNT_DOWN),
            remove: fill("DELETE FROM {t} WHERE prefix = $1 AND name = $2"),
        }
    }
}

/// In the update, `latch` is the row as it stands once it is locked.
const COUNT_DOWN: &str = "
INSERT INTO {t} AS latch (prefix, name, parties, counted) VALUES ($1, $2, $3::bigint, ARRAY[$4::text])
ON CONFLICT (prefix, name) DO UPDATE SET counted =
  CASE WHEN latch.parties = excluded.parties AND NOT latch.counted @> excluded.counted
  THEN latch.counted || excluded.counted ELSE latch.counted END
RETURNING parties, cardinality(counted)::bigint";

impl PostgresLatches {
    pub(super) fn new(options: Checked<Own>, connect: PgConnectOptions) -> Result<Self, Error> {
        let table = options.table.of_latches()?;
        let statements = Statements::new(&table);
        let (create, probe) = (Statement::new(schema(&table)), statements.count_down.clone());
        // What was counted stays: a crash is not to forget it, whatever it may forget of locks.
        let own = Own { durability: Durability::Full, ..options.own };
        let options = Checked { table, own, ..options };
        let server = Arc::new(Postgres::new(options, connect, create, probe));
        Ok(Self { desk: Lane::new(&server), server, statements })
    }
}

impl LatchTable for PostgresLatches {
    async fn step(&self, name: &Name, step: &LatchStep) -> Result<LatchState, StoreError> {
        let (prefix, name) = (self.server.options.prefix.as_str(), name.as_str());
        let Statements { look, count_down, remove } = &self.statements;
        let (statement, arguments) = match step {
            LatchStep::CountDown { party, of } => {
                (count_down, arguments![prefix, name, i64::from(of.get()), party.as_str()])
            }
            LatchStep::Remove => (remove, arguments![prefix, name]),
            LatchStep::Look => (look, arguments![prefix, name]),
        };
        let rows = self.desk.run(statement, arguments, Again::Safe).await?;
        let told = self.server.rows::<(i64, i64)>(&rows)?;
        Ok(told.first().map_or(LatchState::default(), |(of, counted)| latch_state(*of, *counted)))
    }

    async fn close(&self) {
        self.desk.close().await;
    }
}
