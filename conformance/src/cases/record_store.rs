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
use changed::{
    change_before_the_wait_ends_changed, change_ends_changed, changed_waits_while_nothing_changes,
};
use errors::{lost_answer_of_swap_is_not_false, silence_ends_every_request, unreachable_store_is_an_error};
use list::{list_is_complete, list_shows_one_instant};
use swap::{
    old_version_swaps_nothing, one_of_many_swaps_is_carried_out, read_sees_every_answered_swap,
    removed_key_is_absent,
};
use texts::{no_two_keys_are_the_same, texts_come_back_as_they_were};
use time::{read_tells_one_clock, read_tells_time_in_small_steps};

cases!("record_store":
    read_sees_every_answered_swap, removed_key_is_absent, old_version_swaps_nothing,
    one_of_many_swaps_is_carried_out,
    no_two_keys_are_the_same, texts_come_back_as_they_were,
    read_tells_time_in_small_steps, read_tells_one_clock,
    changed_waits_while_nothing_changes, change_ends_changed, change_before_the_wait_ends_changed,
    list_is_complete.alone(), list_shows_one_instant.alone(),
    unreachable_store_is_an_error.alone(), silence_ends_every_request.alone(),
    lost_answer_of_swap_is_not_false.alone(),
);
