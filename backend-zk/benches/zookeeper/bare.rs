//! [The recipe](https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks), one request after the other, and
//! nothing else: it watches no session, and expects no lost reply and no cancelled claim.

use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, EventType};

const CONTENDER: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

/// Makes the node under which the contenders stand.
pub(crate) async fn prepare(client: &Client, lock: &str) {
    client.mkdir(lock, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.expect("a node");
}

/// Takes the lock, and gives the path of its node.
pub(crate) async fn acquire(client: &Client, lock: &str) -> String {
    let base = format!("{lock}/lock-");
    let (_, number) = client.create(&base, b"", &CONTENDER).await.expect("a contender");
    let own = format!("lock-{number}");
    loop {
        let mut contenders = client.list_children(lock).await.expect("the contenders");
        contenders.sort_unstable();
        let at = contenders.iter().position(|contender| *contender == own).expect("its own");
        let Some(before) = at.checked_sub(1).map(|at| &contenders[at]) else {
            return format!("{lock}/{own}");
        };
        let (stands, watch) =
            client.check_and_watch_stat(&format!("{lock}/{before}")).await.expect("an answer");
        if stands.is_some() {
            assert_eq!(watch.changed().await.event_type, EventType::NodeDeleted);
        }
    }
}

pub(crate) async fn release(client: &Client, node: &str) {
    client.delete(node, None).await.expect("it was held");
}
