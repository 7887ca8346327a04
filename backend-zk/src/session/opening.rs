//! Opening a session.

use crate::{errors::explain, options::Checked};
use std::time::Duration;
use tenure_core::StoreError;
use tokio::time::timeout;
use zookeeper_client::{Client, Connector, Error};

/// Opens a session as the user, and checks that the chroot exists.
pub(crate) async fn open(options: &Checked) -> Result<Client, StoreError> {
    let opening = async {
        let client = connector(options).connect(&options.ensemble).await?;
        let root = client.check_stat("/").await?;
        let known = is_confirmed(&client, options).await?;
        Ok((client, root, known))
    };
    let patience = options.values.connect_timeout;
    let late = |_| StoreError::unavailable(format!("no server opened a session within {patience:?}"));
    let opened = timeout(patience, opening).await.map_err(late)?;
    let (client, root, known) = opened.map_err(|error| explain("the session", error))?;
    if root.is_none() {
        let chroot = &options.chroot;
        return Err(StoreError::failed(format!("the chroot {chroot} does not exist; create it")));
    }
    if !known {
        return Err(StoreError::failed(
            "the servers accepted the session without checking its user; set up SASL on each of them, or use digest",
        ));
    }
    Ok(client)
}

fn connector(options: &Checked) -> Connector {
    // A server that hangs must be left early enough to send another one a heartbeat.
    let silence =
        (options.values.session_timeout / 6).clamp(Duration::from_millis(500), Duration::from_secs(5));
    let mut connector = Client::connector()
        .with_session_timeout(options.values.session_timeout)
        .with_connection_timeout(silence)
        .with_fail_eagerly();
    if let Some(login) = &options.login {
        connector = login.show(connector);
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &options.tls {
        connector = connector.with_tls(tls.client.clone());
    }
    connector
}

/// Whether the servers have authenticated the user, if they can be asked.
async fn is_confirmed(client: &Client, options: &Checked) -> Result<bool, Error> {
    if !options.login.as_ref().is_some_and(crate::options::login::Login::must_be_confirmed) {
        return Ok(true);
    }
    match client.list_auth_users().await {
        Ok(users) => Ok(users.iter().any(|user| user.scheme() == "sasl")),
        // Servers before 3.7 do not tell.
        Err(Error::Unimplemented) => Ok(true),
        Err(error) => Err(error),
    }
}
