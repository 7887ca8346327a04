//! Latches: one persistent node each, with a node below it for each party that has counted down.

use crate::{
    errors::explain,
    node::{contender::number, names::encode},
    session::Live,
};
use futures_util::future::join;
use std::num::NonZeroU32;
use tenure_core::{LatchState, LatchStep, Name, StoreError};
use zookeeper_client::{CreateMode, Error};

/// The parent node of all latches: no lock's name is encoded like this.
const LATCHES: &str = "%latches";
/// How many nodes are deleted together at most: a server takes requests of up to 1 MB.
const TOGETHER: usize = 500;

impl Live {
    /// Takes one step at the latch `name` of those under `prefix`.
    pub(crate) async fn latch(
        &self,
        prefix: &str,
        name: &Name,
        step: &LatchStep,
    ) -> Result<LatchState, StoreError> {
        let parent = format!("{prefix}/{LATCHES}");
        let latch = format!("{parent}/{}", encode(name, false));
        let taken = async {
            match step {
                LatchStep::CountDown { party, of } => self.count_down(&parent, &latch, party, *of).await?,
                LatchStep::Remove => self.remove_latch(&latch).await?,
                LatchStep::Look => {}
            }
            self.look_at(&latch).await
        };
        let (data, counted) = match taken.await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(LatchState::default()),
            Err(error) => return Err(explain(&latch, error)),
        };
        let of = parties(&data).ok_or_else(|| {
            StoreError::failed(format!(
                "another program created the node {latch}, which is not a latch; delete it, or use another prefix"
            ))
        })?;
        Ok(LatchState { of: of.get(), counted })
    }

    /// The data of the latch's node, and how many nodes are below it, as the leader sees it now: a follower may lag
    /// behind.
    async fn look_at(&self, latch: &str) -> Result<Option<(Vec<u8>, u32)>, Error> {
        let (synced, found) = join(self.client.sync(latch), self.client.get_data(latch)).await;
        synced?;
        match found {
            Ok((data, stat)) => Ok(Some((data, u32::try_from(stat.num_children).unwrap_or(0)))),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn count_down(&self, parent: &str, latch: &str, party: &Name, of: NonZeroU32) -> Result<(), Error> {
        let persistent = CreateMode::Persistent.with_acls(self.acls());
        let place = format!("{latch}/{}", encode(party, false));
        loop {
            // In one step, so that a latch never waits for parties of which none has counted down.
            let mut first = self.client.new_multi_writer();
            first.add_create(latch, of.to_string().as_bytes(), &persistent)?;
            first.add_create(&place, b"", &persistent)?;
            match first.commit().await.map_err(Error::from) {
                Ok(_) => return Ok(()),
                Err(Error::NodeExists) => {}
                Err(Error::NoNode) => {
                    self.client.mkdir(parent, &persistent).await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            // The number of parties is the one of the client that made the latch.
            let Some((data, _)) = self.look_at(latch).await? else { continue };
            if parties(&data) != Some(of) {
                return Ok(());
            }
            match self.client.create(&place, b"", &persistent).await {
                Ok(_) | Err(Error::NodeExists) => return Ok(()),
                // Another client removed the latch meanwhile.
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// In one step, so that no client sees a part of the count, unless there are more parties than that.
    async fn remove_latch(&self, latch: &str) -> Result<(), Error> {
        loop {
            let below = match self.list_synced(latch).await {
                Ok(below) => below,
                Err(Error::NoNode) => return Ok(()),
                Err(error) => return Err(error),
            };
            let (now, later) = below.split_at(below.len().min(TOGETHER));
            let mut removal = self.client.new_multi_writer();
            for party in now {
                removal.add_delete(&format!("{latch}/{party}"), None)?;
            }
            if later.is_empty() {
                removal.add_delete(latch, None)?;
            }
            match removal.commit().await.map_err(Error::from) {
                Ok(_) if later.is_empty() => return Ok(()),
                // Another client has counted down, or removes the latch too.
                Ok(_) | Err(Error::NotEmpty | Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// How many parties a latch waits for, from its node's data.
fn parties(data: &[u8]) -> Option<NonZeroU32> {
    number(std::str::from_utf8(data).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_what_we_write_is_a_number_of_parties(data in "[+-]?[0-9]{0,12}|.{0,8}") {
            if let Some(of) = parties(data.as_bytes()) {
                prop_assert_eq!(of.to_string(), data);
            }
        }

        #[test]
        fn number_of_parties_is_read_as_written(of in 1..=u32::MAX, garbage: Vec<u8>) {
            prop_assert_eq!(parties(of.to_string().as_bytes()).map(NonZeroU32::get), Some(of));
            let text = String::from_utf8(garbage.clone());
            let ours = text.is_ok_and(|text| text.parse::<u32>().is_ok_and(|of| of > 0));
            prop_assert!(ours || parties(&garbage).is_none());
        }
    }
}
