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
