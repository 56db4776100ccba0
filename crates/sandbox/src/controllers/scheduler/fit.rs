//! Whether a pod may run on a node, and how much it would like to. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, Pod, PodAffinityTerm, Taint, Toleration, TopologySpreadConstraint,
    WeightedPodAffinityTerm,
};

use super::super::selector::{self, Labels};

/// Why a node does not take a pod, in the scheduler's own words. The order is that of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unfit {
    Unschedulable,
    Taint,
    NodeAffinity,
    VolumeAffinity,
    SpreadLabelMissing,
    Spread,
    PodAffinity,
    PodAntiAffinity,
    ExistingAntiAffinity,
}

impl fmt::Display for Unfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Unfit::Unschedulable => "node(s) were unschedulable",
            Unfit::Taint => "node(s) had untolerated taint(s)",
            Unfit::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Unfit::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Unfit::SpreadLabelMissing => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Unfit::Spread => "node(s) didn't match pod topology spread constraints",
            Unfit::PodAffinity => "node(s) didn't match pod affinity rules",
            Unfit::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Unfit::ExistingAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
        })
    }
}

/// Nodes, and the pods that are on them or promised to them.
pub(crate) struct Board<'a> {
    pub nodes: Vec<&'a Node>,
    pub placed: Vec<(&'a Pod, String)>,
    /// Labels of namespaces, for terms that select them.
    pub namespaces: BTreeMap<&'a str, Option<&'a Labels>>,
}

impl<'a> Board<'a> {
    fn node(&self, name: &str) -> Option<&'a Node> {
        self.nodes
            .iter()
            .find(|node| node.metadata.name.as_deref() == Some(name))
            .copied()
    }

    pub(crate) fn load(&self, node: &Node) -> i64 {
        let on_it = self
            .placed
            .iter()
            .filter(|(_, name)| node.metadata.name.as_ref() == Some(name))
            .count();
        i64::try_from(on_it).unwrap_or(i64::MAX)
    }

    /// The pods in the same topology domain as `node`, e.g. on the same host.
    fn neighbours(
        &self,
        node: &Node,
        topology_key: &str,
    ) -> impl Iterator<Item = &(&'a Pod, String)> {
        let domain = label(node, topology_key);
        self.placed.iter().filter(move |(_, name)| {
            domain.is_some()
                && self.node(name).and_then(|other| label(other, topology_key)) == domain
        })
    }

    fn term_selects(&self, term: &PodAffinityTerm, owner: &Pod, pod: &Pod) -> bool {
        self.term_covers_namespace(term, owner, pod)
            && selector::matches(term.label_selector.as_ref(), pod.metadata.labels.as_ref())
    }

    fn term_covers_namespace(&self, term: &PodAffinityTerm, owner: &Pod, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let listed = term.namespaces.as_deref().unwrap_or_default();
        if listed.is_empty() && term.namespace_selector.is_none() {
            return owner.metadata.namespace.as_deref().unwrap_or_default() == namespace;
        }
        listed.iter().any(|name| name == namespace)
            || selector::matches(
                term.namespace_selector.as_ref(),
                self.namespaces.get(namespace).copied().flatten(),
            )
    }
}

pub(crate) fn fit(
    pod: &Pod,
    node: &Node,
    volumes: &[&PersistentVolume],
    board: &Board<'_>,
) -> Result<(), Unfit> {
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
        && !tolerates(pod, &cordon_taint())
    {
        return Err(Unfit::Unschedulable);
    }
    let taints_hold = taints(node)
        .iter()
        .all(|taint| taint.effect == "PreferNoSchedule" || tolerates(pod, taint));
    if !taints_hold {
        return Err(Unfit::Taint);
    }
    if !matches_node_affinity(pod, node) {
        return Err(Unfit::NodeAffinity);
    }
    let volumes_reach = volumes.iter().all(|volume| {
        let required = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        required.is_none_or(|required| selector::matches_node(required, node))
    });
    if !volumes_reach {
        return Err(Unfit::VolumeAffinity);
    }
    spread(pod, node, board)?;
    pod_affinity(pod, node, board)
}

/// How undesirable the node is; the smallest wins. Wishes count first, then how many pods the node has already.
pub(crate) fn cost(pod: &Pod, node: &Node, board: &Board<'_>) -> (i64, i64) {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let mut wishes = 0;
    for preferred in affinity.iter().flat_map(|affinity| {
        affinity.node_affinity.iter().flat_map(|node| {
            node.preferred_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
        })
    }) {
        if selector::matches_term(&preferred.preference, node) {
            wishes -= i64::from(preferred.weight);
        }
    }
    let weigh = |terms: Option<&Vec<WeightedPodAffinityTerm>>| -> i64 {
        terms
            .into_iter()
            .flatten()
            .map(|term| {
                i64::from(term.weight) * matching(pod, node, &term.pod_affinity_term, board)
            })
            .sum()
    };
    if let Some(rules) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
        wishes += weigh(
            rules
                .preferred_during_scheduling_ignored_during_execution
                .as_ref(),
        );
    }
    if let Some(rules) = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()) {
        wishes -= weigh(
            rules
                .preferred_during_scheduling_ignored_during_execution
                .as_ref(),
        );
    }
    for constraint in constraints(pod, "ScheduleAnyway") {
        wishes += domains(pod, constraint, board)
            .get(label(node, &constraint.topology_key).unwrap_or_default())
            .copied()
            .unwrap_or(0);
    }
    let avoid = taints(node)
        .iter()
        .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(pod, taint))
        .count();
    (
        wishes + i64::try_from(avoid).unwrap_or(i64::MAX),
        board.load(node),
    )
}

fn matching(pod: &Pod, node: &Node, term: &PodAffinityTerm, board: &Board<'_>) -> i64 {
    let count = board
        .neighbours(node, &term.topology_key)
        .filter(|(other, _)| board.term_selects(term, pod, other))
        .count();
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn matches_node_affinity(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return true;
    };
    let labels = node.metadata.labels.as_ref();
    if !spec
        .node_selector
        .as_ref()
        .is_none_or(|pairs| selector::matches_pairs(pairs, labels))
    {
        return false;
    }
    let required = spec.affinity.as_ref().and_then(|affinity| {
        affinity
            .node_affinity
            .as_ref()?
            .required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    required.is_none_or(|required| selector::matches_node(required, node))
}

fn cordon_taint() -> Taint {
    Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    }
}

/// The node's taints, and the one its condition stands for: here nobody else turns "not ready" into a taint.
fn taints(node: &Node) -> Vec<Taint> {
    let mut taints = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    if !ready {
        taints.push(Taint {
            key: "node.kubernetes.io/not-ready".into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
    }
    taints
}

fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    tolerations
        .iter()
        .any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Equal" | "" => {
            !key.is_empty()
                && toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
        }
        // Operators newer than ours tolerate nothing: the pod waits, which is visible, instead of landing wrongly.
        _ => false,
    }
}

fn constraints<'a>(
    pod: &'a Pod,
    when: &'static str,
) -> impl Iterator<Item = &'a TopologySpreadConstraint> {
    let all = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.topology_spread_constraints.as_deref())
        .unwrap_or_default();
    all.iter()
        .filter(move |constraint| constraint.when_unsatisfiable == when)
}

/// Matching pods in each domain among the nodes the pod could go to by its own selectors.
fn domains<'a>(
    pod: &Pod,
    constraint: &TopologySpreadConstraint,
    board: &Board<'a>,
) -> BTreeMap<&'a str, i64> {
    let honour = constraint.node_affinity_policy.as_deref() != Some("Ignore");
    let eligible = board
        .nodes
        .iter()
        .filter(|node| !honour || matches_node_affinity(pod, node));
    let names: BTreeSet<&str> = eligible
        .filter_map(|node| label(node, &constraint.topology_key))
        .collect();
    let mut counts: BTreeMap<&'a str, i64> = names.into_iter().map(|name| (name, 0)).collect();
    for (other, node) in &board.placed {
        let same_namespace = other.metadata.namespace == pod.metadata.namespace;
        if !same_namespace || other.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if selector::matches(
            constraint.label_selector.as_ref(),
            other.metadata.labels.as_ref(),
        ) {
            let domain = board
                .node(node)
                .and_then(|node| label(node, &constraint.topology_key));
            if let Some(count) = domain.and_then(|domain| counts.get_mut(domain)) {
                *count += 1;
            }
        }
    }
    counts
}

fn spread(pod: &Pod, node: &Node, board: &Board<'_>) -> Result<(), Unfit> {
    for constraint in constraints(pod, "DoNotSchedule") {
        let domain = label(node, &constraint.topology_key).ok_or(Unfit::SpreadLabelMissing)?;
        let counts = domains(pod, constraint, board);
        let enough = constraint.min_domains.is_none_or(|wanted| {
            i64::from(wanted) <= i64::try_from(counts.len()).unwrap_or(i64::MAX)
        });
        let least = if enough {
            counts.values().copied().min().unwrap_or(0)
        } else {
            0
        };
        let itself = i64::from(selector::matches(
            constraint.label_selector.as_ref(),
            pod.metadata.labels.as_ref(),
        ));
        if counts.get(domain).copied().unwrap_or(0) + itself - least
            > i64::from(constraint.max_skew)
        {
            return Err(Unfit::Spread);
        }
    }
    Ok(())
}

fn required_anti_affinity(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    let rules = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.pod_anti_affinity.as_ref());
    rules.into_iter().flat_map(|rules| {
        rules
            .required_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    })
}

fn pod_affinity(pod: &Pod, node: &Node, board: &Board<'_>) -> Result<(), Unfit> {
    let rules = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    let required: Vec<&PodAffinityTerm> = rules
        .into_iter()
        .flat_map(|rules| {
            rules
                .required_during_scheduling_ignored_during_execution
                .iter()
                .flatten()
        })
        .collect();
    let near = required.iter().all(|term| {
        label(node, &term.topology_key).is_some() && matching(pod, node, term, board) > 0
    });
    if !near {
        // The first pod of a group that only wants to be near its own kind has nobody to be near yet.
        let first = required.iter().all(|term| {
            label(node, &term.topology_key).is_some()
                && board.term_selects(term, pod, pod)
                && !board
                    .placed
                    .iter()
                    .any(|(other, _)| board.term_selects(term, pod, other))
        });
        if !first {
            return Err(Unfit::PodAffinity);
        }
    }
    if required_anti_affinity(pod).any(|term| matching(pod, node, term, board) > 0) {
        return Err(Unfit::PodAntiAffinity);
    }
    let rejected = board.placed.iter().any(|(other, other_node)| {
        required_anti_affinity(other).any(|term| {
            let domain = label(node, &term.topology_key);
            domain.is_some()
                && board
                    .node(other_node)
                    .and_then(|node| label(node, &term.topology_key))
                    == domain
                && board.term_selects(term, other, pod)
        })
    });
    if rejected {
        Err(Unfit::ExistingAntiAffinity)
    } else {
        Ok(())
    }
}
