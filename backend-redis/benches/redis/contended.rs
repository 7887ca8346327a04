//! One name that many tasks of one process want, beside the bare commands of a task that is alone.

use crate::{bare::Bare, one_name, server::Server};
use tenure_core::ClaimId;

pub(crate) async fn measure(server: &Server) {
    let (commands, locks) = (Bare::new(server.connection().await), server.locks().await);
    one_name::measure("redis", &locks, async || {
        commands.cycle("bare", &ClaimId::new().to_string()).await;
    })
    .await;
    locks.close().await;
}
