//! To which object does a change of another one belong?

use kube::{Resource, ResourceExt};

use crate::key::Key;

/// From an object to the keys of the objects that must look at it.
pub type Relation<K> = Box<dyn Fn(&K) -> Vec<Key> + Send + Sync>;

/// The object itself.
pub fn itself<K: Resource>() -> Relation<K> {
    Box::new(|object| vec![Key::of(object)])
}

/// The object that a label names, in the same namespace.
pub fn by_label<K: Resource>(label: impl Into<String>) -> Relation<K> {
    let label = label.into();
    Box::new(move |object| {
        let name = object.labels().get(&label);
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        name.map(|name| Key::new(namespace, name.clone()))
            .into_iter()
            .collect()
    })
}

/// The owner of this kind, in the same namespace.
pub fn by_owner<K: Resource, Owner: Resource<DynamicType = ()>>() -> Relation<K> {
    Box::new(|object| {
        let group = Owner::group(&());
        let kind = Owner::kind(&());
        let namespace = object.meta().namespace.clone().unwrap_or_default();
        object
            .owner_references()
            .iter()
            .filter(|owner| {
                // Any version: owners are written with the version that was current then.
                let owner_group = owner
                    .api_version
                    .rsplit_once('/')
                    .map_or("", |(group, _)| group);
                owner.kind == kind && owner_group == group
            })
            .map(|owner| Key::new(namespace.clone(), owner.name.clone()))
            .collect()
    })
}
