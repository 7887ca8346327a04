//! The `tenure` command as people meet it: real processes over real files.

mod bench;
mod blocked;
mod broken;
mod counter;
mod deploy;
mod family;
mod input;
mod latch;
mod look;
mod loss;
mod manual;
mod pages;
mod password;
mod ping;
mod prove;
mod run;
// Some names of sockets exist on Linux alone.
#[cfg(target_os = "linux")]
mod service;
mod signals;
mod stage;
mod store;
mod terminal;
mod waiting;
