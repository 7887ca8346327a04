//! The holders and waiters of names, for people.

use crate::{
    errors::explain,
    node::{
        Removed,
        card::Card,
        contender::{claim_of, token_of},
        names::decode,
    },
    queue::{Place, Queue},
    session::Live,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_core::{Holder, Mode, Name, StoreError, Token, Waiter};
use zookeeper_client::{Error, Stat};

/// How many locks, or holders or waiters of one, to look up at a time.
const TOGETHER: usize = 32;

/// The data and the stat of a node.
type Told = (Vec<u8>, Stat);

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

    /// The waiters for `name`, whose node is `lock`, in order.
    pub(crate) async fn waiting(&self, lock: &str, name: &Name) -> Result<Vec<Waiter>, StoreError> {
        self.waiters(lock, name).await.map_err(|error| explain(lock, error))
    }

    /// Releases `name` by force.
    pub(crate) async fn force_release(&self, lock: &str, name: &Name) -> Result<Vec<Holder>, StoreError> {
        // A mere look needs no such note: it keeps the client's handle, and with it the session, until it has ended.
        let _removing = self.contend();
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
    /// servers' own root. `store`: what to call it in the log.
    pub(crate) async fn all_holders(
        &self,
        prefix: &str,
        at_root: bool,
        names: &str,
        store: &str,
    ) -> Result<Vec<Holder>, StoreError> {
        let root = if prefix.is_empty() { "/" } else { prefix };
        let elements = match self.list_synced(root).await {
            Ok(elements) => elements,
            Err(Error::NoNode) => return Ok(Vec::new()),
            Err(error) => return Err(explain(root, error)),
        };
        let locks = elements.iter().filter_map(|element| {
            let name = decode(element, at_root).filter(|name| name.starts_with(names))?;
            Some((format!("{prefix}/{element}"), Name::new(name).ok()?))
        });
        let locks: Vec<_> = locks.collect();
        let holders = |(lock, name): (String, Name)| async move {
            match self.found(&lock, &name).await {
                Ok(found) => Ok(found.into_iter().map(|found| found.holder).collect::<Vec<_>>()),
                // This user may not read it, so it counts as held by an unknown holder. It hides no other.
                Err(error @ Error::NoAuth) => {
                    let error = explain(&lock, error);
                    tracing::warn!(lock.store = store, %error, "cannot tell who holds a name");
                    Ok(vec![Holder::of(name)])
                }
                Err(error) => Err(explain(&lock, error)),
            }
        };
        let holders = stream::iter(locks).map(holders).buffer_unordered(TOGETHER);
        let mut holders: Vec<_> = holders.try_concat().await?;
        holders.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(holders)
    }

    /// The holders of the name, in order of arrival.
    async fn found(&self, lock: &str, name: &Name) -> Result<Vec<Found>, Error> {
        let Some((queue, first)) = self.contending(lock).await? else { return Ok(Vec::new()) };
        let mut first = Some(first);
        let looks = queue.holders().iter().map(|place| {
            let told = first.take();
            async move {
                let told = match told {
                    Some(told) => Some(told),
                    None => self.told(lock, &place.node).await?,
                };
                Ok::<_, Error>(told.map(|told| found(lock, name, place, &told)))
            }
        });
        let looks: Vec<_> = looks.collect();
        let looks = stream::iter(looks).buffered(TOGETHER);
        looks.try_filter_map(|found| async { Ok(found) }).try_collect().await
    }

    /// The waiters for the name, in order of arrival.
    async fn waiters(&self, lock: &str, name: &Name) -> Result<Vec<Waiter>, Error> {
        let Some((queue, _)) = self.contending(lock).await? else { return Ok(Vec::new()) };
        let looks = queue.waiters().iter().map(|place| async move {
            let told = self.told(lock, &place.node).await?;
            Ok::<_, Error>(told.map(|told| waiter(name, place, &told)))
        });
        let looks: Vec<_> = looks.collect();
        let looks = stream::iter(looks).buffered(TOGETHER);
        looks.try_filter_map(|waiter| async { Ok(waiter) }).try_collect().await
    }

    /// The queue, and the data of its first node; `None` if it is empty.
    async fn contending(&self, lock: &str) -> Result<Option<(Queue, Told)>, Error> {
        loop {
            let children = match self.list_synced(lock).await {
                Ok(children) => children,
                Err(Error::NoNode) => return Ok(None),
                Err(error) => return Err(error),
            };
            let mut queue = self.queue(lock, &children, None).await?;
            let Some(first) = queue.first() else { return Ok(None) };
            // It is gone meanwhile, and another may be first.
            let Some(told) = self.told(lock, &first.node).await? else { continue };
            if first.mode == Mode::Exclusive && Card::is_downgraded(&first.node, &told.0) {
                queue.first_reads();
            }
            return Ok(Some((queue, told)));
        }
    }

    /// The data of a node; `None` if it is gone.
    async fn told(&self, lock: &str, node: &str) -> Result<Option<Told>, Error> {
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

fn found(lock: &str, name: &Name, Place { node, mode }: &Place, (data, stat): &Told) -> Found {
    let mut holder = Holder::of(name.clone()).mode(*mode);
    let token = token_of(node).or_else(|| Token::try_from(stat.czxid).ok());
    if let (Some(claim), Some(info), Some(token)) = (claim_of(node), Card::read(node, data), token) {
        holder = holder.claim(claim, token).info(info);
    }
    if let Some((since, age)) = made(stat) {
        holder = holder.since(since, age);
    }
    Found { holder, path: format!("{lock}/{node}") }
}

fn waiter(name: &Name, Place { node, mode }: &Place, (data, stat): &Told) -> Waiter {
    let mut waiter = Waiter::of(name.clone()).mode(*mode);
    if let (Some(claim), Some(info)) = (claim_of(node), Card::read(node, data)) {
        waiter = waiter.claim(claim).info(info);
    }
    match made(stat) {
        Some((since, age)) => waiter.since(since, age),
        None => waiter,
    }
}

/// When a node was made, and how long ago.
fn made(stat: &Stat) -> Option<(SystemTime, Duration)> {
    let since = UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.ctime).ok()?);
    // ZooKeeper has no request for the server's time. For people, this machine's is good enough.
    Some((since, SystemTime::now().duration_since(since).unwrap_or_default()))
}
