//! What servers are started with.

use crate::clock;
use crate::container::Container;
use crate::engine::Engine;
use crate::node::Node;
use crate::program::Program;
use crate::recipe::Recipe;
use crate::way::{Use, Way};
use std::io;
use std::sync::Arc;
use tenure_conformance::proxy::Proxy;

/// What servers are started with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Platform {
    Docker,
    /// One of [`Use`]'s ways to use this machine's programs.
    Local(Use),
}

impl Platform {
    /// How a server of this recipe would be started, or why it cannot be.
    pub(crate) fn way(self, recipe: &dyn Recipe) -> Result<Way, String> {
        match self {
            Self::Docker => {
                let variable = format!("TENURE_TEST_{}_IMAGE", recipe.family().to_uppercase());
                let image = std::env::var(variable).ok().filter(|image| !image.is_empty());
                match image.unwrap_or_else(|| recipe.image().to_owned()) {
                    none if none.is_empty() => Err(format!("there is no image for {}", recipe.family())),
                    image => Ok(Way::Docker { image }),
                }
            }
            Self::Local(fit) => {
                let settable = fit == Use::LocalWithClock;
                if settable {
                    clock::library()?;
                }
                Ok(Way::Local { program: recipe.program()?, settable })
            }
        }
    }

    /// Starts a server behind this proxy (or one of its own), and waits until it answers.
    pub(crate) async fn start(
        self,
        name: &str,
        recipe: Arc<dyn Recipe>,
        proxy: Option<Proxy>,
    ) -> io::Result<Node> {
        let way = self.way(&*recipe).map_err(io::Error::other)?;
        let engine: Box<dyn Engine> = match (&way, self) {
            (Way::Local { program, .. }, Self::Local(fit)) => {
                let port = recipe.fixed_port();
                Box::new(Program::start(Arc::clone(&recipe), program.clone(), port, fit).await?)
            }
            (Way::Docker { image }, _) => {
                Box::new(Container::start(Arc::clone(&recipe), image.clone()).await?)
            }
            _ => unreachable!("what is named is not started"),
        };
        let proxy = match proxy {
            Some(proxy) => {
                proxy.set_upstream(engine.address());
                proxy
            }
            None => Proxy::start(engine.address()).await?,
        };
        Node::serve(name.to_owned(), recipe, way, engine, Some(proxy), None).await
    }

    /// Starts several at once, because none serves before most of them run.
    pub(crate) async fn start_all(
        self,
        name: &str,
        servers: Vec<(impl Recipe + 'static, Option<Proxy>)>,
    ) -> io::Result<Vec<Node>> {
        let starting = servers.into_iter().enumerate().map(|(number, (recipe, proxy))| async move {
            self.start(&format!("{name} {number}"), Arc::new(recipe), proxy).await
        });
        futures_util::future::join_all(starting).await.into_iter().collect()
    }
}
