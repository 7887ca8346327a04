//! From the call that releases to the grant in another process, beside the bare recipe.

use crate::{
    bare,
    process::{Process, now},
    server::{Server, connect, locks},
};
use tokio::io::{AsyncBufReadExt, BufReader};

/// What tells a process that it is the other one.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 300;
const BARE: &str = "/bare/hand-off";

pub(crate) async fn measure(server: &Server) {
    let (client, ours) = (server.client().await, server.locks().await);
    bare::prepare(&client, BARE).await;
    let mut other = Process::start(CHILD, server.address());
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let node = bare::acquire(&client, BARE).await;
        other.waits("bare").await;
        let begin = now();
        bare::release(&client, &node).await;
        theirs.push(other.granted().await.saturating_sub(begin));

        let guard = ours.lock("hand-off").acquire().await.expect("it is free");
        other.waits("tenure").await;
        let begin = now();
        guard.release().await.expect("it was held");
        own.push(other.granted().await.saturating_sub(begin));
    }
    println!("zookeeper: from release to the grant in another process, the median of {SAMPLES}");
    let mut bare = None;
    for (name, samples) in [("the bare recipe", theirs), ("tenure", own)] {
        let mut samples = samples;
        samples.sort();
        let [low, median, high] = [10, 50, 90].map(|percent| samples[samples.len() * percent / 100]);
        let bare = *bare.get_or_insert(median);
        println!(
            "  {name:<24} {median:>10.2?} (tenth to ninetieth percentile: {low:.2?} to {high:.2?}), {:.2} times the bare",
            median.as_secs_f64() / bare.as_secs_f64()
        );
    }
    ours.close().await;
}

/// What the other process does.
pub(crate) async fn child(address: &str) {
    let (client, ours) = (connect(address).await, locks(address).await);
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let granted = if way == "bare" {
            let node = bare::acquire(&client, BARE).await;
            let granted = now();
            bare::release(&client, &node).await;
            granted
        } else {
            let guard = ours.lock("hand-off").acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
