//! Questions that are answered and not stored: who am I, may I.
//!
//! This server has no authorizer yet: whoever is authenticated may do everything, and it says so.

use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Call, Place};
use crate::core::decode;
use crate::core::error::Outcome;
use crate::core::response::Response;

const EVERYBODY: &str =
    "this sandbox has no authorizer yet: everybody who is authenticated may do everything";

impl Call<'_> {
    pub(super) fn review(&mut self, place: &Place) -> Outcome<Response> {
        let options = WriteOptions::of(self.request, "CreateOptions")?;
        let mut review: Value = decode::object(
            self.request,
            &place.kind,
            options.validation,
            &mut self.warnings,
        )?;
        review["status"] = if place.kind.kind == "SelfSubjectReview" {
            json!({"userInfo": {"username": self.request.user.name, "groups": self.request.user.groups}})
        } else {
            json!({"allowed": true, "reason": EVERYBODY})
        };
        Ok(Response::Json {
            status: 201,
            body: review,
            warnings: Vec::new(),
        })
    }
}
