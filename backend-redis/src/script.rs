//! The Lua scripts, each a whole request: what it does is done at once, or not at all.

use crate::turns::{LIVES, STANDS};
use redis::Cmd;

/// One script.
pub(crate) struct Script {
    code: String,
    /// By which the server knows it.
    hash: String,
}

impl Script {
    pub(crate) fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// A call with so many keys, to be followed by the keys and the arguments. `size` is about what they take.
    pub(crate) fn call(&self, keys: usize, size: usize) -> Cmd {
        let mut call = Cmd::with_capacity(keys + 8, size + 128);
        call.arg("EVALSHA").arg(&self.hash).arg(keys);
        call
    }

    /// The command that makes the server know the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.code);
        load
    }
}

/// All of them.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) retire: Script,
    pub(crate) renew: Script,
    pub(crate) why: Script,
    pub(crate) look: Script,
    pub(crate) force: Script,
}

impl Scripts {
    pub(crate) fn new(fair: bool) -> Self {
        const ISSUE: &str = include_str!("scripts/issue.lua");
        const MARK: &str = include_str!("scripts/mark.lua");
        const WHY: &str = include_str!("scripts/why.lua");
        const RELEASE: &str = include_str!("scripts/release.lua");
        const RETIRE: &str = include_str!("scripts/retire.lua");
        const FORCE: &str = include_str!("scripts/force.lua");
        let limits = format!("local STANDS, LIVES = {}, {}\n", STANDS.as_millis(), LIVES.as_millis());
        let in_turn = [&limits, ISSUE, include_str!("scripts/free_in_turn.lua")].concat();
        let free = if fair { &in_turn } else { include_str!("scripts/free.lua") };
        let acquire = if fair {
            Script::new(&[&in_turn, include_str!("scripts/acquire_in_turn.lua")])
        } else {
            Script::new(&[ISSUE, include_str!("scripts/acquire.lua")])
        };
        Self {
            acquire,
            release: Script::new(&[free, RELEASE]),
            retire: Script::new(&[free, MARK, RETIRE]),
            force: Script::new(&[free, MARK, FORCE]),
            renew: Script::new(&[WHY, include_str!("scripts/renew.lua")]),
            why: Script::new(&[WHY, include_str!("scripts/ask_why.lua")]),
            look: Script::new(&[include_str!("scripts/look.lua")]),
        }
    }
}
