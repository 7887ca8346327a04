//! What makes sure that nothing stays behind, however the test process ends.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A small shell that waits for its standard input to end and then cleans up.
///
/// Its input is a pipe whose other end this process alone holds. The pipe ends when this is dropped, and also
/// when this process panics, is interrupted or killed. The shell is in a process group of its own, so an interrupt from the keyboard
/// does not reach it.
#[derive(Debug)]
pub(crate) struct Cleanup(Child);

/// Kills what lives in the directory `$1`, and removes it. A killed PostgreSQL leaves a shared memory segment too,
/// which it names in its directory.
const HOME: &str = r#"
trap '' HUP INT QUIT TERM
cat
while pids=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -F -- "-> $1" | sed 's|.*/proc/\([0-9]*\)/cwd.*|\1|'); [ -n "$pids" ]; do
    kill -KILL $pids 2>/dev/null
    sleep 0.02
done
shm=$(sed -n '7s/.* //p' "$1/data/postmaster.pid" 2>/dev/null)
[ -n "$shm" ] && ipcrm --shmem-id "$shm"
rm -rf -- "$1"
"#;

/// Removes the container `$1`. Where there is no `docker` command, the next start sweeps it up.
const CONTAINER: &str = r#"
trap '' HUP INT QUIT TERM
cat
docker rm --force --volumes "$1"
"#;

impl Cleanup {
    /// Cleans up a local server's directory and the processes in it.
    pub(crate) fn of_home(home: &Path) -> io::Result<Self> {
        Self::start(HOME, home.as_os_str())
    }

    /// Removes a container, by its name.
    pub(crate) fn of_container(name: &str) -> io::Result<Self> {
        Self::start(CONTAINER, OsStr::new(name))
    }

    fn start(script: &str, what: &OsStr) -> io::Result<Self> {
        Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(what)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .map(Self)
    }
}

impl Drop for Cleanup {
    /// Has it clean up, and waits until that is done.
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The only error is that the shell is not our child, and it is.
        let _ = self.0.wait();
    }
}
