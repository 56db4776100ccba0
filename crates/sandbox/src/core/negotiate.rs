//! What a client wants to see, from its `Accept` header.

use super::error::{Details, Failure, Outcome, Reason};
use super::response::View;

/// The first wish that can be fulfilled. JSON is the only format served.
pub fn view(accept: &str) -> Outcome<View> {
    if accept.trim().is_empty() {
        return Ok(View::Object);
    }
    accept.split(',').find_map(wish).ok_or_else(|| {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch";
        Failure::new(406, Reason::NotAcceptable, message).with_details(Details::default())
    })
}

fn wish(range: &str) -> Option<View> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if !["application/json", "application/*", "*/*"].contains(&media_type) {
        return None;
    }
    let mut wanted = View::Object;
    let mut group = "";
    let mut version = "";
    for part in parts {
        match part.split_once('=') {
            Some(("as", "Table")) => wanted = View::Table,
            Some(("as", "PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                wanted = View::Metadata;
            }
            Some(("as", _)) => return None,
            Some(("g", name)) => group = name,
            Some(("v", name)) => version = name,
            _ => {}
        }
    }
    // Only the current version of these shapes exists here; a client that also takes an older one is served by its next wish.
    (wanted == View::Object || (group == "meta.k8s.io" && version == "v1")).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wish_that_can_be_fulfilled_counts() {
        let cases = [
            ("", Some(View::Object)),
            ("*/*", Some(View::Object)),
            ("application/json, */*", Some(View::Object)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(View::Table),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(View::Object),
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(View::Metadata),
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Some(View::Object),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/plain", None),
            ("application/json;as=Zork;g=meta.k8s.io;v=v1", None),
        ];
        for (accept, expected) in cases {
            assert_eq!(view(accept).ok(), expected, "{accept}");
        }
    }
}
