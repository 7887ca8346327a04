//! The code specific to one kind of database server.

use super::checked::Checked;
use crate::{lease_rows::lease_table::LeaseTable, session_locks::requests::SessionRequests};
use std::{fmt, time::Duration};
use tenure_core::{Background, Error};

/// A kind of database server: [`sqlx::Postgres`], or [`sqlx::MySql`], which is MariaDB too. There are no others.
#[expect(private_bounds, reason = "no other crate makes one")]
pub trait Dialect: sqlx::Database + Parts {}

impl<D: Parts> Dialect for D {}

/// How the driver connects to it.
pub(crate) type ConnectOptions<D> = <<D as sqlx::Database>::Connection as sqlx::Connection>::Options;

/// The parts of a [`ServerBackend`](super::ServerBackend), and the options of this kind of server.
pub(crate) trait Parts: sqlx::Database {
    /// The options that only this kind has, with their defaults.
    type Own: Clone + Default + fmt::Debug + Send + Sync + 'static;
    /// [`Strategy::LeaseRow`](crate::Strategy::LeaseRow).
    type LeaseRows: LeaseTable;
    /// [`Strategy::RowLock`](crate::Strategy::RowLock).
    type RowLocks: SessionRequests<Connection = Self::Connection>;
    /// [`Strategy::Advisory`](crate::Strategy::Advisory).
    type AdvisoryLocks: SessionRequests<Connection = Self::Connection>;

    /// The schemes of the URLs.
    const SCHEMES: &[&str];
    /// The form of a URL, for people.
    const FORM: &str;
    /// The parameters of a URL that are handed to the driver.
    const PARAMETERS: &[&str];
    /// Those of them that name a file.
    const FILES: &[&str];

    /// The default of the longest pause of a waiter before it looks again.
    fn poll(own: &Self::Own) -> Duration;

    /// Completes the driver's reading of a URL with this query, or returns the mistake in the URL.
    fn complete(connect: ConnectOptions<Self>, query: &str) -> Result<ConnectOptions<Self>, &'static str>;

    /// The store's name for messages.
    fn store(connect: &ConnectOptions<Self>) -> String;

    /// The table of lease rows.
    fn lease_rows(
        options: Checked<Self::Own>,
        connect: ConnectOptions<Self>,
        background: Background,
    ) -> Self::LeaseRows;

    /// The table of row locks.
    fn row_locks(options: Checked<Self::Own>, connect: ConnectOptions<Self>) -> Self::RowLocks;

    /// The server's advisory locks, unless an option contradicts them.
    fn advisory_locks(
        options: Checked<Self::Own>,
        connect: ConnectOptions<Self>,
    ) -> Result<Self::AdvisoryLocks, Error>;
}
