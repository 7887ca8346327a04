//! A store behind a proxy, as a subject.

use crate::{BoxError, Subject, proxy::Proxy, saboteur::Saboteur};
use async_trait::async_trait;
use std::sync::Arc;
use tenure_core::Backend;

/// A store whose clients connect through a proxy: all [faults of the network](crate::saboteur::Hurt::NETWORK) can be
/// injected.
#[derive(Debug)]
pub struct Proxied<C> {
    proxy: Arc<Proxy>,
    connect: C,
}

impl<C> Proxied<C> {
    /// The store that `connect` reaches through this proxy.
    pub fn new(proxy: Proxy, connect: C) -> Self {
        Self { proxy: Arc::new(proxy), connect }
    }
}

#[async_trait]
impl<C, F, B, E> Subject for Proxied<C>
where
    C: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Result<B, E>> + Send,
    B: Backend + 'static,
    E: Into<BoxError>,
{
    fn name(&self) -> &'static str {
        "proxied"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        match (self.connect)().await {
            Ok(backend) => Ok(Arc::new(backend)),
            Err(error) => Err(error.into()),
        }
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::clone(&self.proxy) as Arc<dyn Saboteur>)
    }
}
