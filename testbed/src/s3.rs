//! Moto, which emulates S3.

use crate::admin::Admin;
use crate::recipe::{Recipe, Setup};
use crate::way::Way;
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tenure_conformance::saboteur::Hurt;
use testcontainers::{ContainerRequest, GenericImage};
use tokio::net::TcpStream;
use url::Url;

/// One moto with the bucket `tenure`, which asks for no credentials.
#[derive(Debug)]
pub(crate) struct S3;

/// Where `./test` installs it, with the Python that runs it.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/moto/bin/python3");

#[async_trait]
impl Recipe for S3 {
    fn family(&self) -> &'static str {
        "s3"
    }

    fn image(&self) -> &'static str {
        ""
    }

    fn port(&self) -> u16 {
        80
    }

    fn container(&self, image: GenericImage) -> ContainerRequest<GenericImage> {
        image.into()
    }

    fn program(&self) -> Result<PathBuf, String> {
        // An installation may have been cut short.
        let whole = Command::new(INSTALLED).args(["-c", "import cheroot, flask_cors, moto"]).output();
        match whole {
            Ok(output) if output.status.success() => Ok(INSTALLED.into()),
            _ => Err("moto is not in target/moto, where ./test installs it".to_owned()),
        }
    }

    fn serve(&self, setup: &Setup<'_>, port: u16) -> io::Result<Command> {
        let mut command = (setup.command)(setup.program);
        command.arg("-c").arg(include_str!("s3.py")).arg(port.to_string());
        Ok(command)
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("s3://tenure?endpoint=http://{address}&region=us-east-1&unsigned=true")
    }

    fn may_proxy(&self, _: &Url) -> bool {
        // The host is the bucket.
        false
    }

    async fn ready(&self, admin: &Admin<'_>) -> io::Result<()> {
        TcpStream::connect(admin.address).await.map(drop)
    }

    fn hurts(&self, _: &Way) -> &'static [Hurt] {
        &[]
    }
}
