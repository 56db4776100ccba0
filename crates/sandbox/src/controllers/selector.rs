//! Label and node selectors, as the API defines them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(super) type Labels = BTreeMap<String, String>;

/// An absent selector matches nothing, an empty one everything.
pub(super) fn matches(selector: Option<&LabelSelector>, labels: Option<&Labels>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let pairs = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| lookup(labels, key) == Some(value));
    pairs
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|expression| {
                let values = expression.values.as_deref().unwrap_or_default();
                holds(
                    &expression.operator,
                    lookup(labels, &expression.key).map(String::as_str),
                    values,
                )
            })
}

/// A Service's selector: plain pairs, all of which must be there.
pub(super) fn matches_pairs(pairs: &Labels, labels: Option<&Labels>) -> bool {
    pairs
        .iter()
        .all(|(key, value)| lookup(labels, key) == Some(value))
}

/// Terms are alternatives; requirements within a term must all hold. A selector without terms matches nothing.
pub(super) fn matches_node(selector: &NodeSelector, node: &Node) -> bool {
    selector
        .node_selector_terms
        .iter()
        .any(|term| matches_term(term, node))
}

/// A term without requirements matches nothing, as in the API.
pub(super) fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let labels = node.metadata.labels.as_ref();
    expressions
        .iter()
        .all(|requirement| requirement_holds(requirement, lookup(labels, &requirement.key)))
        && fields.iter().all(|requirement| {
            requirement.key == "metadata.name"
                && requirement_holds(requirement, node.metadata.name.as_ref())
        })
}

fn requirement_holds(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    holds(&requirement.operator, value.map(String::as_str), values)
}

fn lookup<'a>(labels: Option<&'a Labels>, key: &str) -> Option<&'a String> {
    labels.and_then(|labels| labels.get(key))
}

fn holds(operator: &str, value: Option<&str>, values: &[String]) -> bool {
    match operator {
        "In" => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
        "NotIn" => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, values).is_some_and(|(value, limit)| value > limit),
        "Lt" => compare(value, values).is_some_and(|(value, limit)| value < limit),
        // The API server validates operators; one we do not know selects nothing rather than everything.
        _ => false,
    }
}

fn compare(value: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    match values {
        [limit] => Some((value?.parse().ok()?, limit.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: serde_json::Value) -> LabelSelector {
        serde_json::from_value(json).expect("a selector")
    }

    #[test]
    fn selectors_follow_the_api() {
        let labels: Labels = [("role".to_owned(), "replica".to_owned())].into();
        let table = [
            (serde_json::json!({}), true),
            (
                serde_json::json!({"matchLabels": {"role": "replica"}}),
                true,
            ),
            (
                serde_json::json!({"matchLabels": {"role": "primary"}}),
                false,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "role", "operator": "In", "values": ["primary", "replica"]}]}),
                true,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "role", "operator": "NotIn", "values": ["replica"]}]}),
                false,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "tree", "operator": "NotIn", "values": ["oak"]}]}),
                true,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "role", "operator": "Exists"}]}),
                true,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "role", "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                serde_json::json!({"matchExpressions": [{"key": "role", "operator": "Near", "values": ["replica"]}]}),
                false,
            ),
        ];
        for (json, expected) in table {
            assert_eq!(
                matches(Some(&selector(json.clone())), Some(&labels)),
                expected,
                "{json}"
            );
        }
        assert!(!matches(None, Some(&labels)), "no selector selects nothing");
    }

    #[test]
    fn node_selectors_know_numbers_and_names() {
        let mut node = Node::default();
        node.metadata.name = Some("oak".to_owned());
        node.metadata.labels = Some([("rings".to_owned(), "70".to_owned())].into());
        let table = [
            (
                serde_json::json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "rings", "operator": "Gt", "values": ["69"]}]}]}),
                true,
            ),
            (
                serde_json::json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "rings", "operator": "Lt", "values": ["70"]}]}]}),
                false,
            ),
            (
                serde_json::json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["oak"]}]}]}),
                true,
            ),
            (serde_json::json!({"nodeSelectorTerms": [{}]}), false),
            (
                serde_json::json!({"nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "rings", "operator": "Exists"}]}]}),
                true,
            ),
        ];
        for (json, expected) in table {
            let selector: NodeSelector =
                serde_json::from_value(json.clone()).expect("a node selector");
            assert_eq!(matches_node(&selector, &node), expected, "{json}");
        }
    }
}
