//! Requests that several cases send to a record store.

use crate::{
    Check,
    any_records::{AnyVersion, RecordClient},
    check::{Stop, ensure},
};
use std::time::Duration;

/// For requests that end by themselves when all is well.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Swaps from the current version; stops the case if the answer is false.
#[track_caller]
pub(super) fn swapped<'a>(
    client: &'a RecordClient,
    key: &'a str,
    from: &'a AnyVersion,
    to: Option<&'a str>,
) -> impl Future<Output = Check> + 'a {
    let refused = Stop::failed(format_args!(
        "`swap` of {key:?} answered false, although no other client had written since `read` or `list` told this version"
    ));
    async move { if client.swap(key, from, to).await? { Ok(()) } else { Err(refused) } }
}

/// Writes a new text under the key, over any that is there, and returns its version.
pub(super) async fn put(client: &RecordClient, key: &str, text: &str) -> Check<AnyVersion> {
    let before = client.read(key).await?.version;
    swapped(client, key, &before, Some(text)).await?;
    let stored = client.read(key).await?;
    ensure!(
        stored.text.as_deref() == Some(text),
        "`read` of {key:?} answered {:?} after `swap` had answered true to {text:?}",
        stored.text
    );
    Ok(stored.version)
}

/// Removes the key, if it is there.
pub(super) async fn remove(client: &RecordClient, key: &str) -> Check {
    let stored = client.read(key).await?;
    if stored.text.is_some() {
        swapped(client, key, &stored.version, None).await?;
    }
    Ok(())
}
