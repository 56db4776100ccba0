//! Finalizers as duties with a name: while ours is on an object, the object stays until we have done our duty.
//!
//! Adding and removing are steps with the object's version, so nobody else's finalizer is lost: a merge patch replaces the whole
//! list, and the version says that the list is the one we saw.

use kube::{Resource, ResourceExt};
use serde_json::json;

use crate::executor::{Seen, Step, Target};

pub fn has<K: Resource>(object: &K, finalizer: &str) -> bool {
    object.finalizers().iter().any(|name| name == finalizer)
}

/// `None` if it is there, or if the object is being deleted: the server would refuse a new one then.
pub fn add<K: Resource<DynamicType = ()>>(object: &K, finalizer: &str) -> Option<Step> {
    if has(object, finalizer) || object.meta().deletion_timestamp.is_some() {
        return None;
    }
    let mut names = object.finalizers().to_vec();
    names.push(finalizer.to_owned());
    patch(object, "add our finalizer", &names)
}

/// `None` if it is not there.
pub fn remove<K: Resource<DynamicType = ()>>(object: &K, finalizer: &str) -> Option<Step> {
    if !has(object, finalizer) {
        return None;
    }
    let names: Vec<String> = object
        .finalizers()
        .iter()
        .filter(|name| *name != finalizer)
        .cloned()
        .collect();
    patch(object, "remove our finalizer", &names)
}

fn patch<K: Resource<DynamicType = ()>>(
    object: &K,
    why: &'static str,
    names: &[String],
) -> Option<Step> {
    Some(Step::Patch {
        target: Target::of(object),
        seen: Seen::of(object)?,
        why,
        patch: json!({"metadata": {"finalizers": names}}),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
    };
    use kube::api::ObjectMeta;

    use super::*;

    fn object(finalizers: &[&str], deleting: bool) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some("x".into()),
                uid: Some("u1".into()),
                resource_version: Some("7".into()),
                finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
                deletion_timestamp: deleting.then_some(Time(Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn names(step: Option<Step>) -> Option<Vec<String>> {
        let Some(Step::Patch { patch, seen, .. }) = step else {
            return None;
        };
        assert_eq!(
            seen.resource_version, "7",
            "the list is replaced only in the version we saw"
        );
        serde_json::from_value(patch["metadata"]["finalizers"].clone()).ok()
    }

    #[test]
    fn only_ours_is_added_and_removed() {
        assert_eq!(
            names(add(&object(&["theirs"], false), "ours")),
            Some(vec!["theirs".into(), "ours".into()])
        );
        assert_eq!(names(add(&object(&["ours"], false), "ours")), None);
        assert_eq!(
            names(add(&object(&[], true), "ours")),
            None,
            "too late for new duties"
        );
        assert_eq!(
            names(remove(&object(&["theirs", "ours"], true), "ours")),
            Some(vec!["theirs".into()])
        );
        assert_eq!(names(remove(&object(&["theirs"], true), "ours")), None);
    }
}
