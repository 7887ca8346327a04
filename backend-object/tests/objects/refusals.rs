//! The errors that a server's answers become.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tenure_core::Error;
use tenure_object::{ObjectBackend, ObjectOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Why a server that gives this answer to each request cannot be used. It gets no request twice.
async fn refused(status: &str, code: &str) -> Error {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let body = format!("<Error><Code>{code}</Code><Message>zq</Message></Error>");
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            let mut read = [0; 4096];
            while stream.read(&mut read).await.unwrap() == read.len() {}
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let options = ObjectOptions::new("locks").endpoint(format!("http://{address}")).unsigned(true);
    let error = ObjectBackend::connect(options).await.unwrap_err();
    serving.abort();
    // If a conditional put were sent again, it would fail because of itself.
    assert_eq!(requests.load(Ordering::Relaxed), 1, "{status}");
    error
}

#[tokio::test]
async fn busy_server_is_unavailable() {
    for (status, code) in [
        ("503 Slow Down", "SlowDown"),
        ("500 Internal Server Error", "InternalError"),
        ("429 Too Many Requests", "TooManyRequests"),
        ("400 Bad Request", "RequestTimeout"),
        ("503 Slow Down", "certificate"),
    ] {
        let error = refused(status, code).await;
        assert!(matches!(error, Error::Unavailable { .. }), "{status}: {error:?}");
        assert!(error.to_string().contains(code), "{error}");
    }
}

#[tokio::test]
async fn refusal_says_what_to_mend() {
    for (status, code, mend) in [
        ("403 Forbidden", "AccessDenied", "s3:PutObject"),
        ("403 Forbidden", "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        ("403 Forbidden", "RequestTimeTooSkewed", "clock"),
        ("404 Not Found", "NoSuchBucket", "create the bucket"),
        ("301 Moved Permanently", "PermanentRedirect", "region="),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "region="),
        ("501 Not Implemented", "NotImplemented", "NotImplemented"),
    ] {
        let error = refused(status, code).await;
        assert!(matches!(error, Error::Store { .. }), "{status}: {error:?}");
        assert!(error.to_string().contains(mend), "{error}");
    }
}

#[tokio::test]
async fn unreachable_server_is_unavailable() {
    let options = ObjectOptions::new("locks").endpoint("http://127.0.0.1:1").unsigned(true);
    let error = ObjectBackend::connect(options).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}
