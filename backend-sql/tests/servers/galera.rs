//! A cluster whose nodes all accept writes.

use crate::{Backend, Kind, RELEASED, Table, busy, case::cases, claim, granted, said, soon, waiting};
use tenure_core::{Error, Renewal};
use tenure_testbed::Member;

cases!("galera":
    row_locks_are_refused_on_every_node.on(&[Kind::Galera]).of_row_locks(),
    a_lease_row_excludes_on_every_node.on(&[Kind::Galera]).of_lease_rows(),
);

/// The URLs of the nodes. One that the environment names may lead to any of them.
fn nodes(table: &Table) -> [String; 2] {
    let urls: Vec<String> = table.server.members().iter().map(Member::url).collect();
    urls.try_into().unwrap_or_else(|_| [table.server.url(), table.server.url()])
}

async fn row_locks_are_refused_on_every_node(table: &Table) {
    for url in nodes(table) {
        let error = table.options_at(&url).open().await.map(drop).expect_err("it was not refused");
        assert!(matches!(error, Error::Store { .. }), "{error:?}");
        let said = said(&error);
        assert!(said.contains("Galera") && said.contains("strategy=lease-row"), "{said}");
    }
}

/// Until the other node has applied a change, a client there sees the row as it was: it may find a free name still held,
/// and never a held one free.
async fn a_lease_row_excludes_on_every_node(table: &Table) {
    let [one, other] = nodes(table).map(|url| table.options_at(&url).open());
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
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
