//! The Lua scripts, each a whole request that is carried out atomically.

use crate::timing::{LIVES, STANDS, STOPS};
use redis::{Arg, Cmd};
use std::sync::Arc;
use tenure_core::Mode;

/// One script.
pub(crate) struct Script {
    code: String,
    /// The hash by which the server knows it.
    hash: String,
    /// Carries out many calls of this script, if calls that are made at the same time may be sent as one.
    pub(crate) each: Option<Arc<Script>>,
}

impl Script {
    pub(crate) fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash, each: None }
    }

    /// A script of which concurrent calls may be sent as one. `shared` is the code that they have in common, `one` that
    /// of each call. All their keys must be on one server, so this is not for a Cluster.
    fn of_many(shared: &[&str], one: &[&str]) -> Self {
        const EACH: &str = include_str!("scripts/each.lua");
        let (shared, one) = (shared.concat(), one.concat());
        let each = Self::new(&[&shared, "local function one(KEYS, ARGV)\n", &one, "end\n", EACH]);
        Self { each: Some(Arc::new(each)), ..Self::new(&[&shared, &one]) }
    }

    /// Begins a call with this many keys; append the keys and the arguments. `size` is roughly how many bytes they
    /// take.
    pub(crate) fn call(&self, keys: usize, size: usize) -> Cmd {
        let mut call = Cmd::with_capacity(keys + 8, size + 128);
        call.arg("EVALSHA").arg(&self.hash).arg(keys);
        call
    }

    /// One call for these calls of the script that this one carries out many times. All have the same number of keys,
    /// and of arguments.
    pub(crate) fn call_for_each<'a>(&self, calls: impl ExactSizeIterator<Item = &'a Cmd> + Clone) -> Cmd {
        let keys = calls.clone().next().map_or(0, keys);
        let size = calls.clone().flat_map(given).map(<[u8]>::len).sum();
        let mut all = self.call(keys * calls.len(), size);
        for key in calls.clone().flat_map(|call| given(call).take(keys)) {
            all.arg(key);
        }
        all.arg(keys);
        for argument in calls.flat_map(|call| given(call).skip(keys)) {
            all.arg(argument);
        }
        all
    }

    /// The command that makes the server know the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.code);
        load
    }
}

/// How many keys a call has.
pub(crate) fn keys(call: &Cmd) -> usize {
    let number = words(call).nth(2).and_then(|number| std::str::from_utf8(number).ok());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The keys and the arguments of a call.
fn given(call: &Cmd) -> impl Iterator<Item = &[u8]> {
    words(call).skip(3)
}

fn words(call: &Cmd) -> impl Iterator<Item = &[u8]> {
    call.args_iter().map(|word| if let Arg::Simple(bytes) = word { bytes } else { &[] })
}

/// How a script publishes to a channel, and the same within a shard of a Cluster.
pub(crate) const PUBLISH: &str = "local PUBLISH = 'PUBLISH'\n";
const SPUBLISH: &str = "local PUBLISH = 'SPUBLISH'\n";
/// Needs one of the above before it.
pub(crate) const TELL: &str = include_str!("scripts/tell.lua");

/// Reads a key that another program may have made a list.
pub(crate) const TEXT_AT: &str = include_str!("scripts/text_at.lua");
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
        const SEVERAL: &str =
            concat!(include_str!("scripts/text_at.lua"), include_str!("scripts/several.lua"));
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
        let often = |shared: &[&str], one: &[&str]| {
            if in_shard { Script::new(&[shared, one].concat()) } else { Script::of_many(shared, one) }
        };
        // Lua creates functions as it reaches them, so the shortest path comes first.
        let alone = [publish, include_str!("scripts/release_alone.lua")].concat();
        let release = often(&[], &[&alone, TELL, &no_queue, RELEASE]);
        let queue = [&limits, SEVERAL, include_str!("scripts/queue.lua")].concat();
        let admission = if fair { [ISSUE, &queue].concat() } else { no_queue };
        let again = include_str!("scripts/granted_again.lua");
        let (acquire, acquire_beside, release_in_turn) = if fair {
            let first = include_str!("scripts/acquire_in_turn_first.lua");
            let in_turn = include_str!("scripts/acquire_in_turn.lua");
            (
                often(&[ISSUE], &[first, &tell, &queue, again, in_turn]),
                None,
                Some(often(&[], &[&alone, TELL, &admission, RELEASE])),
            )
        } else {
            let alone = include_str!("scripts/acquire.lua");
            let upgraded = include_str!("scripts/acquire_upgraded.lua");
            let first = include_str!("scripts/acquire_first.lua");
            let beside = include_str!("scripts/acquire_beside.lua");
            (
                often(&[&limits, ISSUE], &[alone, SEVERAL, again, upgraded]),
                Some(often(&[ISSUE], &[first, SEVERAL, again, beside])),
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
            why: Script::new(&[TEXT_AT, WHY, include_str!("scripts/ask_why.lua")]),
            latch: Script::new(&[include_str!("scripts/latch.lua")]),
            look: Script::new(&[TEXT_AT, include_str!("scripts/look.lua")]),
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
