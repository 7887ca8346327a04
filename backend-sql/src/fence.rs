//! Rows that refuse stale holders.

use crate::table::{TableName, TablePath};
use sqlx::AssertSqlSafe;
use tenure_core::{Error, Token};

/// A column in your own table that keeps, for each row, the greatest fencing token that has written there.
///
/// A lease can expire while its holder is asleep. So the holder first raises the row's fence to its token, in the same
/// transaction as its writes. A stale holder is refused, and a newer one waits until the transaction ends.
///
/// ```sql
/// ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
/// ```
///
/// If you write with a single statement, its own condition is enough:
/// `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2`; if it changed no row, a later holder has
/// been there.
///
/// # Examples
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, guard: &tenure_core::Guard) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_sql::Fence;
///
/// let orders = Fence::new("orders", "id", "fence")?;
/// let mut transaction = pool.begin().await?;
/// orders.raise_in_postgres(&mut transaction, 42_i64, guard.token()).await?;
/// // … other writes …
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    table: TablePath,
    key: TableName,
    column: TableName,
}

/// Why a fence was not raised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has been there. Roll the transaction back, and stop.
    #[error(
        "{table} refused token {token}: a holder with a later token wrote to the row, or the row does not exist; roll back and stop"
    )]
    Refused {
        /// The table.
        table: String,
        /// The token that was refused.
        token: Token,
    },
    /// The database's error.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Fence {
    /// Makes a fence of the column `column` of `table`, which may be `schema.table`. Rows are found by their column
    /// `key`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOption`] unless each name is 1 to 63 letters, digits and underscores.
    pub fn new(table: &str, key: &str, column: &str) -> Result<Self, Error> {
        Ok(Self { table: TablePath::new(table)?, key: TableName::new(key)?, column: TableName::new(column)? })
    }

    fn statement(&self, quote: char, [token, key, again]: [&str; 3]) -> AssertSqlSafe<String> {
        let quoted = |name: &TableName| format!("{quote}{}{quote}", name.as_str());
        let (table, id, fence) = (self.table.quoted(quote), quoted(&self.key), quoted(&self.column));
        // Only checked names are put into the text.
        AssertSqlSafe(format!(
            "UPDATE {table} SET {fence} = {token} WHERE {id} = {key} AND {fence} <= {again}"
        ))
    }

    fn outcome(&self, rows: u64, token: Token) -> Result<(), FenceError> {
        if rows > 0 {
            return Ok(());
        }
        Err(FenceError::Refused { table: self.table.to_string(), token })
    }

    /// Raises the fence of the row `id` to `token`, in the transaction of `connection`. Until it ends, no other
    /// transaction can raise the fence.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    ///
    /// # Errors
    ///
    /// [`FenceError::Refused`] if a greater token is there, or there is no such row; [`FenceError::Database`]
    /// otherwise.
    #[cfg(feature = "postgres")]
    pub async fn raise_in_postgres<'i, I>(
        &self,
        connection: &mut sqlx::PgConnection,
        id: I,
        token: Token,
    ) -> Result<(), FenceError>
    where
        I: sqlx::Encode<'i, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + 'i,
    {
        let raise = sqlx::query(self.statement('"', ["$1", "$2", "$1"])).bind(token).bind(id);
        self.outcome(raise.execute(connection).await?.rows_affected(), token)
    }

    /// Raises the fence of the row `id` to `token` in MySQL or MariaDB, in the transaction of `connection`. Until it
    /// ends, no other transaction can raise the fence.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: roll the transaction back.
    ///
    /// # Errors
    ///
    /// As for `raise_in_postgres`.
    #[cfg(feature = "mysql")]
    pub async fn raise_in_mysql<'i, I>(
        &self,
        connection: &mut sqlx::MySqlConnection,
        id: I,
        token: Token,
    ) -> Result<(), FenceError>
    where
        I: sqlx::Encode<'i, sqlx::MySql> + sqlx::Type<sqlx::MySql> + Send + 'i,
    {
        let raise = sqlx::query(self.statement('`', ["?", "?", "?"])).bind(token).bind(id);
        let raise = raise.bind(token);
        // The driver makes the server count the rows found, not only those changed.
        self.outcome(raise.execute(connection).await?.rows_affected(), token)
    }
}
