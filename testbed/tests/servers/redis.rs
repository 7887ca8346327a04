//! As much of a Redis client as the cases need.

use crate::client::{Client, any};
use async_trait::async_trait;
use std::io;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

pub(crate) struct Redis(BufReader<TcpStream>);

impl Redis {
    pub(crate) async fn connect(url: &str) -> io::Result<Self> {
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        Ok(Self(BufReader::new(TcpStream::connect(address).await?)))
    }

    /// Connects to the master that one of the sentinels names.
    pub(crate) async fn by_sentinel(url: &str) -> io::Result<Self> {
        let (sentinels, service) =
            url.trim_start_matches("redis+sentinel://").split_once('/').expect("a service");
        let master = any(sentinels, async |sentinel| {
            let mut sentinel = Self::connect(sentinel).await?;
            let command = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {service}\r\n");
            sentinel.0.write_all(command.as_bytes()).await?;
            // An array of two strings, each announced by its length.
            let mut lines = Vec::new();
            for _ in 0..5 {
                lines.push(sentinel.line().await?);
            }
            Ok(format!("{}:{}", lines[2], lines[4]))
        });
        Self::connect(&master.await?).await
    }

    /// Connects to the member of a cluster that has the value's slot.
    pub(crate) async fn by_slot(url: &str) -> io::Result<Self> {
        let members = url.trim_start_matches("redis+cluster://");
        let owner =
            any(members, async |member| match Self::connect(member).await?.ask("EXISTS tenure").await {
                Ok(_) => Ok(member.to_owned()),
                Err(error) => match error.to_string().strip_prefix("-MOVED ") {
                    Some(moved) => Ok(moved.split(' ').nth(1).unwrap_or_default().to_owned()),
                    None => Err(error),
                },
            });
        Self::connect(&owner.await?).await
    }

    /// The first line of the reply, and the second if the first announces a string.
    pub(crate) async fn ask(&mut self, command: &str) -> io::Result<String> {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await?;
        let line = self.line().await?;
        if line.starts_with('-') {
            return Err(io::Error::other(line));
        }
        if line.starts_with('$') && line != "$-1" { self.line().await } else { Ok(line) }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

#[async_trait]
impl Client for Redis {
    async fn put(&mut self, value: &str) -> io::Result<()> {
        self.ask(&format!("SET tenure {value}")).await.map(drop)
    }

    async fn get(&mut self) -> io::Result<Option<String>> {
        let value = self.ask("GET tenure").await?;
        Ok((value != "$-1").then_some(value))
    }
}
