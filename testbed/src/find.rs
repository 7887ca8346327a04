//! Looks for a server, by the ways that are allowed, in their order.

use crate::assembly::Assembly;
use crate::composition;
use crate::kind::Kind;
use crate::node::Node;
use crate::platform::Platform;
use crate::secret::Secret;
use crate::unavailable::Unavailable;
use crate::way::{Use, Way};
use std::io;
use url::Url;

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) way: Way,
    pub(crate) url: Secret,
    pub(crate) assembly: Assembly,
}

/// Finds or starts a server of this kind, and waits until it answers.
pub(crate) async fn find(kind: Kind, ways: Use) -> Result<Found, Unavailable> {
    let mut failed = Unavailable::new(kind);
    let variable = kind.variable("URL");
    if ways.allows(Use::Environment) {
        match std::env::var(&variable) {
            Ok(url) if !url.is_empty() => {
                // Somebody named a server: another one in its place would surprise them.
                let found = given(kind, &variable, url).await;
                return found.map_err(|error| failed.because(format!("{variable}: {error}")));
            }
            _ => failed = failed.because(format!("{variable} is not set")),
        }
    }
    for allowed in [Use::Docker, Use::Local, Use::LocalOnDisk, Use::LocalWithClock] {
        if ways.allows(allowed) {
            let platform = if allowed == Use::Docker { Platform::Docker } else { Platform::Local(allowed) };
            match platform.way(&*composition::recipe(kind)) {
                Ok(way) => match composition::start(kind, platform).await {
                    Ok(assembly) => {
                        return Ok(Found { way, url: Secret(composition::url(&assembly, kind)), assembly });
                    }
                    Err(error) => failed = failed.because(format!("{way}: {error}")),
                },
                Err(reason) => failed = failed.because(reason),
            }
        }
    }
    Err(failed)
}

/// What the environment names: one server with a proxy before it, or an ensemble as it is.
async fn given(kind: Kind, variable: &str, url: String) -> io::Result<Found> {
    let way = Way::Environment { variable: variable.to_owned() };
    let single = Url::parse(&url).ok().filter(|url| kind.is_single() && !url.authority().contains(','));
    let Some(single) = single else {
        return Ok(Found { way, url: Secret(url), assembly: Assembly::foreign() });
    };
    let node =
        Node::given(kind.name().to_owned(), composition::recipe(kind), way.clone(), url, &single).await?;
    Ok(Found { way, url: Secret(node.url()), assembly: Assembly::single(node) })
}
