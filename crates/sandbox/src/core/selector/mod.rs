//! Which objects a list or watch is about: by label and by field.

mod field;
mod label;

use serde_json::Value;

use super::error::Outcome;
use super::kind::KindInfo;
use super::request::Request;
pub use field::FieldSelector;
pub use label::LabelSelector;

/// Both selectors of a request.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
}

impl Selector {
    pub fn of(request: &Request, kind: &KindInfo) -> Outcome<Selector> {
        let labels = LabelSelector::parse(request.parameter("labelSelector").unwrap_or_default())?;
        let fields =
            FieldSelector::parse(request.parameter("fieldSelector").unwrap_or_default(), kind)?;
        Ok(Selector { labels, fields })
    }

    /// `object` in the shape it has in storage.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}
