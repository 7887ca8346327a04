//! A Galera cluster of two MariaDB servers.

use crate::assembly::Assembly;
use crate::galera_node::{GaleraNode, at};
use crate::mysql::{Mysql, connect};
use crate::node::Node;
use crate::platform::Platform;
use sqlx::Row;
use std::io;
use std::sync::Arc;

/// Starts the second once the first answers, because it copies the first one's data.
pub(crate) async fn start(platform: Platform) -> io::Result<Assembly> {
    let first = GaleraNode::new(String::new())?;
    let second = GaleraNode::new(at(first.group))?;
    let mut nodes = Vec::new();
    for (number, node) in [first, second].into_iter().enumerate() {
        let recipe = Arc::new(Mysql::Galera(node));
        nodes.push(platform.start(&format!("galera {number}"), recipe, None).await?);
    }
    Assembly::of(nodes).settling(|members| Box::pin(settled(members))).await
}

/// Every node takes part, and knows of all others.
async fn settled(members: &[Arc<Node>]) -> io::Result<()> {
    for node in members {
        let mut values = membership(node).await.map_err(io::Error::other)?;
        values.sort();
        if values != [members.len().to_string(), "ON".to_owned()] {
            return Err(io::Error::other(format!("{} is not in the cluster: {values:?}", node.name)));
        }
    }
    Ok(())
}

/// How many nodes its cluster has, and whether it takes part.
async fn membership(node: &Node) -> Result<Vec<String>, sqlx::Error> {
    let mut connection = connect(&node.admin(node.direct_address())).await?;
    let ask = "SHOW STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_size')";
    let told = sqlx::raw_sql(ask).fetch_all(&mut connection).await?;
    told.iter().map(|row| row.try_get(1)).collect()
}
