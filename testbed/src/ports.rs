//! Ports for servers that choose none themselves.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    sync::{Mutex, PoisonError},
};

/// The ports that this process has chosen, each held as the UDP port of the same number until the process ends. The servers
/// speak TCP, and some listen on their last port seconds after it was chosen: meanwhile nobody here or in another process
/// chooses it too.
static CHOSEN: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// Returns a port as [`free_ports`] does.
///
/// # Errors
///
/// If there is none.
pub fn free_port() -> io::Result<u16> {
    Ok(free_ports(1)?[0])
}

/// Returns ports that nobody listens on, below those that the system gives to outgoing connections: they are still free
/// when a server comes back from being killed.
///
/// # Errors
///
/// If there are not so many.
pub fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let random = RandomState::new();
    let candidates = (0..1000_u32).filter_map(|n| u16::try_from(20_000 + random.hash_one(n) % 12_000).ok());
    let choose = |port| {
        let chosen = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| (port, chosen))
    };
    let found = candidates.filter_map(choose).take(count);
    let (ports, chosen): (Vec<u16>, Vec<UdpSocket>) = found.unzip();
    if ports.len() < count {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port from 20000 to 32000"));
    }
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).extend(chosen);
    Ok(ports)
}
