//! Nodes of users that refuse stale holders.

use crate::{Scene, server::ONE};
use tenure_core::Token;
use tenure_zk::{Fence, FenceError};
use tokio::{runtime::Handle, task::block_in_place};
use zookeeper_client::{Acls, Client, CreateMode, Error};

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

struct Order<'a> {
    client: &'a Client,
    node: String,
    fence: Fence,
    fences_node: String,
}

impl<'a> Order<'a> {
    async fn of(scene: &'a Scene) -> Self {
        let (client, node) = (&scene.eyes, scene.path("order"));
        let fences_node = format!("{node}/fence");
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(&node, &persistent).await.unwrap();
        client.create(&fences_node, b"0", &persistent).await.unwrap();
        Self { client, node, fence: Fence::new(&fences_node), fences_node }
    }

    async fn write(&self, by: u64) -> Result<usize, FenceError> {
        let data = by.to_string();
        let add = self
            .fence
            .write(self.client, token(by), |writes| writes.add_set_data(&self.node, data.as_bytes(), None));
        add.await.map(|results| results.len())
    }

    async fn holds(&self, data: &str) {
        assert_eq!(self.client.get_data(&self.node).await.unwrap().0, data.as_bytes());
    }
}

#[tokio::test]
async fn the_overtaken_is_refused_and_writes_nothing() {
    let Some(scene) = Scene::on(&ONE, "fences").await else { return };
    let order = Order::of(&scene).await;
    assert_eq!(order.write(8).await.unwrap(), 1);
    order.write(8).await.unwrap();
    let refused = order.write(7).await.unwrap_err();
    assert!(matches!(refused, FenceError::Refused { greatest: 8, .. }), "{refused:?}");
    assert!(refused.to_string().contains("later token 8"), "{refused}");
    order.holds("8").await;
    order.write(10).await.unwrap();
    order.write(9).await.unwrap_err();
    order.holds("10").await;
    order.write(Token::MAX.get()).await.unwrap();
    order.write(Token::MAX.get() - 1).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_holder_who_comes_between_check_and_write_wins() {
    let Some(scene) = Scene::on(&ONE, "fences-between").await else { return };
    let order = Order::of(&scene).await;
    let mut calls = 0;
    let outcome = order.fence.write(order.client, token(5), |writes| {
        calls += 1;
        block_in_place(|| Handle::current().block_on(order.write(6))).unwrap();
        writes.add_set_data(&order.node, b"5", None)
    });
    let refused = outcome.await.unwrap_err();
    assert!(matches!(refused, FenceError::Refused { greatest: 6, .. }), "{refused:?}");
    assert_eq!(calls, 1);
    order.holds("6").await;
}

#[tokio::test]
async fn a_write_that_fails_raises_nothing() {
    let Some(scene) = Scene::on(&ONE, "fences-failing").await else { return };
    let order = Order::of(&scene).await;
    let add = order.fence.write(order.client, token(5), |writes| writes.add_delete("/no/such/node", None));
    let failed = add.await.unwrap_err();
    assert!(matches!(failed, FenceError::ZooKeeper(Error::NoNode)), "{failed:?}");
    order.write(4).await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_no_fence_lets_nobody_through() {
    let Some(scene) = Scene::on(&ONE, "fences-foreign").await else { return };
    let order = Order::of(&scene).await;
    order.client.set_data(&order.fences_node, b"+1", None).await.unwrap();
    let error = order.write(9).await.unwrap_err();
    assert!(matches!(error, FenceError::NotAFence { .. }), "{error:?}");
    order.client.delete(&order.fences_node, None).await.unwrap();
    let missing = order.write(9).await.unwrap_err();
    assert!(matches!(missing, FenceError::ZooKeeper(Error::NoNode)), "{missing:?}");
    order.holds("").await;
}
