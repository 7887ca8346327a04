//! The recipe against real servers. Several backends of one server are what several processes are.

mod interop;
mod late;
mod lists;
mod page;
#[cfg(feature = "tls")]
mod secure;
mod server;
mod session;

use etcd_client::{Client, GetOptions, KeyValue};
use std::sync::Arc;
use tenure_core::{Attempt, Backend, Claim, Grant, HolderInfo};
use tenure_etcd::EtcdBackend;
use tenure_testbed::claims::{self, HANG, RELEASED, granted, in_time, name, until};
use tokio::task::JoinHandle;

fn claim(text: &str) -> Claim {
    let holder = HolderInfo { label: None, host: "web1".to_owned(), pid: 4321 };
    Claim { holder: Arc::new(holder), ..claims::claim(text) }
}

async fn is_busy(backend: &EtcdBackend, text: &str) -> bool {
    matches!(backend.try_acquire(&claim(text)).await.unwrap(), Attempt::Busy { .. })
}

fn waits(backend: &EtcdBackend, claim: Claim) -> JoinHandle<Grant> {
    let backend = backend.clone();
    tokio::spawn(async move { backend.acquire(&claim).await.unwrap() })
}

/// The keys that begin like this, in their order.
async fn keys(eyes: &mut Client, begin: &str) -> Vec<KeyValue> {
    eyes.get(begin, Some(GetOptions::new().with_prefix())).await.unwrap().take_kvs()
}
