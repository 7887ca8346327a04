//! Loss: a holder is told that its lock is gone, and why, while it works.
//!
//! `cargo run --example watch_loss`, or with `--features sqlite` and `-- sqlite:locks.db`.

use std::{env, time::Duration};
use tenure::{Error, Hold};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;
    let guard = locks.lock("feed").lease(Duration::from_secs(2)).acquire().await?;

    // Blocking code cannot be dropped, so it asks before each step.
    let stepping = tokio::task::spawn_blocking({
        let hold = guard.hold();
        move || steps(&hold)
    });

    // Ends the grant, as `tenure release --force` does. The holder learns of it with its next renewal.
    let holders = locks.force_release("feed").await?;
    println!("released by force: {}", holders.len());

    // For async code: whichever comes first.
    tokio::select! {
        cause = guard.lost() => println!("lost: {cause}"),
        () = tokio::time::sleep(Duration::from_mins(1)) => println!("done"),
    }
    assert!(!guard.is_held(), "lost is lost for ever");
    println!("steps done: {}", stepping.await.unwrap_or_default());

    // Nothing is left to release, and the release says so.
    if let Err(error) = guard.release().await {
        println!("{error}");
    }
    locks.close().await;
    Ok(())
}

fn steps(hold: &Hold) -> u32 {
    let mut done = 0;
    while hold.is_held() {
        std::thread::sleep(Duration::from_millis(50));
        done += 1;
    }
    done
}
