//! A request that was sent twice because its connection broke. The first copy may still be carried out, after the second was
//! answered.

use crate::{
    Kind, Table,
    case::cases,
    claim, granted, soon,
    together::{RESPONSE, gather, lose_the_second, renew},
};
use tenure_core::Renewal;

cases!("twice": a_renewal_that_was_sent_twice_is_in_doubt.on(ALL).of_lease_rows());

const ALL: &[Kind] = &[Kind::Postgres, Kind::Pgbouncer, Kind::Mariadb, Kind::Mysql];

/// The first copy would cut short a longer lease that has been asked for meanwhile.
async fn a_renewal_that_was_sent_twice_is_in_doubt(table: &Table) {
    let (proxy, options) = table.through_proxy().await;
    let store = options.connections(1).response_timeout(RESPONSE).open().await.unwrap();
    let held = [granted(&store, &claim("a")).await];
    assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
    let doubtful = if table.is_postgres() {
        proxy.cut().await;
        renew(&store, &held).await
    } else {
        // A look for locked rows comes first, which may be repeated.
        let mut asked = [renew(&store, &held)];
        gather(&proxy, &mut asked).await;
        let [asked] = asked;
        soon(async { tokio::join!(asked, lose_the_second(&proxy, async || true)) }).await.0
    };
    assert_eq!(doubtful, [Renewal::Unanswered]);
    assert_eq!(renew(&store, &held).await, [Renewal::Renewed]);
    // Over the connection for releases, which are not sent twice.
    assert_eq!(store.holders(&held[0].name).await.unwrap().len(), 1);
    store.release(&held[0]).await.unwrap();
    proxy.cut().await;
    let told = renew(&store, &held).await;
    assert!(matches!(told[..], [Renewal::Lost(_)]), "that is no doubt: {told:?}");
}
