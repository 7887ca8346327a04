//! Locks that are free, beside create, get children and delete.

use crate::{
    bare,
    server::Server,
    support::{Way, report},
};

const ROUNDS: u32 = 60;
const CYCLES: u32 = 100;

pub(crate) async fn measure(server: &Server) {
    let (client, locks) = (server.client().await, server.locks().await);
    bare::prepare(&client, "/bare/free").await;
    let (mut theirs, mut ours, mut reads) =
        (Way::new("the bare recipe"), Way::new("tenure"), Way::new("tenure, a reader"));
    for _ in 0..ROUNDS {
        let cycle = async || {
            let node = bare::acquire(&client, "/bare/free").await;
            bare::release(&client, &node).await;
        };
        theirs.round(CYCLES, cycle).await;
        let cycle = async || {
            let guard = locks.lock("free").acquire().await.expect("it is free");
            guard.release().await.expect("it was held");
        };
        ours.round(CYCLES, cycle).await;
        let cycle = async || {
            let guard = locks.rw("free").read().acquire().await.expect("it is free");
            guard.release().await.expect("it was held");
        };
        reads.round(CYCLES, cycle).await;
    }
    report("zookeeper: uncontended acquire + release", &theirs, &ours);
    // A reader may take 1.2 times as long: 0.83 of the speed.
    report("zookeeper: uncontended read + release", &ours, &reads);
    locks.close().await;
}
