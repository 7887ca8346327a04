//! A cluster whose nodes all accept writes.

use crate::{Kind, RELEASED, Table, busy, case::cases, chain, claim, granted, soon, store::Store, waiting};
use futures_util::future::join_all;
use tenure_core::{Error, Release, Renewal};
use tenure_testbed::Member;

cases!("galera":
    row_locks_are_refused_on_every_node.on(&[Kind::Galera]).of_row_locks(),
    a_lease_row_excludes_on_every_node.on(&[Kind::Galera]).of_lease_rows(),
    clients_of_both_nodes_hold_in_turn.on(&[Kind::Galera]).of_lease_rows(),
);

/// The URLs of the nodes. One that the environment names may lead to any of them.
fn nodes(table: &Table) -> [String; 2] {
    let urls: Vec<String> = table.server.members().iter().map(Member::url).collect();
    urls.try_into().unwrap_or_else(|_| [table.server.url(), table.server.url()])
}

async fn stores(table: &Table) -> [Store; 2] {
    let [one, other] = nodes(table);
    [table.options_at(&one).open().await.unwrap(), table.options_at(&other).open().await.unwrap()]
}

async fn row_locks_are_refused_on_every_node(table: &Table) {
    for url in nodes(table) {
        let error = table.options_at(&url).open().await.map(drop).expect_err("it was not refused");
        assert!(matches!(error, Error::Store { .. }), "{error:?}");
        let said = chain(&error);
        assert!(said.contains("Galera") && said.contains("strategy=lease-row"), "{said}");
    }
}

/// Until the other node has applied a change, a client there sees the row as it was: it may find a free name still held,
/// and never a held one free.
async fn a_lease_row_excludes_on_every_node(table: &Table) {
    let [one, other] = stores(table).await;
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let held = granted(&one, &claim(name)).await;
        busy(&other, &claim(name)).await;
        assert_eq!(one.renew(std::slice::from_ref(&held)).await.unwrap(), [Renewal::Renewed]);
        assert_eq!(one.release(&held).await.unwrap(), RELEASED);
        let next = soon(other.acquire(&waiting(name))).await.unwrap();
        assert!(next.token > held.token, "{} {}", next.token, held.token);
        busy(&one, &claim(name)).await;
        assert_eq!(other.release(&next).await.unwrap(), RELEASED);
    }
}

/// Both nodes write the same row at the same time, and one of the two writes is undone.
async fn clients_of_both_nodes_hold_in_turn(table: &Table) {
    table.execute("CREATE TABLE {t}_counter (id INT PRIMARY KEY, number INT)").await;
    table.execute("INSERT INTO {t}_counter VALUES (1, 0)").await;
    let stores = stores(table).await;
    let nodes = nodes(table);
    let work = async |at: usize| {
        let mut raw = table.raw_at(&nodes[at % 2]).await;
        for _ in 0..3 {
            let held = soon(stores[at % 2].acquire(&waiting("counter"))).await.unwrap();
            // A read that waits for what other nodes have written.
            raw.execute("SET SESSION wsrep_sync_wait = 1").await;
            let number = raw.number(&table.sql("SELECT number FROM {t}_counter")).await;
            raw.execute(&table.sql(&format!("UPDATE {{t}}_counter SET number = {}", number + 1))).await;
            let released = stores[at % 2].release(&held).await.unwrap();
            assert!(matches!(released, Release::Released { .. }), "{released:?}");
        }
    };
    join_all((0..4).map(work)).await;
    let mut raw = table.raw().await;
    raw.execute("SET SESSION wsrep_sync_wait = 1").await;
    assert_eq!(raw.number(&table.sql("SELECT number FROM {t}_counter")).await, 12);
}
