//! A guard's copy would be a view that does not keep the lock.

use tenure_core::{Guard, Hold};

fn clone_a_guard(guard: Guard) -> Hold {
    guard.clone()
}

fn main() {}
