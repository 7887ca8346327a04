//! One at a time: however many of this program run, one makes the report, and the others wait for their turn.
//!
//! ```sh
//! cargo run --example one_at_a_time                                         # in memory: no other client
//! cargo run --example one_at_a_time --features sqlite -- sqlite:locks.db    # in several terminals at once
//! ```

use std::{env, time::Duration};
use tenure::{Error, Hold};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;
    let lock = locks
        .lock("reports/nightly")
        .label("the nightly report")
        .lease(Duration::from_secs(10))
        .wait(Duration::from_mins(1));

    // Dropped at its next await when the lease is lost: at an expiry, before another client can have the lock.
    match lock.run(make_report).await {
        Ok(pages) => println!("{pages} pages"),
        Err(Error::Timeout { waited, .. }) => {
            println!("another one held the lock for all of {waited:?}; giving up");
        }
        Err(error @ Error::Lost { .. }) => println!("stopped halfway: {error}"),
        Err(error) => return Err(error),
    }
    locks.close().await;
    Ok(())
}

async fn make_report(hold: Hold) -> u32 {
    for page in 1..=3 {
        println!("page {page}, with token {}", hold.token());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    3
}
