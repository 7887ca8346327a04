//! Requests and answers, without a connection: the keys of a name, the scripts, and how modes, holders and answers are
//! written.
//!
//! The Lua files in `scripts` are parts, of which `script.rs` makes whole scripts. Each file uses only those below it.
//!
//! | file | what is in it |
//! |---|---|
//! | `script` | the scripts, each a whole request |
//! | `arguments`, `keys` | their arguments and keys |
//! | `replies` | their answers |
//! | `record`, `mode` | how holders, waiters and modes are written |

pub(crate) mod arguments;
pub(crate) mod keys;
pub(crate) mod mode;
pub(crate) mod record;
pub(crate) mod replies;
pub(crate) mod script;
