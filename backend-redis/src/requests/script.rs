//! The Lua scripts, each a whole request that is carried out atomically.

use crate::timing::{LIVES, STANDS, STOPS};
use redis::Cmd;
use tenure_core::Mode;

/// One script.
pub(crate) struct Script {
    code: String,
    /// The hash by which the server knows it.
    hash: String,
}

impl Script {
    pub(crate) fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// Begins a call with this many keys; append the keys and the arguments. `size` is roughly how many bytes they
    /// take.
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

/// How a script publishes to a channel, and the same within a shard of a Cluster.
pub(crate) const PUBLISH: &str = "local PUBLISH = 'PUBLISH'\n";
const SPUBLISH: &str = "local PUBLISH = 'SPUBLISH'\n";
/// Needs one of the above before it.
pub(crate) const TELL: &str = include_str!("scripts/tell.lua");

/// Needed by all scripts that look at tokens.
pub(crate) const TOKENS: &str = include_str!("scripts/tokens.lua");
/// Issues tokens.
pub(crate) const ISSUE: &str = concat!(include_str!("scripts/tokens.lua"), include_str!("scripts/issue.lua"));

/// All of them.
pub(crate) struct Scripts {
    acquire: Script,
    /// For shared modes and permits, if that is a separate script.
    acquire_beside: Option<Script>,
    pub(crate) acquire_all: Script,
    /// Needs the lock's key alone, and does not serve a queue.
    pub(crate) release: Script,
    /// Serves the queue, if there is one.
    pub(crate) release_in_turn: Option<Script>,
    pub(crate) withdraw: Script,
    pub(crate) renew: Script,
    pub(crate) convert: Script,
    pub(crate) why: Script,
    pub(crate) look: Script,
    /// Looks at the queue, if there is one.
    pub(crate) waiting: Option<Script>,
    pub(crate) force: Script,
    pub(crate) latch: Script,
}

impl Scripts {
    /// The scripts for one server, or, with `in_shard`, for a node of a Cluster, which announces releases in the shard.
    pub(crate) fn new(fair: bool, in_shard: bool) -> Self {
        const GET: &str = "local value = redis.pcall('GET', KEYS[1])\n";
        const SEVERAL: &str = include_str!("scripts/several.lua");
        const MARK: &str = include_str!("scripts/mark.lua");
        const WHY: &str = include_str!("scripts/why.lua");
        const RELEASE: &str = include_str!("scripts/release.lua");
        let publish = if in_shard { SPUBLISH } else { PUBLISH };
        let tell = [publish, TELL].concat();
        let limits = format!(
            "local STANDS, LIVES, STOPS = {}, {}, {}\n",
            STANDS.as_millis(),
            LIVES.as_millis(),
            STOPS.as_millis()
        );
        let no_queue = [SEVERAL, include_str!("scripts/leave.lua")].concat();
        // Lua creates functions as it reaches them, so the shortest path comes first.
        let alone = [publish, GET, include_str!("scripts/release_alone.lua")].concat();
        let release = Script::new(&[&alone, TELL, &no_queue, RELEASE]);
        let admission = if fair {
            [&limits, SEVERAL, ISSUE, include_str!("scripts/queue.lua")].concat()
        } else {
            no_queue
        };
        let (acquire, acquire_beside, release_in_turn) = if fair {
            let acquire = include_str!("scripts/acquire_in_turn.lua");
            (
                Script::new(&[&tell, &admission, acquire]),
                None,
                Some(Script::new(&[&tell, GET, &admission, RELEASE])),
            )
        } else {
            let first = include_str!("scripts/acquire_first.lua");
            let beside = include_str!("scripts/acquire_beside.lua");
            (
                Script::new(&[&limits, ISSUE, include_str!("scripts/acquire.lua")]),
                Some(Script::new(&[ISSUE, first, SEVERAL, beside])),
                None,
            )
        };
        Self {
            acquire,
            acquire_beside,
            acquire_all: Script::new(&[ISSUE, include_str!("scripts/acquire_all.lua")]),
            release,
            release_in_turn,
            withdraw: Script::new(&[&tell, &admission, MARK, include_str!("scripts/withdraw.lua")]),
            force: Script::new(&[&tell, &admission, MARK, include_str!("scripts/force.lua")]),
            convert: Script::new(&[&tell, &admission, WHY, include_str!("scripts/convert.lua")]),
            renew: Script::new(&[SEVERAL, WHY, include_str!("scripts/renew.lua")]),
            why: Script::new(&[WHY, include_str!("scripts/ask_why.lua")]),
            latch: Script::new(&[include_str!("scripts/latch.lua")]),
            look: Script::new(&[include_str!("scripts/look.lua")]),
            waiting: fair.then(|| Script::new(&[include_str!("scripts/waiting.lua")])),
        }
    }

    pub(crate) fn acquire(&self, mode: Mode) -> &Script {
        match &self.acquire_beside {
            Some(beside) if mode != Mode::Exclusive => beside,
            _ => &self.acquire,
        }
    }
}
