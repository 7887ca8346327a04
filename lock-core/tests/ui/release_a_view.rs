//! A view of a hold, as work that runs under a lock is given, cannot release it.

use tenure_core::{Error, Hold};

async fn release_a_view(hold: Hold) -> Result<(), Error> {
    hold.release().await
}

fn main() {}
