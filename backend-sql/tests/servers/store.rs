//! Backends and their options, whichever database they are for.

use crate::table::Raw;
use std::{str::FromStr, time::Duration};
use tenure_core::{Backend, Error, Locks, StoreError, async_trait, forward_backend};
use tenure_sql::{AdvisoryKey, MySqlBackend, MySqlOptions, PostgresBackend, PostgresOptions};

/// A backend of one database or the other.
#[derive(Clone)]
pub(crate) enum Store {
    Postgres(PostgresBackend),
    MySql(MySqlBackend),
}

#[async_trait]
impl Backend for Store {
    forward_backend!(self => *self.shared());
}

impl Store {
    fn shared(&self) -> &dyn Backend {
        match self {
            Self::Postgres(backend) => backend,
            Self::MySql(backend) => backend,
        }
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks::new(self.clone())
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

/// The options that both kinds know.
macro_rules! known {
    ($($option:ident: $value:ty),+ $(,)?) => {
        $(pub(crate) fn $option(self, value: $value) -> Self {
            match self {
                Self::Postgres { url, options } => Self::Postgres { url, options: options.$option(value) },
                Self::MySql { url, options } => Self::MySql { url, options: options.$option(value) },
            }
        })+
    };
}

impl Options {
    known!(
        poll: Duration,
        fair: bool,
        connections: usize,
        connect_timeout: Duration,
        response_timeout: Duration,
        create_table: bool,
        prefix: &str,
        table: &str,
    );

    /// In PostgreSQL.
    pub(crate) fn advisory_key(self, key: AdvisoryKey) -> Self {
        match self {
            Self::Postgres { url, options } => Self::Postgres { url, options: options.advisory_key(key) },
            Self::MySql { .. } => panic!("MySQL has plain_user_locks"),
        }
    }

    /// In MySQL and MariaDB.
    pub(crate) fn plain_user_locks(self, plain: bool) -> Self {
        match self {
            Self::MySql { url, options } => Self::MySql { url, options: options.plain_user_locks(plain) },
            Self::Postgres { .. } => panic!("PostgreSQL has advisory_key"),
        }
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
