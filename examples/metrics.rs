//! Metrics: what locks do, for Prometheus to scrape.
//!
//! `cargo run --example metrics --features metrics`, and elsewhere `curl -s localhost:9000/metrics`. Add `sqlite` to the
//! features and `-- sqlite:locks.db` for another store.

use metrics_exporter_prometheus::PrometheusBuilder;
use std::{env, error::Error, net::Ipv4Addr, time::Duration};
use tenure::metrics::BUCKETS;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Before `connect`: a client looks for the recorder once, when it is made.
    let exporter = PrometheusBuilder::new().with_http_listener((Ipv4Addr::LOCALHOST, 9000));
    exporter.set_buckets(BUCKETS)?.install()?;

    let url = env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let locks = tenure::connect(url).await?;
    println!("http://localhost:9000/metrics has the metrics of {}", locks.store());

    // Workers get in each other's way. The part of a name before the `/` is its group, which the metrics tell apart.
    for worker in 0..4 {
        let locks = locks.clone();
        tokio::spawn(async move {
            loop {
                let orders = locks.lock(format!("orders/{}", worker / 2)).wait(Duration::from_secs(1));
                if let Err(error) = orders.run(|_| sleep(Duration::from_millis(700))).await {
                    println!("worker {worker}: {error}");
                }
            }
        });
    }
    loop {
        locks.lock("reports/daily").run(|_| sleep(Duration::from_secs(15))).await?;
    }
}
