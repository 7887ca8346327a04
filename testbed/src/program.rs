//! A server started from a program on this machine.

use crate::cleanup::Cleanup;
use crate::clock;
use crate::engine::{Engine, last_lines};
use crate::owner;
use crate::ports::free_port;
use crate::processes;
use crate::recipe::{Recipe, Setup};
use crate::way::Use;
use async_trait::async_trait;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tenure_conformance::saboteur::Injection;

/// How the directories' names begin.
const PREFIX: &str = "tenure-";
/// The file that says whose a directory is.
const OWNER: &str = "owner";

/// A server's processes and its directory.
#[derive(Debug)]
pub(crate) struct Program {
    recipe: Arc<dyn Recipe>,
    path: PathBuf,
    home: PathBuf,
    port: u16,
    user: Option<(u32, u32)>,
    fit: Use,
    child: Option<Child>,
    // Dropped before the directory's last traces are gone: it removes them.
    cleanup: Option<Cleanup>,
}

impl Program {
    /// Makes a home and starts the server in it; it may not answer yet.
    pub(crate) async fn start(
        recipe: Arc<dyn Recipe>,
        program: PathBuf,
        port: Option<u16>,
        fit: Use,
    ) -> io::Result<Self> {
        let start = move || Self::start_blocking(recipe, program, port, fit);
        tokio::task::spawn_blocking(start).await.map_err(io::Error::other)?
    }

    fn start_blocking(
        recipe: Arc<dyn Recipe>,
        program: PathBuf,
        port: Option<u16>,
        fit: Use,
    ) -> io::Result<Self> {
        if !Path::new("/proc/self/cwd").exists() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "local servers need Linux's /proc"));
        }
        let user = recipe.user().filter(|_| rustix::process::geteuid().is_root()).map(ids).transpose()?;
        let port = port.map_or_else(free_port, io::Result::Ok)?;
        sweep()?;
        let home = tempfile::Builder::new().prefix(PREFIX).tempdir()?.keep();
        // As `/proc` shows it.
        let home = fs::canonicalize(home)?;
        let cleanup = Some(Cleanup::of_home(&home)?);
        if let Some(owner) = owner::this_process() {
            fs::write(home.join(OWNER), owner)?;
        }
        let mut server = Self { recipe, path: program, home, port, user, fit, child: None, cleanup };
        if let Some((uid, gid)) = user {
            chown(&server.home, Some(uid), Some(gid))?;
        }
        server.recipe.prepare(&server.setup(&|program| server.command(program)))?;
        server.spawn()?;
        Ok(server)
    }

    fn spawn(&mut self) -> io::Result<()> {
        let mut command = self.recipe.serve(&self.setup(&|program| self.command(program)), self.port)?;
        if self.fit == Use::LocalWithClock {
            clock::give(&mut command, &self.home)?;
        }
        let log = fs::File::options().create(true).append(true).open(self.home.join("log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        // Out of reach of the keyboard's interrupt: a server that must not be tidied up is not told to.
        self.child = Some(command.process_group(0).spawn()?);
        Ok(())
    }

    fn setup<'a>(&'a self, command: &'a dyn Fn(&Path) -> Command) -> Setup<'a> {
        Setup { program: &self.path, home: &self.home, on_disk: self.fit == Use::LocalOnDisk, command }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Its temporary files are removed with the rest.
        command.current_dir(&self.home).env("TMPDIR", &self.home).stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }
}

#[async_trait]
impl Engine for Program {
    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    async fn freeze(&self) -> io::Result<()> {
        processes::freeze(&self.home).await
    }

    async fn thaw(&self) -> io::Result<()> {
        processes::thaw(&self.home)
    }

    async fn kill(&mut self) -> io::Result<()> {
        processes::kill(&self.home).await?;
        if let Some(mut child) = self.child.take() {
            child.wait()?;
        }
        Ok(())
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.spawn()
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        self.kill().await?;
        *self = Self::start(Arc::clone(&self.recipe), self.path.clone(), Some(self.port), self.fit).await?;
        Ok(())
    }

    fn set_clock(&self, injection: Injection) -> io::Result<()> {
        clock::set(&self.home, injection)
    }

    async fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        Some(format!("{} ended ({status}): {}", self.path.display(), last_lines(&log)))
    }

    async fn remove(self: Box<Self>) -> io::Result<()> {
        // The guard cleans up, and is waited for.
        tokio::task::spawn_blocking(move || drop(self)).await.map_err(io::Error::other)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.cleanup.take();
        if let Some(mut child) = self.child.take() {
            // The cleanup has killed it, so this does not wait; it leaves no zombie.
            let _ = child.wait();
        }
    }
}

/// Removes what is left of servers whose test process ended together with what guarded them: a machine that was
/// switched off, a job that was killed whole.
fn sweep() -> io::Result<()> {
    for entry in fs::read_dir(std::env::temp_dir())? {
        let home = entry?.path();
        let named = home.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if named
            && is_ours(&home)
            && fs::read_to_string(home.join(OWNER)).is_ok_and(|owner| owner::is_dead(&owner))
        {
            match fs::canonicalize(home) {
                Ok(home) => drop(Cleanup::of_home(&home)?),
                // Another has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Whether we made it: the temporary directory is everybody's. What cannot be read is not ours, or has just gone.
fn is_ours(home: &Path) -> bool {
    let own = fs::symlink_metadata(home.join(OWNER));
    fs::symlink_metadata(home).is_ok_and(|home| home.is_dir())
        && own.is_ok_and(|own| own.is_file() && own.uid() == rustix::process::geteuid().as_raw())
}

/// Finds a program in `PATH`, and where Debian keeps servers.
pub(crate) fn find(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    places
        .map(|place| place.join(name))
        .find(|program| program.is_file())
        .ok_or_else(|| format!("no program {name} on this machine"))
}

/// A user's ids.
fn ids(user: &str) -> io::Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    users
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == user).then_some(())?;
            Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no user {user} to run the server as"))
        })
}
