//! A SOCKS proxy through which one member of a cluster reaches the others, each by a way of its own.
//!
//! Every member of an etcd cluster knows another by the same address, so that a proxy behind that address cannot tell who
//! connects to it. A proxy that a member asks for its connections can.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// One member's SOCKS proxy (version 5), until it is dropped.
#[derive(Debug)]
pub(crate) struct Socks {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Socks {
    /// Starts one that leads to these addresses, by the port that is asked for.
    pub(crate) async fn start(ways: BTreeMap<u16, SocketAddr>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, ways) = (listener.local_addr()?, Arc::new(ways));
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let ways = Arc::clone(&ways);
                // However it ends, both sides see it.
                tokio::spawn(async move { carry(client, &ways).await });
            }
        });
        Ok(Self { address, accepting })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Socks {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Carries one connection to its end.
async fn carry(mut client: TcpStream, ways: &BTreeMap<u16, SocketAddr>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let port = asked(&mut client).await?;
    let way = ways.get(&port).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut server = TcpStream::connect(way).await?;
    server.set_nodelay(true)?;
    // Version, success, and an address that clients ignore.
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// The port that the client asks for.
async fn asked(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<u16> {
    // Version, and how it can log in; it need not.
    let [version, methods] = read(client).await?;
    if version != 5 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    skip(client, methods).await?;
    client.write_all(&[5, 0]).await?;
    // Version, command, nothing, and the kind of address: a name, with its length before it.
    let [_, _, _, kind] = read(client).await?;
    let length = match kind {
        1 => 4,
        3 => client.read_u8().await?,
        4 => 16,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    skip(client, length).await?;
    client.read_u16().await
}

async fn read<const N: usize>(client: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn skip(client: &mut (impl AsyncRead + Unpin), length: u8) -> io::Result<()> {
    client.read_exact(&mut vec![0; length.into()]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_leads_where_the_asked_port_says() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let socks = Socks::start([(2380, listener.local_addr().unwrap())].into()).await.unwrap();
        let name = [&[5, 1, 0, 3, 10][..], b"localhost.", &2380_u16.to_be_bytes()].concat();
        let numbers = [&[5, 1, 0, 1, 127, 0, 0, 1][..], &2380_u16.to_be_bytes()].concat();
        for request in [name, numbers] {
            let mut client = TcpStream::connect(socks.address()).await.unwrap();
            client.write_all(&[5, 1, 0]).await.unwrap();
            assert_eq!(read(&mut client).await.unwrap(), [5, 0]);
            client.write_all(&request).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            assert_eq!(read::<10>(&mut client).await.unwrap()[..2], [5, 0]);
            client.write_all(b"there").await.unwrap();
            assert_eq!(&read(&mut server).await.unwrap(), b"there");
            server.write_all(b"back").await.unwrap();
            assert_eq!(&read(&mut client).await.unwrap(), b"back");
            drop(server);
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn connection_to_an_unknown_port_ends() {
        let socks = Socks::start(BTreeMap::new()).await.unwrap();
        let mut client = TcpStream::connect(socks.address()).await.unwrap();
        client.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80]).await.unwrap();
        let mut said = Vec::new();
        client.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, [5, 0]);
    }
}
