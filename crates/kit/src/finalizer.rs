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
    patch(object, "add our finalizer", names)
}

/// `None` if it is not there.
pub fn remove<K: Resource<DynamicType = ()>>(object: &K, finalizer: &str) -> Option<Step> {
    if !has(object, finalizer) {
        return None;
    }
    let names = object
        .finalizers()
        .iter()
        .filter(|name| *name != finalizer)
        .cloned()
        .collect();
    patch(object, "remove our finalizer", names)
}

fn patch<K: Resource<DynamicType = ()>>(
    object: &K,
    why: &'static str,
    names: Vec<String>,
) -> Option<Step> {
    Some(Step::Patch {
        target: Target::of(object),
        seen: Seen::of(object)?,
        why,
        patch: json!({"metadata": {"finalizers": names}}),
    })
}
