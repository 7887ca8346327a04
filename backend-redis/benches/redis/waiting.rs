//! The server's load from many tasks that wait for one name.

use crate::{server::Server, support::record};
use std::time::Duration;
use tokio::task::JoinSet;

const TASKS: u32 = 100;
const TIME: Duration = Duration::from_secs(15);

pub(crate) async fn measure(server: &Server) {
    let (holder, waiting) = (server.locks().await, server.locks().await);
    // Far from its next renewal.
    let guard = holder.lock("held").lease(Duration::from_mins(10)).acquire().await.expect("it is free");
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let lock = waiting.lock("held");
        tasks.spawn(async move { drop(lock.acquire().await) });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = server.commands().await;
    tokio::time::sleep(TIME).await;
    let commands = server.commands().await - before;
    let what = format!("redis: {TASKS} tasks wait in one process for one held name");
    println!("{what}");
    let rate = format!("{:.2}", f64::from(commands) / TIME.as_secs_f64());
    println!("  {commands} commands in {TIME:?}: {rate} a second");
    record(&what, &rate, "commands a second", &[]);
    tasks.shutdown().await;
    guard.release().await.expect("it was held");
    waiting.close().await;
}
