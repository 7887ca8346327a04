//! rslock's lock as a client of a fault run. Its guard has no token, and is lost when its `validity_time` is over.

use rslock::{Lock, LockError, LockManager};
use rustix::time::{ClockId, clock_gettime};
use std::{collections::HashMap, env, time::Duration};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::{task::JoinHandle, time::Instant, time::sleep};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let locks = LockManager::new(env::args().skip(1).take(1).collect());
    let mut held: HashMap<String, (Lock, JoinHandle<()>)> = HashMap::new();
    let mut requests = BufReader::new(stdin()).lines();
    while let Some(request) = requests.next_line().await.expect("a line") {
        let words: Vec<_> = request.split(' ').collect();
        let millis = |at: usize| Duration::from_millis(words[at].parse().expect("milliseconds"));
        if let Some((lock, telling)) = held.remove(words[1]) {
            telling.abort();
            lock.release().await; // It does not say whether the lock was still its own.
            println!("released");
            continue;
        }
        let (lease, give_up) = (millis(2), Instant::now() + millis(3));
        let mut answer = locks.lock(words[1], lease).await;
        while matches!(answer, Err(LockError::Unavailable)) && Instant::now() < give_up {
            answer = locks.lock(words[1], lease).await;
        }
        let Ok(lock) = answer else {
            println!("busy"); // It says `Unavailable`, too, where Redis does not answer.
            continue;
        };
        let (now, left) = (clock_gettime(ClockId::Boottime), lock.validity_time as u64);
        println!("held - {}", now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec as u64 / 1_000_000 + left);
        let lost = format!("lost {} expired", words[1]);
        let telling = tokio::spawn(async move {
            sleep(Duration::from_millis(left)).await;
            println!("{lost}");
        });
        held.insert(words[1].to_owned(), (lock, telling));
    }
}
