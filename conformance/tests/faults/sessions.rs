//! Sessions that end when their client's connection is reset, as a row lock's do.

use std::{sync::Arc, time::Duration};
use tenure_conformance::{
    BoxError, Simulation, Subject, async_trait,
    saboteur::{Hurt, Injection, Sabotage, Saboteur},
};
use tenure_core::Backend;

/// A store of sessions in which a reset ends all of them.
pub(crate) struct Fragile {
    store: Simulation,
    /// Whether it says so.
    declared: bool,
}

impl Fragile {
    pub(crate) fn subject(declared: bool) -> Arc<dyn Subject> {
        Arc::new(Self { store: Simulation::seeded(7).with_sessions(), declared })
    }
}

#[async_trait]
impl Subject for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        self.store.backend().await
    }

    fn session_timeout(&self) -> Option<Duration> {
        self.store.session_timeout()
    }

    fn forgets(&self, hurt: Hurt) -> bool {
        self.declared && hurt == Hurt::Cut
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::new(Resets(self.store.saboteur()?)))
    }
}

#[derive(Debug)]
struct Resets(Arc<dyn Saboteur>);

#[async_trait]
impl Saboteur for Resets {
    fn server(&self) -> String {
        self.0.server()
    }

    fn can(&self, hurt: Hurt) -> bool {
        hurt == Hurt::Cut
    }

    async fn inject(&self, _: Injection) -> Sabotage {
        self.0.hurt(Hurt::ExpireSessions).await
    }

    async fn undo(&self, _: Hurt) -> Sabotage {
        Ok(())
    }

    async fn heal(&self) -> Sabotage {
        self.0.heal().await
    }
}
