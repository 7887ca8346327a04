//! From the call that releases to the grant in another process, beside a token that goes through a list.

use crate::{
    hand_offs::report_hand_offs,
    process::{Process, now},
    server::{Server, connection, locks},
    support::Way,
};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

/// The argument that starts the other process.
pub(crate) const CHILD: &str = "the-other-process";
const SAMPLES: u32 = 300;

pub(crate) async fn measure(server: &Server) {
    let mut ways = ["BLPOP", "tenure", "tenure, fair=true"].map(Way::new);
    let mut connection = server.connection().await;
    let clients = [locks(&server.url(), false).await, locks(&server.url(), true).await];
    let mut other = Process::start(CHILD, &server.url());
    for _ in 0..SAMPLES {
        for (number, way) in ways.iter_mut().enumerate() {
            let sample = if number == 0 {
                other.waits(number).await;
                let begin = now();
                let () = redis::cmd("RPUSH")
                    .arg("tokens")
                    .arg("x")
                    .query_async(&mut connection)
                    .await
                    .expect("pushed");
                other.granted().await.saturating_sub(begin)
            } else {
                let name = format!("hand-off {number}");
                let guard = clients[number - 1].lock(&name).acquire().await.expect("it is free");
                other.waits(number).await;
                let begin = now();
                guard.release().await.expect("it was held");
                other.granted().await.saturating_sub(begin)
            };
            way.rounds.push(sample);
        }
    }
    report_hand_offs("redis", &ways, 0..1);
}

/// Runs in the other process.
pub(crate) async fn child(arguments: &[String]) {
    let url = arguments.first().expect("a URL");
    let mut connection = connection(url).await;
    connection.set_response_timeout(Duration::from_mins(1));
    let clients = [locks(url, false).await, locks(url, true).await];
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(way)) = orders.next_line().await {
        let way: usize = way.parse().expect("a number");
        let granted = if way == 0 {
            let _: (String, String) =
                redis::cmd("BLPOP").arg("tokens").arg(0).query_async(&mut connection).await.expect("popped");
            now()
        } else {
            let name = format!("hand-off {way}");
            let guard = clients[way - 1].lock(&name).acquire().await.expect("it comes free");
            let granted = now();
            guard.release().await.expect("it was held");
            granted
        };
        println!("{}", granted.as_nanos());
    }
}
