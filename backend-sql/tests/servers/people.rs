//! Who holds a row lock, and why it ended.

use crate::{LossCause, Table, case::cases, claim, granted, lost};

cases!("people": a_holder_is_shown_by_its_connection.of_row_locks(), a_holder_learns_why_it_was_put_out.of_row_locks());

async fn a_holder_is_shown_by_its_connection(table: &Table) {
    let store = table.open().await;
    let held = claim("a");
    let grant = granted(&store, &held).await;
    assert!(table.connection_of(held.id).await > 0);
    assert_eq!(store.holders(&held.name).await.unwrap()[0].claim, Some(held.id));
    store.release(&grant).await.unwrap();
    assert_eq!(table.connection_of(held.id).await, 0);
    assert!(store.holders(&held.name).await.unwrap().is_empty());
}

async fn a_holder_learns_why_it_was_put_out(table: &Table) {
    let (ours, theirs) = (table.open().await, table.open().await);
    let held = claim("a");
    let grant = granted(&ours, &held).await;
    assert_eq!(theirs.force_release(&held.name).await.unwrap().len(), 1);
    assert_eq!(lost(&grant).await, LossCause::Forced);
    let next = claim("a");
    let grant = ours.acquire(&next).await.unwrap();
    table.end_connection_of(next.id).await;
    assert_eq!(lost(&grant).await, LossCause::SessionEnded);
}
