//! [etcd's recipe](https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#Mutex).

use crate::beside_recipe::Recipe;
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    WatchOptions,
};
use std::path::Path;
use tenure_core::Locks;
use tenure_etcd::{EtcdBackend, EtcdOptions};

/// A client, and its lease. There is no heartbeat: it outlasts the measurement.
pub(crate) struct Etcd {
    client: Client,
    lease: i64,
}

impl Recipe for Etcd {
    const STORE: &'static str = "etcd";
    const ROUNDS: u32 = 30;
    const CYCLES: u32 = 20;

    fn server(ports: [u16; 2], directory: &Path) -> Vec<String> {
        let [clients, peers] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let (data, cluster) = (directory.join("data").display().to_string(), format!("default={peers}"));
        [
            "etcd",
            "--log-level",
            "error",
            "--data-dir",
            &data,
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
            &cluster,
        ]
        .map(str::to_owned)
        .to_vec()
    }

    async fn locks(address: &str) -> Locks {
        Locks::new(EtcdBackend::connect(EtcdOptions::new([address])).await.expect("a server"))
    }

    async fn connect(address: &str) -> Option<Self> {
        let mut client = Client::connect([address], None).await.ok()?;
        let lease = client.lease_grant(3_600, None).await.ok()?.id();
        Some(Self { client, lease })
    }

    async fn acquire(&mut self, lock: &str) -> String {
        let (below, key) = (format!("{lock}/"), format!("{lock}/{:x}", self.lease));
        let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let put = TxnOp::put(key.as_str(), "", Some(PutOptions::new().with_lease(self.lease)));
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let first = TxnOp::get(below.as_str(), Some(first.with_limit(1)));
        let entered = Txn::new().when([absent]).and_then([put, first]);
        let answer = self.client.txn(entered).await.expect("an answer");
        assert!(answer.succeeded(), "the key is there");
        let own = answer.header().expect("a header").revision();
        let is_first = answer.op_responses().iter().any(
            |answer| matches!(answer, TxnOpResponse::Get(found) if found.kvs()[0].create_revision() == own),
        );
        if is_first {
            return key;
        }
        loop {
            let before = GetOptions::new().with_prefix().with_max_create_revision(own - 1);
            let before = before.with_sort(SortTarget::Create, SortOrder::Descend).with_limit(1);
            let found = self.client.get(below.as_str(), Some(before)).await.expect("an answer");
            let Some(other) = found.kvs().first() else { return key };
            let after = found.header().expect("a header").revision() + 1;
            let options = WatchOptions::new().with_start_revision(after);
            let mut watch = self.client.watch(other.key(), Some(options)).await.expect("a watch");
            while watch.message().await.expect("a message").expect("another").events().is_empty() {}
        }
    }

    async fn release(&mut self, key: &str) {
        assert_eq!(self.client.delete(key, None).await.expect("an answer").deleted(), 1);
    }
}
