//! A client for which no time passes: only a push ends its wait.

use crate::store::{Options, Store};
use std::{ops::Deref, sync::mpsc, thread};
use tenure_core::{Backend, Claim, Grant};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::JoinHandle,
};

pub(crate) struct Stopped {
    store: Store,
    handle: Handle,
    /// Ends the thread.
    _end: oneshot::Sender<()>,
}

impl Deref for Stopped {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Stopped {
    pub(crate) async fn open(options: Options) -> Self {
        Self::with(options.open().await.unwrap())
    }

    pub(crate) fn with(store: Store) -> Self {
        let (end, ended) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let (stop, stopped) = mpsc::channel::<()>();
            // The clock does not go on by itself while such a task runs.
            runtime.spawn_blocking(move || stopped.recv());
            tell.send(runtime.handle().clone()).unwrap();
            let _ = runtime.block_on(ended);
            drop(stop);
        });
        Self { store, handle: told.recv().unwrap(), _end: end }
    }

    pub(crate) fn acquire(&self, claim: Claim) -> JoinHandle<Grant> {
        let store = self.store.clone();
        self.handle.spawn(async move { store.acquire(&claim).await.unwrap() })
    }
}
