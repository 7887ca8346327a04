//! Requests that outlive the callers' runtimes.

use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService, ReqwestConnector,
};
use tenure_core::{Background, async_trait};
use tokio_util::task::AbortOnDropHandle;

/// Sends requests on the runtime of the background, which starts anew after its last client has closed. So no connection
/// ends with a caller's runtime.
#[derive(Clone, Debug)]
pub(crate) struct OnBackground(pub(crate) Background);

#[derive(Debug)]
struct Client {
    client: HttpClient,
    background: Background,
}

impl HttpConnector for OnBackground {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Client { client, background: self.0.clone() }))
    }
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let client = self.client.clone();
        let sending = self.background.spawn(async move { client.execute(request).await });
        let ended = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        AbortOnDropHandle::new(sending).await.map_err(ended)?
    }
}
