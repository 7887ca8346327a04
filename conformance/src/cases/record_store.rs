//! A record store, below `Locks` and `Records`: each request does what
//! [`RecordStore`](tenure_core::record::RecordStore) promises.

mod changed;
mod errors;
mod list;
mod requests;
mod swap;
mod texts;
mod time;

use crate::case::cases;
use changed::{changed_ends_on_change, changed_ends_on_earlier_change, changed_waits_while_nothing_changes};
use errors::{
    lost_answer_of_swap_is_not_false, requests_to_silent_server_end, unreachable_store_is_an_error,
};
use list::{list_is_complete, list_shows_one_instant};
use swap::{
    old_version_swaps_nothing, one_of_many_swaps_is_carried_out, read_sees_every_answered_swap,
    removed_key_is_absent,
};
use texts::{keys_are_kept_byte_for_byte, texts_are_kept_byte_for_byte};
use time::{read_tells_one_clock, read_tells_time_in_small_steps};

cases!("record_store":
    read_sees_every_answered_swap, removed_key_is_absent, old_version_swaps_nothing,
    one_of_many_swaps_is_carried_out,
    keys_are_kept_byte_for_byte, texts_are_kept_byte_for_byte,
    read_tells_time_in_small_steps, read_tells_one_clock,
    changed_waits_while_nothing_changes, changed_ends_on_change, changed_ends_on_earlier_change,
    list_is_complete.alone(), list_shows_one_instant.alone(),
    unreachable_store_is_an_error.alone(), requests_to_silent_server_end.alone(),
    lost_answer_of_swap_is_not_false.alone(),
);
