//! Rows that nobody has used for a day are deleted.

use super::{connection::Connection, file::File};
use crate::{
    sweep::{BATCH, EVERY, IDLE},
    values::millis,
};
use std::{sync::Arc, time::Duration};
use tenure_core::StoreError;

/// How long others have the file to themselves between two batches.
const BREATH: Duration = Duration::from_millis(10);

/// Sweeps the file unless somebody did so within the hour.
pub(super) async fn sweep_if_due(file: Arc<File>) {
    if let Err(error) = sweep(&file, EVERY).await {
        tracing::warn!(path = %file.options.path.display(), %error, "idle rows could not be deleted; tried again in an hour");
    }
}

/// Deletes idle rows, and tells how many, unless the last sweep is less than `every` ago.
///
/// Before a row goes, its token is noted in the row with the empty name, above which every new row's token begins. So
/// tokens rise even if the machine's clock is set back meanwhile (clause T2).
pub(super) async fn sweep(file: &Arc<File>, every: Duration) -> Result<u64, StoreError> {
    // A connection of its own: looking through a large table takes a while.
    let connection = Connection::new(file);
    let swept = sweep_on(&connection, file, every).await;
    connection.close().await;
    swept
}

async fn sweep_on(connection: &Connection, file: &File, every: Duration) -> Result<u64, StoreError> {
    let statements = &file.statements;
    let (every, idle, batch) = (millis(every), millis(IDLE), i64::from(BATCH));
    if connection.run(&statements.begin_sweep, |query| query.bind(every)).await?.is_empty() {
        return Ok(0);
    }
    let (mut after, mut deleted) = ((String::new(), String::new()), 0);
    loop {
        let (prefix, name) = after;
        let rows = connection
            .run(&statements.find_idle, |query| query.bind(prefix).bind(name).bind(idle).bind(batch))
            .await?;
        let mut found = Vec::with_capacity(rows.len());
        let mut greatest = 0;
        for row in &rows {
            let (prefix, name, token): (String, String, i64) = connection.row(row)?;
            greatest = greatest.max(token);
            found.push((prefix, name));
        }
        let Some(last) = found.last().cloned() else { return Ok(deleted) };
        let names = serde_json::json!(found).to_string();
        connection.run(&statements.raise_floor, |query| query.bind(greatest)).await?;
        deleted += connection
            .run(&statements.delete_idle, |query| query.bind(names).bind(idle))
            .await
            .map(|rows| rows.len() as u64)?;
        after = last;
        tokio::time::sleep(BREATH).await;
    }
}
