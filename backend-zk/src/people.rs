//! Who holds what, for people.

use crate::{
    contender::{Card, claim_of},
    errors::explain,
    names::decode,
    removal::Removed,
    session::Live,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_core::{Holder, Name, StoreError, Token};
use zookeeper_client::Error;

/// How many locks are looked at together.
const TOGETHER: usize = 32;

/// A holder, and the node by which it holds.
struct Found {
    holder: Holder,
    path: String,
}

impl Live {
    /// Who holds `name`, whose node is `lock`.
    pub(crate) async fn holder(&self, lock: &str, name: &Name) -> Result<Option<Holder>, StoreError> {
        Ok(self.first(lock, name).await.map_err(|error| explain(lock, error))?.map(|found| found.holder))
    }

    /// Puts out who holds `name`.
    pub(crate) async fn put_out(&self, lock: &str, name: &Name) -> Result<Option<Holder>, StoreError> {
        let Some(found) = self.first(lock, name).await.map_err(|error| explain(lock, error))? else {
            return Ok(None);
        };
        match self.delete(&found.path).await {
            Removed::Deleted => Ok(Some(found.holder)),
            // It went by itself.
            Removed::Missing => Ok(None),
            Removed::SessionOver => Err(explain(lock, Error::SessionExpired)),
            Removed::Refused(error) => Err(explain(lock, error)),
        }
    }

    /// Everybody who holds a name that begins with `names`, of the locks under `prefix`. `at_root`: whether that is the
    /// servers' own root.
    pub(crate) async fn holders(
        &self,
        prefix: &str,
        at_root: bool,
        names: &str,
    ) -> Result<Vec<Holder>, StoreError> {
        let root = if prefix.is_empty() { "/" } else { prefix };
        let elements = match self.client.list_children(root).await {
            Ok(elements) => elements,
            Err(Error::NoNode) => return Ok(Vec::new()),
            Err(error) => return Err(explain(root, error)),
        };
        let locks = elements.iter().filter_map(|element| {
            let name = decode(element, at_root).filter(|name| name.starts_with(names))?;
            Some((format!("{prefix}/{element}"), Name::new(name).ok()?))
        });
        let locks: Vec<_> = locks.collect();
        let holder = |(lock, name): (String, Name)| async move { self.holder(&lock, &name).await };
        let holders = stream::iter(locks).map(holder).buffer_unordered(TOGETHER);
        let holders = holders.try_filter_map(|holder| async { Ok(holder) });
        let mut holders: Vec<_> = holders.try_collect().await?;
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    /// Who is first in the queue.
    async fn first(&self, lock: &str, name: &Name) -> Result<Option<Found>, Error> {
        loop {
            let children = match self.list_synced(lock).await {
                Ok(children) => children,
                Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(error),
            };
            let Some(node) = self.queue(lock, &children, None).await?.into_iter().next() else {
                return Ok(None);
            };
            let path = format!("{lock}/{node}");
            let (data, stat) = match self.client.get_data(&path).await {
                Ok(found) => found,
                // It went meanwhile, and another may be first.
                Err(Error::NoNode) => continue,
                // Another user's node, which we may not read.
                Err(Error::NoAuth) => match self.client.check_stat(&path).await? {
                    Some(stat) => (Vec::new(), stat),
                    None => continue,
                },
                Err(error) => return Err(error),
            };
            let mut holder = Holder::of(name.clone());
            if let (Some(claim), Some(info), Ok(token)) =
                (claim_of(&node), Card::read(&data), Token::try_from(stat.czxid))
            {
                holder = holder.claim(claim, token).info(info);
            }
            if let Ok(millis) = u64::try_from(stat.ctime) {
                let since = UNIX_EPOCH + Duration::from_millis(millis);
                // No request asks a server for its time. For people this machine's will do.
                holder = holder.since(since, SystemTime::now().duration_since(since).unwrap_or_default());
            }
            return Ok(Some(Found { holder, path }));
        }
    }
}
