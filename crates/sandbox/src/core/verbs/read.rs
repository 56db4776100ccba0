//! Reading one object.

use super::{Call, Place};
use crate::core::error::{Failure, Outcome};
use crate::core::response::Response;

impl Call<'_> {
    pub(super) fn get(&mut self, place: &Place) -> Outcome<Response> {
        let asked = self
            .request
            .parameter("resourceVersion")
            .unwrap_or_default();
        if let Some(version) = parse_version(asked)?
            && version > self.state.revision()
        {
            return Err(Failure::too_large_version(version, self.state.revision()));
        }
        let object = self.find(place)?;
        Ok(self.show(&place.kind, 200, &object))
    }
}

/// `None` if unset. Zero means "any".
pub(super) fn parse_version(text: &str) -> Outcome<Option<u64>> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Failure::bad_request(format!(
            "invalid resource version: {}",
            version_problem(text)
        ))
    })
}

pub(super) fn version_problem(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
    )
}
