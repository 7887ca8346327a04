//! Backends and their options, whichever database they are for.

use crate::table::Raw;
use std::{ops::Deref, str::FromStr, sync::Arc, time::Duration};
use tenure_core::{Backend, Error, Locks, StoreError};
use tenure_sql::{MySqlBackend, MySqlOptions, PostgresBackend, PostgresOptions};

/// A backend of one database or the other.
#[derive(Clone)]
pub(crate) enum Store {
    Postgres(PostgresBackend),
    MySql(MySqlBackend),
}

impl Deref for Store {
    type Target = dyn Backend;

    fn deref(&self) -> &(dyn Backend + 'static) {
        match self {
            Self::Postgres(backend) => backend,
            Self::MySql(backend) => backend,
        }
    }
}

impl Store {
    pub(crate) fn locks(&self) -> Locks {
        match self {
            Self::Postgres(backend) => Locks::new(backend.clone()),
            Self::MySql(backend) => Locks::new(backend.clone()),
        }
    }

    pub(crate) fn shared(&self) -> Arc<dyn Backend> {
        match self {
            Self::Postgres(backend) => Arc::new(backend.clone()),
            Self::MySql(backend) => Arc::new(backend.clone()),
        }
    }

    pub(crate) async fn sweep(&self) -> Result<u64, StoreError> {
        match self {
            Self::Postgres(backend) => backend.sweep().await,
            Self::MySql(backend) => backend.sweep().await,
        }
    }

    pub(crate) async fn in_transaction(&self, transaction: &mut Raw, name: &str) -> Result<(), Error> {
        match (self, transaction) {
            (Self::Postgres(backend), Raw::Postgres(raw)) => backend.in_transaction(raw, name).await,
            (Self::MySql(backend), Raw::MySql(raw)) => backend.in_transaction(raw, name).await,
            _ => panic!("a connection of the other database"),
        }
    }

    pub(crate) async fn try_in_transaction(&self, transaction: &mut Raw, name: &str) -> Result<bool, Error> {
        match (self, transaction) {
            (Self::Postgres(backend), Raw::Postgres(raw)) => backend.try_in_transaction(raw, name).await,
            (Self::MySql(backend), Raw::MySql(raw)) => backend.try_in_transaction(raw, name).await,
            _ => panic!("a connection of the other database"),
        }
    }
}

/// The options of such a backend, and where it connects to.
#[derive(Clone)]
pub(crate) enum Options {
    Postgres { url: String, options: PostgresOptions },
    MySql { url: String, options: MySqlOptions },
}

/// The same options with a change that both kinds know.
macro_rules! with {
    ($options:expr, $known:ident => $changed:expr) => {
        match $options {
            Options::Postgres { url, options: $known } => Options::Postgres { url, options: $changed },
            Options::MySql { url, options: $known } => Options::MySql { url, options: $changed },
        }
    };
}

impl Options {
    pub(crate) fn poll(self, longest: Duration) -> Self {
        with!(self, options => options.poll(longest))
    }

    pub(crate) fn fair(self) -> Self {
        with!(self, options => options.fair(true))
    }

    pub(crate) fn connections(self, connections: usize) -> Self {
        with!(self, options => options.connections(connections))
    }

    pub(crate) fn connect_timeout(self, longest: Duration) -> Self {
        with!(self, options => options.connect_timeout(longest))
    }

    pub(crate) fn response_timeout(self, longest: Duration) -> Self {
        with!(self, options => options.response_timeout(longest))
    }

    pub(crate) fn create_table(self, create: bool) -> Self {
        with!(self, options => options.create_table(create))
    }

    pub(crate) fn prefix(self, prefix: &str) -> Self {
        with!(self, options => options.prefix(prefix))
    }

    pub(crate) fn table(self, table: &str) -> Self {
        with!(self, options => options.table(table))
    }

    pub(crate) async fn open(self) -> Result<Store, Error> {
        match self {
            Self::Postgres { options, .. } => PostgresBackend::connect(options).await.map(Store::Postgres),
            Self::MySql { options, .. } => MySqlBackend::connect(options).await.map(Store::MySql),
        }
    }

    /// Opens it with sessions that begin with a setting of the server's. `value` is as the database writes it.
    pub(crate) async fn open_with(self, setting: &str, value: &str) -> Result<Store, Error> {
        match self {
            Self::Postgres { url, options } => {
                let connect = sqlx::postgres::PgConnectOptions::from_str(&url).unwrap();
                let connect = connect.options([(setting, value)]);
                PostgresBackend::connect_with(&connect, options).await.map(Store::Postgres)
            }
            Self::MySql { url, options } => {
                let connect = sqlx::mysql::MySqlConnectOptions::from_str(&url).unwrap();
                // The driver puts the time zone into the first statement of a session.
                let zone = format!("+00:00', {setting} = {value}, lc_time_names = 'en_US");
                MySqlBackend::connect_with(&connect.timezone(Some(zone)), options).await.map(Store::MySql)
            }
        }
    }
}
