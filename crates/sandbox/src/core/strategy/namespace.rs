//! Namespaces and Nodes: the kinds that others live in.

use serde_json::{Value, json};

use super::{Admission, PLAIN, Strategy};
use crate::core::error::Outcome;
use crate::core::meta;

pub static NAMESPACE: Strategy = Strategy {
    default: default_namespace,
    create: create_namespace,
    update: update_namespace,
    ..PLAIN
};
pub static NODE: Strategy = Strategy {
    create: create_node,
    ..PLAIN
};

fn default_namespace(namespace: &mut Value) {
    let name = meta::name(namespace).to_owned();
    if !name.is_empty() {
        meta::default(
            meta::object(
                meta::metadata(namespace)
                    .entry("labels")
                    .or_insert_with(|| json!({})),
            ),
            "kubernetes.io/metadata.name",
            name,
        );
    }
}

/// The finalizer in `spec` keeps the namespace until its content is gone; the namespace controller takes it away through `finalize`.
fn create_namespace(namespace: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    default_namespace(namespace);
    let spec = meta::child(namespace, "spec");
    let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|finalizer| finalizer == "kubernetes")
    {
        list.push("kubernetes".into());
    }
    namespace["status"] = json!({"phase": "Active"});
    Ok(())
}

/// `spec.finalizers` changes only through `finalize`.
fn update_namespace(namespace: &mut Value, old: &Value, _: &mut Admission<'_>) -> Outcome<()> {
    let object = meta::object(namespace);
    match old.get("spec") {
        Some(spec) => object.insert("spec".to_owned(), spec.clone()),
        None => object.shift_remove("spec"),
    };
    Ok(())
}

fn create_node(node: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    meta::child(node, "spec");
    meta::child(node, "status");
    Ok(())
}
