//! A service whose sentinels name another master than before.

use crate::{claim, grant, server::Server};
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};
use tenure_redis::{RedisBackend, RedisOptions};

const LEASE: Duration = Duration::from_secs(20);

/// Names a master, with an epoch.
struct Sentinel {
    port: u16,
    master: Arc<Mutex<(u16, u64)>>,
}

impl Sentinel {
    fn naming(master: &Server, epoch: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, master) =
            (listener.local_addr().unwrap().port(), Arc::new(Mutex::new((master.port, epoch))));
        let named = Arc::clone(&master);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let named = Arc::clone(&named);
                std::thread::spawn(move || serve(client.unwrap(), &named));
            }
        });
        Self { port, master }
    }

    fn names(&self, master: &Server, epoch: u64) {
        *self.master.lock().unwrap() = (master.port, epoch);
    }
}

/// Answers with the master, and with `OK` to everything else.
fn serve(client: TcpStream, named: &Mutex<(u16, u64)>) {
    let mut write = client.try_clone().unwrap();
    let mut lines = BufReader::new(client).lines();
    // `*` and how many words, then for each its length and itself.
    while let Some(Ok(count)) = lines.next() {
        let words: Vec<String> =
            (0..count[1..].parse().unwrap()).map_while(|_| lines.nth(1).and_then(Result::ok)).collect();
        let (port, epoch) = *named.lock().unwrap();
        let fields = ["ip".to_owned(), "127.0.0.1".to_owned(), "port".to_owned(), port.to_string()];
        let fields = fields.into_iter().chain(["config-epoch".to_owned(), epoch.to_string()]);
        let fields: Vec<_> = fields.map(|field| format!("${}\r\n{field}\r\n", field.len())).collect();
        let is_asked = words.first().is_some_and(|word| word == "SENTINEL");
        let answer = if is_asked { format!("*6\r\n{}", fields.concat()) } else { "+OK\r\n".to_owned() };
        if write.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// On a runtime of its own, and so on a connection of its own.
fn elsewhere<T: Send + 'static>(asked: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(asked)).join().unwrap()
}

#[tokio::test]
async fn client_grants_on_one_master_at_a_time() {
    let (old, new) = (Server::start(), Server::start());
    let sentinel = Sentinel::naming(&old, 1);
    // The other sentinel is down, so there is no majority.
    let url = format!("redis+sentinel://127.0.0.1:{},127.0.0.1:1/tenure", sentinel.port);
    let options = RedisOptions::from_url(&url).unwrap().response_timeout(Duration::from_secs(10));
    let options = options.connect_timeout(Duration::from_secs(20));
    let backend = RedisBackend::connect(options).await.unwrap();
    let has = |server: &Server, name: &str| server.tell::<u64>(&["EXISTS", &format!("tenure:{name}")]) == 1;
    grant(&backend, &claim("a", LEASE)).await;
    assert!(has(&old, "a"));
    sentinel.names(&new, 2);
    let store = backend.clone();
    elsewhere(async move { grant(&store, &claim("b", LEASE)).await });
    assert!(has(&new, "b"));
    // This connection led to the old one.
    grant(&backend, &claim("c", LEASE)).await;
    assert!(has(&new, "c") && !has(&old, "c"));
    // A sentinel that is cut off from the others knows less than the client.
    sentinel.names(&old, 1);
    let store = backend.clone();
    elsewhere(async move { grant(&store, &claim("d", LEASE)).await });
    assert!(has(&new, "d") && !has(&old, "d"));
    grant(&backend, &claim("e", LEASE)).await;
    assert!(has(&new, "e"));
}
