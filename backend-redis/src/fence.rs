//! Keys that refuse stale holders.

use redis::{FromRedisValue, RedisError, Script, ToRedisArgs, ToSingleRedisArg, aio::ConnectionLike};
use tenure_core::Token;

/// The check before the work in each script.
const CHECK: &str = include_str!("fence.lua");

/// A key of your own database that keeps the greatest fencing token that has written there.
///
/// A lease can expire while its holder is asleep. So each write shows its holder's token, and one with a smaller token
/// than the greatest so far is refused: check and write are one script, which Redis runs atomically. The locks may live
/// in any store.
///
/// The key has no time to live, and must survive as long as what it protects: see "Fences" in `docs/redis.md`. In a
/// Redis Cluster, the fence and the keys that are written need a common hash tag: `{orders/42}` and
/// `{orders/42}:fence`.
///
/// # Examples
///
/// ```no_run
/// # async fn example(mut connection: redis::aio::MultiplexedConnection, guard: &tenure_core::Guard)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_redis::Fence;
///
/// let fence = Fence::new("orders/42:fence");
/// fence.set(&mut connection, guard.token(), "orders/42", "shipped").await?;
///
/// // A script of your own, with its own keys and arguments.
/// let script = "return redis.call('HINCRBY', KEYS[1], 'sent', ARGV[1])";
/// let sent: u64 = fence.run(&mut connection, guard.token(), script, &["orders/42:counts"], &[1]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Fence {
    key: String,
}

/// Why a fence refused a write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A later holder has been there. Nothing was written; stop.
    #[error(
        "the fence {key:?} refused token {token}: a holder with the later token {greatest} came first; stop"
    )]
    Refused {
        /// The fence's key.
        key: String,
        /// The token that was refused.
        token: Token,
        /// The greatest token so far.
        greatest: String,
    },
    /// The server's or the connection's error. Without an answer, the write may have been carried out.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl Fence {
    /// Makes a fence of this key.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into() }
    }

    /// Shows the token, and writes nothing else: before reading data on which a later write will depend.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out. Calling it again is harmless.
    ///
    /// # Errors
    ///
    /// [`FenceError::Refused`] if a greater token was shown before; [`FenceError::Redis`] otherwise.
    pub async fn raise<C: ConnectionLike>(&self, connection: &mut C, token: Token) -> Result<(), FenceError> {
        self.run(connection, token, "return 1", &[] as &[&str], &[] as &[&str]).await
    }

    /// Sets `key` to `value`, which is one value: of several, only the first could be written.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out.
    ///
    /// # Errors
    ///
    /// As for [`raise`](Self::raise); nothing was written if it was refused.
    ///
    /// # Examples
    ///
    /// Several values do not compile:
    ///
    /// ```compile_fail,E0277
    /// # async fn example(mut connection: redis::aio::MultiplexedConnection, guard: &tenure_core::Guard)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// let fence = tenure_redis::Fence::new("orders/42:fence");
    /// fence.set(&mut connection, guard.token(), "orders/42", vec!["shipped", "paid"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set<C: ConnectionLike>(
        &self,
        connection: &mut C,
        token: Token,
        key: impl ToSingleRedisArg,
        value: impl ToSingleRedisArg,
    ) -> Result<(), FenceError> {
        self.run(connection, token, "redis.call('SET', KEYS[1], ARGV[1])", &[key], &[value]).await
    }

    /// Runs a Lua script of yours, with its `KEYS` and `ARGV`, and returns what it returns.
    ///
    /// # Cancel safety
    ///
    /// The request may have been carried out.
    ///
    /// # Errors
    ///
    /// As for [`raise`](Self::raise); nothing was run if it was refused. If the script itself fails, what it had written
    /// before stays, and so does the token.
    pub async fn run<Answer: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        token: Token,
        work: &str,
        keys: &[impl ToRedisArgs],
        arguments: &[impl ToRedisArgs],
    ) -> Result<Answer, FenceError> {
        let script = Script::new(&[CHECK, work].concat());
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        let answer = call.key(&self.key).arg(token.get()).invoke_async(connection).await;
        answer.map_err(|error| self.error(token, error))
    }

    fn error(&self, token: Token, error: RedisError) -> FenceError {
        match (error.code(), error.detail()) {
            (Some("STALE"), Some(greatest)) => {
                FenceError::Refused { key: self.key.clone(), token, greatest: greatest.to_owned() }
            }
            _ => FenceError::Redis(error),
        }
    }
}
