//! Where a request goes: a resource, one of its objects, a subresource; or something that is not a resource at all.

use percent_encoding::percent_decode_str;

/// A path below `/api/v1` or `/apis/GROUP/VERSION` that has the shape of a resource. Whether that resource exists is the registry's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

/// Subresources of a Namespace itself, which a path cannot tell from a resource in it but by name.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// `None` for discovery, health and every other path that is not a resource's.
pub fn parse(path: &str) -> Option<Target> {
    let segments: Vec<String> = path
        .strip_prefix('/')?
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            percent_decode_str(segment)
                .decode_utf8()
                .map(|text| text.into_owned())
        })
        .collect::<Result<_, _>>()
        .ok()?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..]
            if !rest.is_empty() && !is_namespace_subresource(rest) =>
        {
            (Some(*namespace), rest)
        }
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, None, None),
        [plural, name] => (*plural, Some(*name), None),
        [plural, name, subresource] => (*plural, Some(*name), Some((*subresource).to_owned())),
        // `pods/NAME/proxy/any/path` and the like: kept whole, so that it is refused as what it is.
        [plural, name, more @ ..] => (*plural, Some(*name), Some(more.join("/"))),
        [] => return None,
    };
    Some(Target {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        plural: plural.to_owned(),
        name: name.map(str::to_owned),
        subresource,
    })
}

fn is_namespace_subresource(rest: &[&str]) -> bool {
    matches!(rest, [only] if NAMESPACE_SUBRESOURCES.contains(only))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        let show = |path: &str| {
            parse(path).map(|target| {
                let part = |value: &Option<String>| value.clone().unwrap_or_default();
                let Target {
                    group,
                    version,
                    namespace,
                    plural,
                    name,
                    subresource,
                } = target;
                [
                    group,
                    version,
                    part(&namespace),
                    plural,
                    part(&name),
                    part(&subresource),
                ]
                .join("|")
            })
        };
        let cases = [
            ("/api/v1/pods", "|v1||pods||"),
            ("/api/v1/namespaces", "|v1||namespaces||"),
            ("/api/v1/namespaces/harbour", "|v1||namespaces|harbour|"),
            (
                "/api/v1/namespaces/harbour/finalize",
                "|v1||namespaces|harbour|finalize",
            ),
            ("/api/v1/namespaces/harbour/pods", "|v1|harbour|pods||"),
            (
                "/api/v1/namespaces/harbour/pods/a/log",
                "|v1|harbour|pods|a|log",
            ),
            (
                "/api/v1/namespaces/harbour/pods/a/proxy/x/y",
                "|v1|harbour|pods|a|proxy/x/y",
            ),
            ("/apis/apps/v1/deployments", "apps|v1||deployments||"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "rbac.authorization.k8s.io|v1||clusterroles|system:node|",
            ),
        ];
        for (path, expected) in cases {
            assert_eq!(show(path).as_deref(), Some(expected), "{path}");
        }
        for path in [
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/api/v1/%ff",
            "x",
        ] {
            assert_eq!(show(path), None, "{path}");
        }
    }
}
