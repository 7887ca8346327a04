//! A store whose renewals fail, for several test programs.

use tenure_core::{Backend, Background, Grant, Memory, Renewal, StoreError, async_trait, forward_backend};

/// Memory, with renewal on a thread of its own as in a program. It fails for names that begin with `fails`.
#[derive(Default)]
pub(crate) struct Failing {
    memory: Memory,
    background: Background,
}

#[async_trait]
impl Backend for Failing {
    forward_backend!(self => self.memory, except renew, background);

    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewal>, StoreError> {
        assert_eq!(std::thread::current().name(), Some("tenure"));
        let fails = grants.iter().any(|grant| grant.name.as_str().starts_with("fails"));
        if fails { Err(StoreError::unavailable("on purpose")) } else { self.memory.renew(grants).await }
    }

    fn background(&self) -> Background {
        self.background.clone()
    }
}
