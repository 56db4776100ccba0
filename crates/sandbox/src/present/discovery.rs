//! Which kinds there are: the documents below `/api` and `/apis`, one by one and aggregated.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::core::kind::{KindInfo, Subresource};
use crate::core::{Response, State};

/// The kinds of each version of each group: built-in groups first, so that a custom group cannot shadow a short name of theirs.
type Groups<'a> = Vec<(&'a str, Vec<(&'a str, Kinds<'a>)>)>;
type Kinds<'a> = Vec<&'a Arc<KindInfo>>;

/// A discovery document, or `None` if the path is none or names a group or version that nobody serves.
pub(super) fn document(state: &State, path: &str, accept: &str) -> Option<Response> {
    let body = match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
        [] | [""] => {
            json!({"paths": ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v3", "/readyz", "/version"]})
        }
        ["api"] if wants_aggregated(accept) => aggregated(&groups(state), |group| group.is_empty()),
        ["apis"] if wants_aggregated(accept) => {
            aggregated(&groups(state), |group| !group.is_empty())
        }
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            let groups = groups(state);
            let groups = groups
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions));
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
        }
        ["apis", name] => {
            let groups = groups(state);
            let (name, versions) = groups.iter().find(|(found, _)| found == name)?;
            let mut document = json!({"kind": "APIGroup", "apiVersion": "v1"});
            if let (Some(document), Value::Object(group)) =
                (document.as_object_mut(), group(name, versions))
            {
                document.extend(group);
            }
            document
        }
        ["api", version] => resources(state, "", version)?,
        ["apis", group, version] => resources(state, group, version)?,
        _ => return None,
    };
    Some(Response::Json {
        status: 200,
        body,
        warnings: Vec::new(),
    })
}

/// Whether the client asks for the stable form of the aggregated document. The beta one is not served; clients that know it know this one.
fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|entry| {
        let mut parameters = entry.split(';').map(str::trim);
        let media_type = parameters.next().unwrap_or_default();
        let parameters = parameters.collect::<Vec<_>>();
        media_type == "application/json"
            && ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
                .iter()
                .all(|wanted| parameters.contains(wanted))
    })
}

fn groups(state: &State) -> Groups<'_> {
    let mut sorted: BTreeMap<(bool, &str), BTreeMap<&str, Kinds<'_>>> = BTreeMap::new();
    for kind in state.kinds() {
        let versions = sorted
            .entry((kind.is_custom(), kind.group.as_str()))
            .or_default();
        versions
            .entry(kind.version.as_str())
            .or_default()
            .push(kind);
    }
    let ordered = sorted.into_iter().map(|((_, group), versions)| {
        let mut versions = versions.into_iter().collect::<Vec<_>>();
        versions.sort_by(|(one, _), (other, _)| preference(one, other));
        (group, versions)
    });
    ordered.collect()
}

/// Stable before beta before alpha before anything else, then the larger number first.
fn preference(one: &str, other: &str) -> Ordering {
    rank(other).cmp(&rank(one)).then_with(|| one.cmp(other))
}

fn rank(version: &str) -> (u8, u64, u64) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(rest.len());
        let (major, rest) = (rest[..digits].parse().ok()?, &rest[digits..]);
        if rest.is_empty() {
            return Some((3, major, 0));
        }
        match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => Some((2, major, minor.parse().ok()?)),
            (None, Some(minor)) => Some((1, major, minor.parse().ok()?)),
            (None, None) => None,
        }
    };
    parse().unwrap_or((0, 0, 0))
}

fn group(name: &str, versions: &[(&str, Kinds<'_>)]) -> Value {
    let version =
        |version: &str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(|(found, _)| version(found)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|(preferred, _)| version(preferred)),
    })
}

fn aggregated(groups: &Groups<'_>, belongs: impl Fn(&str) -> bool) -> Value {
    let items = groups.iter().filter(|(name, _)| belongs(name)).map(|(name, versions)| {
        let versions = versions.iter().map(|(version, kinds)| {
            let resources = kinds.iter().map(|kind| aggregated_resource(kind)).collect::<Vec<_>>();
            json!({"version": version, "resources": resources, "freshness": "Current"})
        });
        json!({"metadata": {"name": name, "creationTimestamp": null}, "versions": versions.collect::<Vec<_>>()})
    });
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items.collect::<Vec<_>>(),
    })
}

fn aggregated_resource(kind: &KindInfo) -> Value {
    let mut resource = json!({
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        let show = |subresource: &Subresource| {
            let Subresource {
                name,
                group,
                version,
                kind,
                verbs,
            } = subresource;
            json!({"subresource": name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": verbs})
        };
        resource["subresources"] = kind.subresources.iter().map(show).collect();
    }
    resource
}

fn resources(state: &State, group: &str, version: &str) -> Option<Value> {
    let kinds = state
        .kinds()
        .filter(|kind| kind.group == group && kind.version == version)
        .collect::<Vec<_>>();
    let api_version = kinds.first()?.api_version();
    let mut entries = Vec::new();
    for kind in kinds {
        entries.push(resource(kind));
        entries.extend(
            kind.subresources
                .iter()
                .map(|subresource| subresource_entry(kind, subresource)),
        );
    }
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": entries}),
    )
}

fn resource(kind: &KindInfo) -> Value {
    let mut entry = json!({
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.is_namespaced(),
        "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    entry
}

fn subresource_entry(kind: &KindInfo, subresource: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", kind.plural, subresource.name), "singularName": "", "namespaced": kind.is_namespaced(),
    });
    // Named only where it differs from the list's own group and version.
    if (&subresource.group, &subresource.version) != (&kind.group, &kind.version) {
        entry["group"] = json!(subresource.group);
        entry["version"] = json!(subresource.version);
    }
    entry["kind"] = json!(subresource.kind);
    entry["verbs"] = json!(subresource.verbs);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = [
            "v1alpha1", "v2", "v1beta2", "v1", "v10", "v1beta1", "foo", "v2alpha1",
        ];
        versions.sort_by(|one, other| preference(one, other));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v1beta2", "v1beta1", "v2alpha1", "v1alpha1", "foo"
            ]
        );
    }

    #[test]
    fn only_the_stable_aggregated_form_is_served() {
        let stable = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert!(wants_aggregated(&format!(
            "{stable},{beta},application/json"
        )));
        assert!(!wants_aggregated(&format!("{beta},application/json")));
        assert!(!wants_aggregated("application/json"));
    }
}
