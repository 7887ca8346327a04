//! From the call that releases to the grant in another process, beside the bare recipe.

use crate::{
    bare,
    hand_offs::report_hand_offs,
    process::{Process, now},
    server::{Server, connect, locks},
    support::Way,
};
use tokio::io::{AsyncBufReadExt, BufReader};

/// The argument that starts the other process.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 300;
const BARE: &str = "/bare/hand-off";

pub(crate) async fn measure(server: &Server) {
    let (client, ours) = (server.client().await, server.locks().await);
    bare::prepare(&client, BARE).await;
    let mut other = Process::start(CHILD, server.address());
    let (mut theirs, mut own) = (Way::new("the bare recipe"), Way::new("tenure"));
    for _ in 0..SAMPLES {
        let node = bare::acquire(&client, BARE).await;
        other.waits("bare").await;
        let begin = now();
        bare::release(&client, &node).await;
        theirs.rounds.push(other.granted().await.saturating_sub(begin));

        let guard = ours.lock("hand-off").acquire().await.expect("it is free");
        other.waits("tenure").await;
        let begin = now();
        guard.release().await.expect("it was held");
        own.rounds.push(other.granted().await.saturating_sub(begin));
    }
    report_hand_offs("zookeeper", &[theirs, own], 0..1);
    ours.close().await;
}

/// Runs in the other process.
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
