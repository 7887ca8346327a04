//! Redis without tenure: `SET NX PX`, and a script that compares and deletes.

use redis::{Script, aio::MultiplexedConnection};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A connection, and the script.
#[derive(Clone)]
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    script: Script,
}

impl Bare {
    pub(crate) fn new(connection: MultiplexedConnection) -> Self {
        Self { connection, script: Script::new(COMPARE_AND_DELETE) }
    }

    /// Takes a key that is free, and gives it up.
    pub(crate) async fn cycle(&self, key: &str, claim: &str) {
        let mut connection = self.connection.clone();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(claim).arg("NX").arg("PX").arg(30_000);
        let () = set.query_async(&mut connection).await.expect("it is free");
        let deleted: u32 =
            self.script.key(key).arg(claim).invoke_async(&mut connection).await.expect("an answer");
        assert_eq!(deleted, 1);
    }
}
