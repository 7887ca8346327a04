//! A program whose log blocks: a stopped pager, a full pipe (clause F8). A test program of its own, because its
//! subscriber is for the whole process.

#[path = "common/failing.rs"]
mod failing;

use failing::Failing;
use std::{
    io,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};
use tenure_core::{Locks, LossCause};

/// Blocks at the first line, and tells that it does.
struct Blocked(Sender<()>);

impl io::Write for Blocked {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        let _ = self.0.send(());
        loop {
            std::thread::park();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_loss_is_told_while_the_log_blocks() {
    let (blocks, blocked): (_, Receiver<()>) = channel();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(move || Blocked(blocks.clone()))
        .init();
    let locks = Locks::new(Failing::default());
    for round in 0..2 {
        let guard =
            locks.lock(format!("fails {round}")).lease(Duration::from_secs(1)).acquire().await.unwrap();
        let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
        assert_eq!(lost.expect("told, though nobody reads the log"), LossCause::Expired);
        assert!(!guard.is_held());
        // In the first round by the failed renewal, on the thread that also tells of losses; from then on for good.
        let stuck = round > 0 || blocked.recv_timeout(Duration::from_secs(20)).is_ok();
        assert!(stuck, "nothing was logged, so nothing was blocked");
    }
}
