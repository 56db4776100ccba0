//! Roles and bindings. Stored and checked; nobody is refused by them yet (`verbs::review` says so).

use serde_json::{Value, json};

use super::containers::list;
use super::{PLAIN, Strategy};
use crate::core::error::Cause;
use crate::core::meta;

pub static ROLE: Strategy = Strategy {
    validate: validate_role,
    ..PLAIN
};
pub static BINDING: Strategy = Strategy {
    default: default_binding,
    validate: validate_binding,
    validate_update: validate_binding_update,
    ..PLAIN
};

const GROUP: &str = "rbac.authorization.k8s.io";

fn validate_role(role: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, rule) in list(role, "rules").enumerate() {
        if list(rule, "verbs").next().is_none() {
            causes.push(Cause::required(
                format!("rules[{index}].verbs"),
                "verbs must contain at least one value",
            ));
        }
        if list(rule, "nonResourceURLs").next().is_some() {
            continue;
        }
        if list(rule, "apiGroups").next().is_none() {
            causes.push(Cause::required(
                format!("rules[{index}].apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if list(rule, "resources").next().is_none() {
            causes.push(Cause::required(
                format!("rules[{index}].resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
    causes
}

fn default_binding(binding: &mut Value) {
    meta::default_text(meta::child(binding, "roleRef"), "apiGroup", GROUP);
    for subject in binding
        .get_mut("subjects")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let is_person = matches!(meta::text(subject, &["kind"]), "User" | "Group");
        if is_person {
            meta::default_text(meta::object(subject), "apiGroup", GROUP);
        }
    }
}

fn validate_binding(binding: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let role = binding.get("roleRef").cloned().unwrap_or_else(|| json!({}));
    let group = meta::text(&role, &["apiGroup"]);
    if group != GROUP {
        causes.push(Cause::not_supported(
            "roleRef.apiGroup",
            &group.into(),
            &[GROUP],
        ));
    }
    let kinds: &[&str] = if meta::namespace(binding).is_empty() {
        &["ClusterRole"]
    } else {
        &["ClusterRole", "Role"]
    };
    let kind = meta::text(&role, &["kind"]);
    if !kinds.contains(&kind) {
        causes.push(Cause::not_supported("roleRef.kind", &kind.into(), kinds));
    }
    if meta::text(&role, &["name"]).is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in list(binding, "subjects").enumerate() {
        let kind = meta::text(subject, &["kind"]);
        if meta::text(subject, &["name"]).is_empty() {
            causes.push(Cause::required(format!("subjects[{index}].name"), ""));
        }
        if !["ServiceAccount", "User", "Group"].contains(&kind) {
            causes.push(Cause::not_supported(
                format!("subjects[{index}].kind"),
                &kind.into(),
                &["ServiceAccount", "User", "Group"],
            ));
        }
        if kind == "ServiceAccount"
            && meta::text(subject, &["namespace"]).is_empty()
            && meta::namespace(binding).is_empty()
        {
            causes.push(Cause::required(format!("subjects[{index}].namespace"), ""));
        }
    }
    causes
}

fn validate_binding_update(new: &Value, old: &Value) -> Vec<Cause> {
    if new.get("roleRef") == old.get("roleRef") {
        return Vec::new();
    }
    vec![Cause::invalid(
        "roleRef",
        new.get("roleRef").unwrap_or(&Value::Null),
        "cannot change roleRef",
    )]
}
