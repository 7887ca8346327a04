//! A server started in a container.

use crate::cleanup::Cleanup;
use crate::engine::{Engine, last_lines};
use crate::owner;
use crate::recipe::Recipe;
use async_trait::async_trait;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testcontainers::bollard::query_parameters::{
    KillContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use testcontainers::core::IntoContainerPort;
use testcontainers::core::client::docker_client_instance;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt};

/// How long the engine is asked to freeze a container.
const FREEZING: Duration = Duration::from_secs(20);

/// A running (or killed) container.
#[derive(Debug)]
pub(crate) struct Container {
    recipe: Arc<dyn Recipe>,
    image: String,
    docker: ContainerAsync<GenericImage>,
    address: SocketAddr,
    // Last, so that it finds nothing left to do.
    _cleanup: Cleanup,
}

impl Container {
    /// Starts a container of the image, pulled if it is missing; the server may not answer yet.
    pub(crate) async fn start(recipe: Arc<dyn Recipe>, image: String) -> io::Result<Self> {
        sweep().await?;
        let name = format!("tenure-{}", unique());
        let mut cleanup = Cleanup::of_container(&name)?;
        let started = request(&*recipe, &image, &name).start().await;
        cleanup.answered()?;
        let docker = started.map_err(io::Error::other)?;
        let address = published(&docker, &*recipe).await?;
        Ok(Self { recipe, image, docker, address, _cleanup: cleanup })
    }

    async fn is_running(&self) -> io::Result<bool> {
        self.docker.is_running().await.map_err(io::Error::other)
    }
}

#[async_trait]
impl Engine for Container {
    fn address(&self) -> SocketAddr {
        self.address
    }

    async fn freeze(&self) -> io::Result<()> {
        let give_up = Instant::now() + FREEZING;
        loop {
            match self.docker.pause().await {
                // The engine gives the kernel little time for it, too little for a busy server on a busy machine.
                Err(error) if error.to_string().contains("unable to freeze") && Instant::now() < give_up => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                frozen => return frozen.map_err(io::Error::other),
            }
        }
    }

    async fn thaw(&self) -> io::Result<()> {
        self.docker.unpause().await.map_err(io::Error::other)
    }

    async fn kill(&mut self) -> io::Result<()> {
        if !self.is_running().await? {
            return Ok(());
        }
        let docker = docker_client_instance().await.map_err(io::Error::other)?;
        let options = KillContainerOptionsBuilder::new().signal("KILL").build();
        docker.kill_container(self.docker.id(), Some(options)).await.map_err(io::Error::other)?;
        while self.is_running().await? {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn restart(&mut self) -> io::Result<()> {
        self.kill().await?;
        self.docker.start().await.map_err(io::Error::other)?;
        self.address = published(&self.docker, &*self.recipe).await?;
        Ok(())
    }

    async fn restart_empty(&mut self) -> io::Result<()> {
        *self = Self::start(Arc::clone(&self.recipe), self.image.clone()).await?;
        Ok(())
    }

    async fn ended(&mut self) -> Option<String> {
        if self.is_running().await.unwrap_or(true) {
            return None;
        }
        let mut log = self.docker.stdout_to_vec().await.unwrap_or_default();
        log.extend(self.docker.stderr_to_vec().await.unwrap_or_default());
        Some(format!("the container ended: {}", last_lines(&String::from_utf8_lossy(&log))))
    }

    async fn remove(self: Box<Self>) -> io::Result<()> {
        let this = *self;
        this.docker.rm().await.map_err(io::Error::other)
    }
}

fn request(recipe: &dyn Recipe, image: &str, name: &str) -> ContainerRequest<GenericImage> {
    let (repository, tag) = match image.rsplit_once(':') {
        // A colon before a slash is a registry's port.
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (image, "latest"),
    };
    let image = GenericImage::new(repository, tag)
        .with_exposed_port(recipe.fixed_port().unwrap_or(recipe.port()).tcp());
    let mut request = recipe.container(image).with_container_name(name);
    if recipe.fixed_port().is_some() {
        request = request.with_network("host");
    }
    match owner::this_process() {
        Some(owner) => request.with_label(owner::LABEL, owner),
        None => request,
    }
}

/// Where the host reaches a container's port.
async fn published(container: &ContainerAsync<GenericImage>, recipe: &dyn Recipe) -> io::Result<SocketAddr> {
    if let Some(port) = recipe.fixed_port() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let host = container.get_host().await.map_err(io::Error::other)?;
    let port = container.get_host_port_ipv4(recipe.port()).await.map_err(io::Error::other)?;
    let found = tokio::net::lookup_host((host.to_string(), port)).await?.find(SocketAddr::is_ipv4);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no IPv4 address for {host}")))
}

/// Removes the containers of test processes that ended without a chance to do so.
async fn sweep() -> io::Result<()> {
    let docker = docker_client_instance().await.map_err(io::Error::other)?;
    let labelled = [("label".to_owned(), vec![owner::LABEL.to_owned()])].into();
    let options = ListContainersOptionsBuilder::new().all(true).filters(&labelled).build();
    for container in docker.list_containers(Some(options)).await.map_err(io::Error::other)? {
        let owner = container.labels.as_ref().and_then(|labels| labels.get(owner::LABEL));
        if let (Some(id), Some(owner)) = (&container.id, owner)
            && owner::is_dead(owner)
        {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match docker.remove_container(id, Some(options)).await {
                // Two starts may sweep at the same time: gone, being removed, or not to be removed just now (a busy engine gives a
                // kill ten seconds). It belongs to nobody who starts here, and the next start sweeps up what is left.
                Ok(()) | Err(testcontainers::bollard::errors::Error::DockerResponseServerError { .. }) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
    Ok(())
}

/// A word that no other container's name has.
fn unique() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(()))
}
