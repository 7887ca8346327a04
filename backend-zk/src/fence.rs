//! Nodes that refuse stale holders.

use tenure_core::Token;
use zookeeper_client::{Client, Error, MultiWriteError, MultiWriteResult, MultiWriter};

/// A node of your own that keeps the greatest fencing token that has written there.
///
/// A lease can expire while its holder is asleep. So each write shows its holder's token, and one with a smaller token
/// than the greatest so far is refused: check and write are one transaction (`multi`), which `ZooKeeper` carries out
/// whole or not at all. The locks may live in any store.
///
/// Make the node before its first use, with `0` as its data, and with the access that your program needs.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: zookeeper_client::Client, guard: &tenure_core::Guard)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_zk::Fence;
///
/// let fence = Fence::new("/orders/42/fence");
/// fence.write(&client, guard.token(), |writes| writes.add_set_data("/orders/42", b"shipped", None)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    path: String,
}

/// Why a fence refused a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has been there. Nothing was written; stop.
    #[error(
        "the fence {path} refused token {token}: a holder with the later token {greatest} came first; stop"
    )]
    Refused {
        /// The fence's path.
        path: String,
        /// The token that was refused.
        token: Token,
        /// The greatest token so far.
        greatest: u64,
    },
    /// The node's data is not a token. Nothing was written.
    #[error(
        "the node {path} is not a fence: its data is not a fencing token; create fences with the data \"0\""
    )]
    NotAFence {
        /// The fence's path.
        path: String,
    },
    /// The server's or the connection's error, for the fence or for one of the writes. Without an answer, the writes may
    /// have been carried out.
    #[error("the fenced write failed: {0}")]
    ZooKeeper(#[from] Error),
}

impl Fence {
    /// Makes a fence of this node.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }

    /// Carries out the writes that `add` adds, and raises the fence to the token, all in one transaction. Returns their
    /// results.
    ///
    /// If another holder shows its token between the check and the writes, the token is checked anew, and `add` is
    /// called again.
    ///
    /// # Cancel safety
    ///
    /// The writes may have been carried out.
    ///
    /// # Errors
    ///
    /// [`FenceError::Refused`] if a greater token was shown before; [`FenceError::NotAFence`];
    /// [`FenceError::ZooKeeper`] otherwise: [`Error::NoNode`] if the fence has not been made.
    pub async fn write(
        &self,
        client: &Client,
        token: Token,
        mut add: impl FnMut(&mut MultiWriter<'_>) -> Result<(), Error>,
    ) -> Result<Vec<MultiWriteResult>, FenceError> {
        loop {
            let (data, stat) = client.get_data(&self.path).await?;
            let greatest = self.greatest(&data)?;
            if greatest > token.get() {
                return Err(FenceError::Refused { path: self.path.clone(), token, greatest });
            }
            let mut writes = client.new_multi_writer();
            // Even if it is the same: the version shows whether another was here meanwhile.
            writes.add_set_data(&self.path, token.to_string().as_bytes(), Some(stat.version))?;
            add(&mut writes)?;
            match writes.commit().await {
                Ok(results) => return Ok(results.into_iter().skip(1).collect()),
                Err(MultiWriteError::OperationFailed { index: 0, source: Error::BadVersion }) => {}
                Err(error) => return Err(FenceError::ZooKeeper(error.into())),
            }
        }
    }

    fn greatest(&self, data: &[u8]) -> Result<u64, FenceError> {
        let text =
            std::str::from_utf8(data).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| FenceError::NotAFence { path: self.path.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_a_number_is_a_fence(data in prop_oneof![any::<Vec<u8>>(), "[0-9 +-]{0,22}|[+-]?[0-9]{1,9}".prop_map(String::into_bytes)]) {
            let read = Fence::new("/fence").greatest(&data).ok();
            let digits = !data.is_empty() && data.iter().all(u8::is_ascii_digit);
            let number = String::from_utf8(data).ok().and_then(|text| text.parse().ok());
            prop_assert_eq!(read, number.filter(|_| digits));
        }

        #[test]
        fn token_is_read_as_written(token in 1..u64::MAX >> 1) {
            let written = Token::new(token).unwrap().to_string();
            prop_assert_eq!(Fence::new("/fence").greatest(written.as_bytes()).ok(), Some(token));
        }
    }
}
