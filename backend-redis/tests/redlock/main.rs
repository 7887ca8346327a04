//! Locks held by a majority of servers: the store on real servers that fail.

mod faults;
mod identity;
mod late;
mod nodes;
mod quorums;
mod split;
