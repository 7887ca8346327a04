//! Reports to a service manager that a candidate lives and leads: systemd, by its
//! [notification protocol](https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html).
//!
//! A message is one datagram, and never waits: acting comes before reporting. (The crates that send it block while
//! the manager's queue is full.) So each message is complete, and is repeated.

use crate::store::Variables;
use std::{convert::Infallible, env, ffi::OsString, future::pending, io, os::unix::net, time::Duration};
use tenure::{Hold, Name};
use tokio::{sync::watch, time::sleep};

const SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHED: &str = "WATCHDOG_PID";

/// How often the message is repeated for a manager without a watchdog.
const AGAIN: Duration = Duration::from_secs(30);

/// A service manager that wants to be notified.
pub(crate) struct Manager {
    socket: net::UnixDatagram,
    address: net::SocketAddr,
    /// How long it waits for a sign of life.
    watchdog: Option<Duration>,
}

impl Manager {
    /// Finds the one that started this process, if there is any.
    pub(crate) fn find() -> io::Result<Option<Self>> {
        let Some(name) = env::var_os(SOCKET).filter(|name| !name.is_empty()) else { return Ok(None) };
        let address = address(name)?;
        let socket = net::UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self { socket, address, watchdog: watchdog(|name| env::var(name).ok()) }))
    }

    /// Reports whether this candidate leads, and that it lives: while this is polled, so are losses and signals.
    pub(crate) async fn report(&self, name: &Name, mut term: watch::Receiver<Option<Hold>>) -> Infallible {
        loop {
            let held = term.borrow_and_update().as_ref().filter(|term| term.is_held()).map(Hold::hold);
            let status = match &held {
                Some(hold) => format!("leading {name:?} in term {}", hold.token()),
                None => format!("waiting to lead {name:?}"),
            };
            let sign_of_life = if self.watchdog.is_some() { "\nWATCHDOG=1" } else { "" };
            self.send(&format!("READY=1\nSTATUS={status}{sign_of_life}"));
            let lost = async {
                match held {
                    Some(hold) => hold.lost().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Ok(()) = term.changed() => {}
                _ = lost => {}
                () = sleep(self.watchdog.map_or(AGAIN, |longest| longest / 3)) => {}
            }
        }
    }

    /// Reports that this process is about to end.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        // If its queue is full, or it is gone, the next message repeats this one.
        let _ = self.socket.send_to_addr(message.as_bytes(), &self.address);
    }
}

/// Hides the manager from a command, whose messages it would take for this process's.
pub(crate) fn hidden() -> Variables {
    [SOCKET, WATCHDOG, WATCHED].map(|name| (name, None)).into()
}

/// The address of a path or, after an `@`, of a name in Linux's abstract namespace.
fn address(name: OsString) -> io::Result<net::SocketAddr> {
    #[cfg(target_os = "linux")]
    {
        use std::os::{linux::net::SocketAddrExt, unix::ffi::OsStrExt};
        if let Some(name) = name.as_bytes().strip_prefix(b"@") {
            return net::SocketAddr::from_abstract_name(name);
        }
    }
    net::SocketAddr::from_pathname(name)
}

/// How long the manager waits for a sign of life of this process.
fn watchdog(variable: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    if variable(WATCHED).is_some_and(|pid| pid.parse() != Ok(std::process::id())) {
        return None;
    }
    let longest = variable(WATCHDOG)?.parse().ok().map(Duration::from_micros);
    longest.filter(|longest| !longest.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_of_another_process_is_ignored() {
        let me = std::process::id().to_string();
        for (micros, pid, longest) in [
            (Some("3000000"), None, Some(Duration::from_secs(3))),
            (Some("3000000"), Some(&*me), Some(Duration::from_secs(3))),
            (Some("3000000"), Some("1"), None),
            (Some("3000000"), Some("me"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            let variable = |name: &str| match name {
                WATCHDOG => micros.map(str::to_owned),
                _ => pid.map(str::to_owned),
            };
            assert_eq!(watchdog(variable), longest, "{micros:?} {pid:?}");
        }
    }
}
