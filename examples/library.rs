//! A library that needs locks takes `&Locks`. It never chooses the store; the program that uses it does.
//!
//! `cargo run --example library`, or with `--features sqlite` and `-- sqlite:locks.db`.

use std::env;

/// The library. Its `Cargo.toml` has `tenure = { default-features = false }`, so it brings no store along.
#[allow(unreachable_pub, reason = "it stands for a crate of its own")]
mod housekeeping {
    use tenure::{Error, Locks};

    /// Jobs of which each runs in one process at a time.
    pub struct Jobs {
        locks: Locks,
        prefix: String,
    }

    impl Jobs {
        /// Clones of `Locks` are the same client. The prefix keeps two users of this library apart.
        pub fn new(locks: &Locks, prefix: &str) -> Self {
            Self { locks: locks.clone(), prefix: prefix.to_owned() }
        }

        /// Does the job unless another process is at it; tells whether it was done.
        pub async fn run(&self, name: &str, job: impl AsyncFnOnce()) -> Result<bool, Error> {
            let lock = self.locks.lock(format!("{}/housekeeping/{name}", self.prefix));
            let Some(guard) = lock.try_acquire().await? else { return Ok(false) };
            job().await;
            // An error says that the lease ran out meanwhile, so another process may have done it too.
            guard.release().await?;
            Ok(true)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), tenure::Error> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;
    let jobs = housekeeping::Jobs::new(&locks, "shop");
    let done = jobs.run("old-carts", async || println!("removing old carts")).await?;
    println!("done here: {done}");
    locks.close().await;
    Ok(())
}
