//! A loss comes before the line in the log that reports it, because the log may block (clause F8).

use crate::{Scene, USUAL_SESSION, claim, faults::session_of, in_time, server::ONE, try_grant};
use std::io;
use tenure_core::{Liveness, Standing};
use tokio::sync::mpsc;
use tracing_subscriber::filter::LevelFilter;

/// A log that tells whether the grant was lost when its session's end was written.
#[derive(Clone)]
struct Log {
    session: String,
    liveness: Liveness,
    lost: mpsc::UnboundedSender<bool>,
}

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        if text.contains("the session has ended") && text.contains(&self.session) {
            let _ = self.lost.send(self.liveness.loss().is_some());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_end_of_a_session_is_a_loss_before_it_is_logged() {
    let Some(scene) = Scene::on(&ONE, "logged").await else { return };
    let (proxy, backend) = scene.past_proxy(USUAL_SESSION).await;
    let grant = try_grant(&backend, &claim("a")).await.unwrap();
    let Standing::Session(liveness) = grant.standing.clone() else { panic!("{grant:?}") };
    let (session, (lost, mut told)) = (session_of(&scene, "a", 0).await, mpsc::unbounded_channel());
    let log = Log { session: format!("{session:#x}"), liveness, lost };
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(move || log.clone()).init();
    // It hears of the end when it is back, and of the node's end never.
    let opening = proxy.connections().last().expect("a connection").opening();
    proxy.refuse().await;
    proxy.cut().await;
    let ended = tenure_testbed::end_session(scene.place().address().await, &opening);
    in_time("the session's end", ended).await.unwrap();
    proxy.accept().await.unwrap();
    assert!(in_time("the line", told.recv()).await.unwrap(), "logged before the grant was lost");
}
