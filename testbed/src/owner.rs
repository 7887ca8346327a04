//! Whose a container or a directory is: so that what a killed process left is swept up, and nothing else.

use std::fs;
use std::path::Path;

/// The label on every container.
pub(crate) const LABEL: &str = "tenure.owner";

/// This process, in words that no other process ever has: system, process namespace, id, and when it started.
/// `None` where the system does not tell.
pub(crate) fn this_process() -> Option<String> {
    let pid = std::process::id();
    Some(format!("{}/{pid}/{}", here()?, started(pid)?))
}

/// Whether an owner was a process of this system that has ended.
pub(crate) fn is_dead(owner: &str) -> bool {
    let mut parts = owner.rsplitn(3, '/');
    let (Some(start), Some(pid), Some(place)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let Ok(pid) = pid.parse() else { return false };
    here().is_some_and(|here| here == place) && started(pid).is_none_or(|now| now != start)
}

/// Which system this is, and which of its process namespaces.
fn here() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}/{}", boot.trim(), namespace.display()))
}

/// When a process started, in the kernel's ticks. `None` when it does not run, or has ended and not been waited for.
fn started(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field is the program's name in brackets, which may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let ticks = fields.nth(18)?;
    (state != "Z" && state != "X").then(|| ticks.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_lives() {
        assert!(!is_dead(&this_process().unwrap()));
    }

    #[test]
    fn a_process_that_ended_is_dead() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let owner = format!("{}/{}/{}", here().unwrap(), child.id(), started(child.id()).unwrap());
        assert!(!is_dead(&owner));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_dead(&owner));
    }
}
