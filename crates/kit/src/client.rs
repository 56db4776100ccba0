//! An API client without hidden retries.
//!
//! kube's default client repeats a request up to fifteen times after 429, 503 and 504, a POST too. A create whose reply was
//! lost then comes back as "already exists", and a pass hangs long past its deadline. The queue is where retries
//! belong: it knows the object, its priority, and that others wait too.

use std::time::Duration;

use kube::{Client, Config, client::ClientBuilder};

/// Connecting takes milliseconds or fails; the rest of the call's deadline is for the answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds a client in which one call is one request.
///
/// # Errors
/// When the configuration does not make a client: unreadable certificates, a proxy it cannot speak to.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(ClientBuilder::try_from(config)?.build())
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const BUSY: &str =
        "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn one_call_is_one_request_even_when_the_server_is_busy() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let server = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 4_096];
                let length = connection.read(&mut request).await.unwrap_or(0);
                if request[..length].starts_with(b"GET /version") {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                // A client that has gone away is no concern of this server.
                let _ = connection.write_all(BUSY.as_bytes()).await;
            }
        });
        let config = Config::new(url.parse().expect("a URL"));
        assert!(
            config.default_retry,
            "kube's default, which would ask up to sixteen times"
        );
        let client = client(config).expect("plain HTTP needs nothing");
        assert!(client.apiserver_version().await.is_err());
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        server.abort();
    }
}
