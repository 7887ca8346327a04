//! Requests and answers, without a connection: the keys of a name, the scripts, and how modes, holders and answers are
//! written.

pub(crate) mod arguments;
pub(crate) mod keys;
pub(crate) mod mode;
pub(crate) mod record;
pub(crate) mod replies;
pub(crate) mod script;
