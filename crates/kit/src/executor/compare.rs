//! Does the live object say everything we mean? Only what we set is compared: the server's defaults, other managers'
//! fields and the status are none of our business.

use serde_json::Value;

use super::quantity::parse_nano;

/// Lists whose entries have identities, so that others may add theirs beside ours. Every other list is one value:
/// an entry too many is a difference.
const KEYED_LISTS: [&str; 10] = [
    "ownerReferences",
    "finalizers",
    "containers",
    "initContainers",
    "volumes",
    "volumeMounts",
    "env",
    "imagePullSecrets",
    "secrets",
    "conditions",
];

/// Fields whose string members are quantities.
const QUANTITY_MAPS: [&str; 6] = [
    "requests",
    "limits",
    "capacity",
    "hard",
    "allocatable",
    "overhead",
];

/// Fields that are quantities themselves.
const QUANTITY_FIELDS: [&str; 3] = ["sizeLimit", "divisor", "storage"];

/// The first place where the live object does not say what we mean, as a path; `None` if it says all of it.
pub fn first_difference(desired: &Value, live: &Value) -> Option<String> {
    let mut path = Vec::new();
    if covers(desired, Some(live), &mut path) {
        None
    } else {
        Some(path.join("."))
    }
}

/// Leaves `path` at the place of the first difference when it returns false.
fn covers<'a>(desired: &'a Value, live: Option<&Value>, path: &mut Vec<&'a str>) -> bool {
    match (desired, live) {
        (Value::Null, live) => live.is_none_or(Value::is_null),
        // Servers drop empty collections that their types call optional.
        (Value::Object(fields), None | Some(Value::Null)) => fields.values().all(Value::is_null),
        (Value::Array(items), None | Some(Value::Null)) => items.is_empty(),
        (Value::Object(fields), Some(Value::Object(live))) => fields.iter().all(|(name, value)| {
            path.push(name);
            let same = covers(value, live.get(name), path);
            if same {
                path.pop();
            }
            same
        }),
        (Value::Array(items), Some(Value::Array(live))) => list_covers(items, live, path),
        (Value::Number(desired), Some(Value::Number(live))) => {
            desired == live || desired.as_f64() == live.as_f64()
        }
        (Value::String(desired), Some(Value::String(live))) => {
            desired == live
                || (is_quantity(path)
                    && parse_nano(desired).is_some_and(|nano| parse_nano(live) == Some(nano)))
        }
        (desired, live) => live == Some(desired),
    }
}

fn list_covers<'a>(items: &'a [Value], live: &[Value], path: &mut Vec<&'a str>) -> bool {
    let depth = path.len();
    let mut covered = |item: &'a Value, live: &Value| {
        let same = covers(item, Some(live), path);
        path.truncate(depth);
        same
    };
    if items.len() == live.len()
        && items
            .iter()
            .zip(live)
            .all(|(item, live)| covered(item, live))
    {
        return true;
    }
    let keyed = path.last().is_some_and(|name| KEYED_LISTS.contains(name));
    keyed && {
        let depth = path.len();
        items.iter().all(|item| {
            live.iter().any(|live| {
                let same = covers(item, Some(live), path);
                path.truncate(depth);
                same
            })
        })
    }
}

fn is_quantity(path: &[&str]) -> bool {
    let mut names = path.iter().rev();
    let field = names.next();
    let parent = names.next();
    field.is_some_and(|name| QUANTITY_FIELDS.contains(name))
        || parent.is_some_and(|name| QUANTITY_MAPS.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_server_or_others_add_is_no_difference() {
        let table = [
            (
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 1, "defaulted": true}, "status": {}}),
            ),
            (
                json!({"spec": {"ports": [{"port": 5432}]}}),
                json!({"spec": {"ports": [{"port": 5432, "protocol": "TCP"}]}}),
            ),
            (json!({"metadata": {"labels": {}}}), json!({"metadata": {}})),
            (json!({"spec": {"list": []}}), json!({"spec": {}})),
            (json!({"spec": {"gone": null}}), json!({"spec": {}})),
            (
                json!({"metadata": {"ownerReferences": [{"uid": "u1"}]}}),
                json!({"metadata": {"ownerReferences": [{"uid": "u0"}, {"uid": "u1", "kind": "X"}]}}),
            ),
            (
                json!({"resources": {"requests": {"storage": "1024Mi", "cpu": "0.5"}}}),
                json!({"resources": {"requests": {"storage": "1Gi", "cpu": "500m"}}}),
            ),
            (json!({"number": 1}), json!({"number": 1.0})),
        ];
        for (desired, live) in table {
            assert_eq!(
                first_difference(&desired, &live),
                None,
                "{desired} in {live}"
            );
        }
    }

    #[test]
    fn what_we_mean_and_is_not_so_is_named() {
        let table = [
            (
                json!({"spec": {"a": 1}}),
                json!({"spec": {"a": 2}}),
                "spec.a",
            ),
            (json!({"spec": {"a": 1}}), json!({"spec": {}}), "spec.a"),
            (
                json!({"spec": {"a": "1"}}),
                json!({"spec": {"a": 1}}),
                "spec.a",
            ),
            (
                json!({"spec": {"a": null}}),
                json!({"spec": {"a": 1}}),
                "spec.a",
            ),
            (json!({"args": ["x"]}), json!({"args": ["x", "y"]}), "args"),
            (
                json!({"args": ["x", "y"]}),
                json!({"args": ["y", "x"]}),
                "args",
            ),
            (json!({"args": ["x"]}), json!({"args": []}), "args"),
            (
                json!({"finalizers": ["x", "y"]}),
                json!({"finalizers": ["y"]}),
                "finalizers",
            ),
            (
                json!({"data": {"size": "1024Mi"}}),
                json!({"data": {"size": "1Gi"}}),
                "data.size",
            ),
            (
                json!({"requests": {"storage": "1Gi"}}),
                json!({"requests": {"storage": "1G"}}),
                "requests.storage",
            ),
            (
                json!({"object": {"a": 1}}),
                json!({"object": "text"}),
                "object",
            ),
        ];
        for (desired, live, path) in table {
            assert_eq!(
                first_difference(&desired, &live).as_deref(),
                Some(path),
                "{desired} in {live}"
            );
        }
    }
}
