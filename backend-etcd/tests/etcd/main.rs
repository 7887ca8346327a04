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
use std::{future::Future, sync::Arc, time::Duration};
use tenure_conformance::pause;
use tenure_core::{Attempt, Backend, Claim, ClaimId, Grant, HolderInfo, Mode, Name, Release};
use tenure_etcd::EtcdBackend;
use tokio::task::JoinHandle;

/// After this time a test gives up an event, on a busy machine too.
const HANG: Duration = Duration::from_mins(3);
const RELEASED: Release = Release::Released { awaited: false };

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn claim(text: &str) -> Claim {
    Claim {
        id: ClaimId::new(),
        name: name(text),
        mode: Mode::Exclusive,
        lease: Duration::from_mins(10),
        waits: false,
        reserve: 0,
        holder: Arc::new(HolderInfo { label: None, host: "web1".to_owned(), pid: 4321 }),
    }
}

async fn granted(backend: &EtcdBackend, claim: &Claim) -> Grant {
    match backend.try_acquire(claim).await.unwrap() {
        Attempt::Granted(grant) => grant,
        busy @ Attempt::Busy { .. } => panic!("{:?} is not free: {busy:?}", claim.name),
    }
}

async fn is_busy(backend: &EtcdBackend, text: &str) -> bool {
    matches!(backend.try_acquire(&claim(text)).await.unwrap(), Attempt::Busy { .. })
}

fn waits(backend: &EtcdBackend, claim: Claim) -> JoinHandle<Grant> {
    let backend = backend.clone();
    tokio::spawn(async move { backend.acquire(&claim).await.unwrap() })
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

/// Looks again and again until something is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let looks = async {
        while !so().await {
            pause::look_again().await;
        }
    };
    in_time(what, looks).await;
}

/// The keys that begin like this, in their order.
async fn keys(eyes: &mut Client, begin: &str) -> Vec<KeyValue> {
    eyes.get(begin, Some(GetOptions::new().with_prefix())).await.unwrap().take_kvs()
}
