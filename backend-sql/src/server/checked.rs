//! Options that were checked.

use crate::{options::Strategy, table::TablePath};
use std::time::Duration;

/// [`ServerOptions`](super::ServerOptions), each within its range. `own` are those that only one kind of server has.
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
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "MySQL has none"))]
    pub(crate) own: O,
}
