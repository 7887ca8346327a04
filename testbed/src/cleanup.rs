//! What makes sure that nothing stays behind, however the test process ends.

use std::ffi::OsStr;
use std::io::{self, Write};
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
/// which it names in its directory, and libfaketime leaves two files.
const HOME: &str = r#"
trap '' HUP INT QUIT TERM
cat
while pids=$(ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -F -- "-> $1" | sed 's|.*/proc/\([0-9]*\)/cwd.*|\1|'); [ -n "$pids" ]; do
    kill -KILL $pids 2>/dev/null
    for pid in $pids; do rm -f "/dev/shm/faketime_shm_$pid" "/dev/shm/sem.faketime_sem_$pid"; done
    sleep 0.02
done
shm=$(sed -n '7s/.* //p' "$1/data/postmaster.pid" 2>/dev/null)
[ -n "$shm" ] && ipcrm --shmem-id "$shm"
rm -rf -- "$1"
"#;

/// Removes the container `$1`. Where there is no `docker` command, the next start sweeps it up.
///
/// While the engine makes a container, it says that there is none to remove. So one that was never seen, neither here nor by
/// [who asked for it](Cleanup::answered), is waited for. `docker rm` names what it removed, succeeds without a word if there is
/// nothing, and fails if somebody else is removing it.
const CONTAINER: &str = r#"
trap '' HUP INT QUIT TERM
seen=$(cat)
command -v docker || exit
tries=120
while [ $((tries -= 1)) -ge 0 ]; do
    removed=$(docker rm --force --volumes "$1") || seen=yes
    [ -n "$removed" ] && exit
    left=$(docker ps --all --quiet --filter "name=^$1$") || left=unknown
    [ -n "$left" ] && seen=yes
    [ -n "$seen" ] && [ -z "$left" ] && exit
    sleep 0.5
done
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

    /// The engine has answered the request for the container, so from now on it is there or it is not.
    pub(crate) fn answered(&mut self) -> io::Result<()> {
        self.0.stdin.as_mut().map_or(Ok(()), |input| input.write_all(b"answered\n"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What the script asks of a `docker` that answers its first, second, … request with these lines of shell. It is a function:
    /// a file that was just written cannot be run while a process that another thread is starting still has it open.
    fn asked(seen: &str, answers: &[&str]) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let asked = home.path().join("asked");
        let case = |(at, answer): (usize, &&str)| format!("{}) {answer};;", at + 1);
        let cases = answers.iter().enumerate().map(case).collect::<Vec<_>>().join("\n");
        let asked_for = asked.display();
        let docker = format!(
            "docker() {{\necho \"$1\" >>{asked_for}\ncase $(wc -l <{asked_for}) in\n{cases}\nesac\n}}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &(docker + CONTAINER), "sh", "name"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut cleanup = Cleanup(shell.spawn().unwrap());
        cleanup.0.stdin.as_mut().unwrap().write_all(seen.as_bytes()).unwrap();
        drop(cleanup);
        fs::read_to_string(asked).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_container_that_is_still_being_made_is_waited_for() {
        // Not there; not there; listed, but not to be removed; removed.
        assert_eq!(asked("", &["", "", "", "echo id", "echo name"]), ["rm", "ps", "rm", "ps", "rm"]);
    }

    #[test]
    fn one_that_could_not_be_removed_is_tried_again() {
        assert_eq!(asked("answered", &["exit 1", "echo id", "echo name"]), ["rm", "ps", "rm"]);
    }

    #[test]
    fn one_that_somebody_else_removed_is_not_waited_for() {
        assert_eq!(asked("answered", &["", ""]), ["rm", "ps"]);
        assert_eq!(asked("", &["exit 1", ""]), ["rm", "ps"]);
    }

    #[test]
    fn an_engine_that_cannot_be_reached_is_asked_again() {
        assert_eq!(asked("answered", &["exit 1", "exit 1", "exit 1", ""]), ["rm", "ps", "rm", "ps"]);
    }
}
