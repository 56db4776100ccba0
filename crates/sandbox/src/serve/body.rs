//! The one body type of the server's responses: a document, or a stream.

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(super) fn empty() -> Body {
    full(Bytes::new())
}

pub(super) fn stream<E>(
    stream: impl Stream<Item = Result<Frame<Bytes>, E>> + Send + 'static,
) -> Body
where
    E: Into<BoxError> + 'static,
{
    StreamBody::new(stream).map_err(Into::into).boxed_unsync()
}

pub(super) fn stream_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}
