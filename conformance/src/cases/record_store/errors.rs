//! A request that the store does not answer ends with an error, in time.

use super::requests::{PATIENCE, put, remove};
use crate::{
    Check, Stage,
    any_records::{AnyVersion, RecordClient},
    check::{Stop, chain, ensure, eventually},
    pause,
    saboteur::Hurt,
};
use std::time::Duration;
use tenure_core::StoreError;

/// How long a request may take.
const BOUND: Duration = Duration::from_secs(10);
/// How often a client sends each request while its server refuses: the first may still use an old connection.
const REQUESTS: usize = 3;

/// The server refuses connections. Each request is an error that a retry may mend.
pub(super) async fn unreachable_store_is_an_error(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::Refuse, Hurt::Cut])?;
    let ([client], key) = (stage.record_clients().await?, stage.name("a"));
    let version = put(&client, &key, "before").await?;
    saboteur.hurt(Hurt::Refuse).await?;
    saboteur.hurt(Hurt::Cut).await?;
    for _ in 0..REQUESTS {
        all_fail(&client, &key, &version, "while the server refused connections").await?;
    }
    saboteur.mend().await?;
    comes_back(&client, &key, &["before"]).await
}

/// No answer comes back on any connection, as behind a firewall that drops packets. Each request ends in time;
/// `read`, `swap` and `list` with an error.
pub(super) async fn requests_to_silent_server_end(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::HalfOpen])?;
    // One has a connection, the other may have to open one.
    let ([used, fresh], key) = (stage.record_clients().await?, stage.name("a"));
    let version = put(&used, &key, "before").await?;
    saboteur.hurt(Hurt::HalfOpen).await?;
    for client in [&used, &fresh] {
        all_fail(client, &key, &version, "while the server was silent").await?;
        // It may succeed, because it may have nothing to ask the server.
        let _ = ends("changed", client.changed(&key, &version, Duration::from_secs(1))).await?;
    }
    saboteur.mend().await?;
    // A swap may be delivered late.
    comes_back(&used, &key, &["before", "lost"]).await
}

/// The server carries a swap out, and its answer is lost. The answer is then an error or true, never false: no other
/// client writes.
pub(super) async fn lost_answer_of_swap_is_not_false(stage: &Stage) -> Check {
    let saboteur = stage.saboteur(&[Hurt::DropReplies])?;
    let [client, other] = stage.record_clients().await?;
    for millis in [0, 20, 100, 500, 2_000] {
        let key = stage.name(&millis.to_string());
        let version = put(&client, &key, "before").await?;
        saboteur.hurt(Hurt::DropReplies).await?;
        // From then on answers arrive, so a client library that sends the swap again gets one.
        let mend = async {
            pause::settle(Duration::from_millis(millis)).await;
            saboteur.mend().await
        };
        let swap = ends("swap", client.swap(&key, &version, Some("lost")));
        let (answer, mended) = tokio::join!(swap, mend);
        mended?;
        let text = eventually_read(&other, &key).await?;
        match answer? {
            Ok(true) => {
                ensure!(text.as_deref() == Some("lost"), "`swap` answered true, but `read` answers {text:?}");
            }
            Ok(false) => {
                return Err(Stop::failed(format_args!(
                    "`swap` answered false after its answer was lost, and no other client had written (the text is {text:?}): \
                     does the client library send a swap again by itself? Turn that off"
                )));
            }
            Err(_) => {}
        }
        remove(&other, &key).await?;
    }
    Ok(())
}

/// Sends each request, which must end with an error that a retry may mend.
async fn all_fail(client: &RecordClient, key: &str, version: &AnyVersion, when: &str) -> Check {
    let read = ends("read", client.read(key)).await?.map(|stored| format!("{:?}", stored.text));
    is_unavailable("read", read, when)?;
    let swap = ends("swap", client.swap(key, version, Some("lost"))).await?;
    is_unavailable("swap", swap.map(|answer| answer.to_string()), when)?;
    let list = ends("list", client.list(key)).await?.map(|listed| format!("{} keys", listed.len()));
    is_unavailable("list", list, when)
}

fn is_unavailable(request: &str, outcome: Result<String, StoreError>, when: &str) -> Check {
    match outcome {
        Ok(answer) => Err(Stop::failed(format_args!(
            "`{request}` answered {answer} {when}: an error must be returned as an error"
        ))),
        Err(error) => {
            ensure!(
                error.is_unavailable(),
                "{} ({when}): a retry may mend this, so return `StoreError::unavailable`, not `failed`",
                chain(&error)
            );
            Ok(())
        }
    }
}

/// Stops the case unless the request ends in time.
///
/// The time is counted in short pauses, so that a stall of this process is not taken for one of the store.
async fn ends<T>(request: &str, answer: impl Future<Output = T>) -> Check<T> {
    const PAUSES: u32 = 100;
    let bound = async {
        for _ in 0..PAUSES {
            pause::outlast(BOUND / PAUSES).await;
        }
    };
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = bound => Err(Stop::failed(format_args!(
            "`{request}` had not ended {BOUND:?} after it was sent to a silent server: \
             give the client library timeouts, for its connections and for its requests"
        ))),
    }
}

/// The text under the key, once the server answers again.
async fn eventually_read(client: &RecordClient, key: &str) -> Check<Option<String>> {
    let mut last;
    eventually!(
        PATIENCE,
        {
            last = client.read(key).await;
            last.is_ok()
        },
        "`read` answers again once the server does"
    );
    Ok(last?.text)
}

/// Checks that the server answers again, with one of these texts, and removes the key.
async fn comes_back(client: &RecordClient, key: &str, texts: &[&str]) -> Check {
    let text = eventually_read(client, key).await?;
    ensure!(
        text.as_deref().is_some_and(|text| texts.contains(&text)),
        "`read` answers {text:?} once the server is back, not one of {texts:?}"
    );
    eventually!(
        PATIENCE,
        {
            let stored = client.read(key).await?;
            stored.text.is_none() || client.swap(key, &stored.version, None).await?
        },
        "`swap` removes the key once the server is back"
    );
    Ok(())
}
