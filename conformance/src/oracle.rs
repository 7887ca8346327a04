//! Compares a store's answers with those of [`Record`](tenure_core::record::Record), request by request.
//!
//! Two clients ([`player`]) make random requests at once ([`play`]) about one [`scene`]. The requests and their answers are a [`history`].
//! The store keeps the contract if some order of the requests explains the answers ([`explain`]): each request took
//! effect at one instant between its sending and its answer, and a [`model`] made of `Record` gives the same answers in
//! that order. A request without an answer may have taken effect at any time after its sending, or never.
//!
//! The order is found as in G. Lowe, *Testing for linearizability* (2017): just in time, at each answer.

mod explain;
mod history;
mod model;
mod play;
mod player;
mod scene;

pub(crate) use play::play;
