//! Who holds what, for people.

use crate::{
    card::Card,
    contender::{claim_of, token_of},
    errors::explain,
    names::decode,
    node::Removed,
    session::Live,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_core::{Holder, Mode, Name, StoreError, Token};
use zookeeper_client::{Error, Stat};

/// How many locks, or holders of one, to look up at a time.
const TOGETHER: usize = 32;

/// A holder, and the node by which it holds.
struct Found {
    holder: Holder,
    path: String,
}

impl Live {
    /// The holders of `name`, whose node is `lock`.
    pub(crate) async fn holders(&self, lock: &str, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let found = self.found(lock, name).await.map_err(|error| explain(lock, error))?;
        Ok(found.into_iter().map(|found| found.holder).collect())
    }

    /// Releases `name` by force.
    pub(crate) async fn force_release(&self, lock: &str, name: &Name) -> Result<Vec<Holder>, StoreError> {
        let found = self.found(lock, name).await.map_err(|error| explain(lock, error))?;
        let releases = stream::iter(found).map(|found| async move {
            match self.delete(&found.path).await {
                Removed::Deleted => Ok(Some(found.holder)),
                // It went by itself.
                Removed::Missing => Ok(None),
                Removed::SessionOver => Err(explain(lock, Error::SessionExpired)),
                Removed::Refused(error) => Err(explain(lock, error)),
            }
        });
        releases.buffered(TOGETHER).try_filter_map(|holder| async { Ok(holder) }).try_collect().await
    }

    /// The holders of all names that begin with `names`, of the locks under `prefix`. `at_root`: whether that is the
    /// servers' own root.
    pub(crate) async fn all_holders(
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
        let holders = |(lock, name): (String, Name)| async move { self.holders(&lock, &name).await };
        let holders = stream::iter(locks).map(holders).buffer_unordered(TOGETHER);
        let mut holders: Vec<_> = holders.try_concat().await?;
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    /// The holders of the name, in order of arrival.
    async fn found(&self, lock: &str, name: &Name) -> Result<Vec<Found>, Error> {
        loop {
            let children = match self.list_synced(lock).await {
                Ok(children) => children,
                Err(Error::NoNode) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            };
            let mut queue = self.queue(lock, &children, None).await?;
            let Some(first) = queue.first() else { return Ok(Vec::new()) };
            // It is gone meanwhile, and another may be first.
            let Some(told) = self.told(lock, &first.node).await? else { continue };
            if first.mode == Mode::Exclusive && Card::is_downgraded(&first.node, &told.0) {
                queue.first_reads();
            }
            let mut told = Some(told);
            let looks = queue.holders().iter().map(|place| {
                let told = told.take();
                async move {
                    let told = match told {
                        Some(told) => Some(told),
                        None => self.told(lock, &place.node).await?,
                    };
                    Ok::<_, Error>(told.map(|told| found(lock, name, &place.node, place.mode, told)))
                }
            });
            let looks: Vec<_> = looks.collect();
            let looks = stream::iter(looks).buffered(TOGETHER);
            return looks.try_filter_map(|found| async { Ok(found) }).try_collect().await;
        }
    }

    /// The data and stat of a node; `None` if it is gone.
    async fn told(&self, lock: &str, node: &str) -> Result<Option<(Vec<u8>, Stat)>, Error> {
        let path = format!("{lock}/{node}");
        match self.client.get_data(&path).await {
            Ok(told) => Ok(Some(told)),
            Err(Error::NoNode) => Ok(None),
            // Another user's node, which this user may not read.
            Err(Error::NoAuth) => Ok(self.client.check_stat(&path).await?.map(|stat| (Vec::new(), stat))),
            Err(error) => Err(error),
        }
    }
}

fn found(lock: &str, name: &Name, node: &str, mode: Mode, (data, stat): (Vec<u8>, Stat)) -> Found {
    let mut holder = Holder::of(name.clone()).mode(mode);
    let token = token_of(node).or_else(|| Token::try_from(stat.czxid).ok());
    if let (Some(claim), Some(info), Some(token)) = (claim_of(node), Card::read(node, &data), token) {
        holder = holder.claim(claim, token).info(info);
    }
    if let Ok(millis) = u64::try_from(stat.ctime) {
        let since = UNIX_EPOCH + Duration::from_millis(millis);
        // ZooKeeper has no request for the server's time. For people, this machine's is good enough.
        holder = holder.since(since, SystemTime::now().duration_since(since).unwrap_or_default());
    }
    Found { holder, path: format!("{lock}/{node}") }
}
