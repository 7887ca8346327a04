//! PgBouncer, in front of a PostgreSQL server.

use crate::admin::Admin;
use crate::assembly::Assembly;
use crate::platform::Platform;
use crate::ports::free_port;
use crate::postgres::{NAME, Postgres, SECRET};
use crate::program::find;
use crate::recipe::{Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage, ImageExt};
use url::Url;

/// Starts both; the pooler is the first member, the database the second. It reaches the database through its proxy.
pub(crate) async fn start(platform: Platform) -> io::Result<Assembly> {
    let database = platform.start("pgbouncer's postgres", Arc::new(Postgres), None).await?;
    let pooler = Pgbouncer { port: free_port()?, database: database.address().port() };
    let pooler = platform.start("pgbouncer", Arc::new(pooler), None).await?;
    Ok(Assembly::of(vec![pooler, database]))
}

/// A pooler that gives each transaction a connection of few. The default is one that the environment names.
#[derive(Debug, Default)]
pub(crate) struct Pgbouncer {
    port: u16,
    database: u16,
}

impl Pgbouncer {
    /// Writes the settings and serves.
    fn script(&self) -> String {
        let Self { port, database } = self;
        let settings = [
            "[databases]",
            // For what a client leaves behind in a session, and for the pooler's other modes.
            &format!("one = host=127.0.0.1 port={database} dbname={NAME} pool_size=1"),
            &format!("session = host=127.0.0.1 port={database} dbname={NAME} pool_mode=session"),
            &format!("statement = host=127.0.0.1 port={database} dbname={NAME} pool_mode=statement"),
            &format!("* = host=127.0.0.1 port={database}"),
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            &format!("listen_port = {port}"),
            "unix_socket_dir =",
            "pool_mode = transaction",
            "max_client_conn = 500",
            "default_pool_size = 20",
            "auth_type = scram-sha-256",
            "auth_file = users.txt",
            &format!("admin_users = {NAME}"),
            // What clients set for every session, a pooler cannot keep.
            "ignore_startup_parameters = extra_float_digits",
        ];
        let lines: Vec<String> = settings.iter().map(|line| format!("'{line}'")).collect();
        format!(
            "cd \"${{TMPDIR:-/tmp}}\"; printf '%s\\n' {} >pgbouncer.ini; echo '\"{NAME}\" \"{SECRET}\"' >users.txt; \
             exec pgbouncer pgbouncer.ini",
            lines.join(" ")
        )
    }
}

#[async_trait]
impl Recipe for Pgbouncer {
    fn family(&self) -> &'static str {
        "pgbouncer"
    }

    fn image(&self) -> &'static str {
        "edoburu/pgbouncer:latest"
    }

    fn port(&self) -> u16 {
        6432
    }

    fn fixed_port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        // The official image's entrypoint wants to know the database also when it is told all of it.
        image.with_cmd(["sh".to_owned(), "-c".into(), self.script()]).with_env_var("DB_HOST", "127.0.0.1")
    }

    fn program(&self) -> Result<PathBuf, String> {
        Postgres.program()?;
        find("pgbouncer")
    }

    fn user(&self) -> Option<&'static str> {
        Postgres.user()
    }

    fn serve(&self, setup: &Setup<'_>, _: u16) -> io::Result<Command> {
        let mut command = (setup.command)(Path::new("sh"));
        // Not in everybody's path.
        let program = setup.program.display().to_string();
        command.args(["-c", &self.script().replace("exec pgbouncer", &format!("exec {program}"))]);
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        Postgres.url(address)
    }

    fn may_proxy(&self, url: &Url) -> bool {
        Postgres.may_proxy(url)
    }

    fn may_wipe(&self) -> bool {
        // It has nothing of its own.
        false
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        // Without what only the database's administrator asks for: a pooler refuses that.
        let options: PgConnectOptions = admin.url.parse().map_err(io::Error::other)?;
        let connection = options.connect().await.map_err(io::Error::other)?;
        connection.close().await.map_err(io::Error::other)
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[]
    }
}
