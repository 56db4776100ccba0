//! What a client asks, already off the wire but not yet understood.

use bytes::Bytes;
use http::Method;

/// Who asks: established by `serve` (token or certificate), never by the client's own word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// The path as sent, percent-encoding included, without the query.
    pub path: String,
    /// Query parameters in order, decoded.
    pub query: Vec<(String, String)>,
    /// `Content-Type` without parameters, lower case; empty if absent.
    pub content_type: String,
    /// `Accept` as sent; empty if absent.
    pub accept: String,
    /// `User-Agent` as sent: the default field manager is its part before the first `/`.
    pub user_agent: String,
    pub body: Bytes,
    pub user: User,
}

impl Request {
    /// The first value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}
