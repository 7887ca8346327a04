//! Redirections by nodes of a Cluster.

use crate::connection::{
    address::Address,
    errors::{Explanation, Trouble},
};
use redis::{ErrorKind, ServerErrorKind};
use tenure_core::StoreError;

/// Where, according to a node, a slot is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Permanently.
    Moved(Address),
    /// While it moves, for this request.
    Ask(Address),
}

/// Whether a request failed because another server keeps its slot.
pub(crate) fn redirect(error: &StoreError) -> Option<Redirect> {
    let Explanation { source, tls, .. } = error.cause().downcast_ref::<Explanation>()?;
    let (place, _) = source.0.redirect_node()?;
    let (host, port) = place.rsplit_once(':')?;
    // To a client that connects over TLS, a node names the other's TLS port.
    let address = Address::Network { host: host.to_owned(), port: port.parse().ok()?, tls: *tls };
    match source.0.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => Some(Redirect::Moved(address)),
        ErrorKind::Server(ServerErrorKind::Ask) => Some(Redirect::Ask(address)),
        _ => None,
    }
}

/// Whether a request failed because its slot is moving and no node has all of its keys. One about fewer keys may be
/// served. It was not carried out.
pub(crate) fn is_moving(error: &StoreError) -> bool {
    trouble(error) == Some(Trouble::Moving)
}

/// Whether a request failed because its keys are in different shards behind one address. It was not carried out.
pub(crate) fn is_of_many_shards(error: &StoreError) -> bool {
    trouble(error) == Some(Trouble::CrossSlot)
}

/// Whether a request failed because its server did not answer, or serves no clients at present. Another may have taken
/// its place.
pub(crate) fn took_no_requests(error: &StoreError) -> bool {
    trouble(error).is_some_and(Trouble::spoils_connection)
}

fn trouble(error: &StoreError) -> Option<Trouble> {
    let Explanation { source, .. } = error.cause().downcast_ref::<Explanation>()?;
    Some(Trouble::of(&source.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::errors::ServerName;

    fn said(tls: bool, reply: &str) -> Option<Redirect> {
        redirect(&refusal(tls, reply)?)
    }

    fn refusal(tls: bool, reply: &str) -> Option<StoreError> {
        let server =
            ServerName { address: "host:6379".into(), database: 0, tls, watched: false, has_answered: false };
        let reply = redis::parse_redis_value(reply.as_bytes()).ok()?;
        Some(server.explain(reply.extract_error().err()?))
    }

    #[test]
    fn redirection_names_the_other_node() {
        let at = |tls| Address::Network { host: "::1".into(), port: 7001, tls };
        assert_eq!(said(false, "-MOVED 7 ::1:7001\r\n"), Some(Redirect::Moved(at(false))));
        assert_eq!(said(true, "-ASK 7 ::1:7001\r\n"), Some(Redirect::Ask(at(true))));
        assert_eq!(said(false, "-TRYAGAIN the slot is moving\r\n"), None);
        let is_moving = |reply| is_moving(&refusal(false, reply).unwrap());
        assert!(is_moving("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"));
        assert!(!is_moving("-MOVED 7 ::1:7001\r\n") && !is_moving("-CLUSTERDOWN The cluster is down\r\n"));
    }

    #[test]
    fn answering_node_is_not_doubted() {
        let doubted = |reply| took_no_requests(&refusal(false, reply).unwrap());
        assert!(doubted("-CLUSTERDOWN The cluster is down\r\n") && doubted("-READONLY no writes\r\n"));
        assert!(!doubted("-TRYAGAIN the slot is moving\r\n") && !doubted("-MOVED 7 ::1:7001\r\n"));
    }

    proptest::proptest! {
        #[test]
        fn node_refusals_never_panic(
            reply in "-(MOVED|ASK)[ -~]{0,20}|-(MOVED|ASK) [0-9]{1,6} [^ \r\n]{0,12}:[0-9]{0,7}",
        ) {
            let _ = said(false, &format!("{reply}\r\n"));
        }
    }
}
