//! Who goes because whose owner went. Pure; whatever is destroyed on these grounds is verified with the server first.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::worker;
use super::graph::{Graph, Kind, Object};

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// How the dependents of a deleted object are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// An owner that is not in the graph: to be asked for, or, with its kind gone, known to have been deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Missing {
    Ask {
        owner: OwnerReference,
        kind: Arc<Kind>,
    },
    Deleted,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Deletes an object none of whose owners stays, once the server confirms that the missing ones are gone.
    Collect {
        object: Arc<Object>,
        missing: Vec<Missing>,
        propagation: Propagation,
    },
    /// Removes references to owners that are gone or going from an object that has another owner.
    Detach {
        object: Arc<Object>,
        missing: Vec<Missing>,
        owners: Vec<String>,
    },
    RemoveFinalizer {
        object: Arc<Object>,
        finalizer: &'static str,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Collect { object, .. } => format!("collect {}", object.uid),
            Action::Detach { object, .. } => format!("detach {}", object.uid),
            Action::RemoveFinalizer { object, finalizer } => format!("{finalizer} {}", object.uid),
        }
    }
}

struct Index<'a> {
    graph: &'a Graph,
    by_uid: HashMap<&'a str, &'a Arc<Object>>,
    dependents: HashMap<&'a str, Vec<&'a Arc<Object>>>,
}

impl<'a> Index<'a> {
    fn new(graph: &'a Graph) -> Index<'a> {
        let mut index = Index {
            graph,
            by_uid: HashMap::new(),
            dependents: HashMap::new(),
        };
        for object in graph.objects() {
            index.by_uid.insert(&object.uid, object);
            for owner in &object.owners {
                index.dependents.entry(&owner.uid).or_default().push(object);
            }
        }
        index
    }

    fn dependents(&self, owner: &Object) -> &[&'a Arc<Object>] {
        self.dependents
            .get(owner.uid.as_str())
            .map_or(&[], Vec::as_slice)
    }

    /// The owner, if it is there under the name and in the place the reference says. A UID alone proves nothing about the rest.
    fn owner(&self, object: &Object, reference: &OwnerReference) -> Option<&'a Arc<Object>> {
        let owner = self.by_uid.get(reference.uid.as_str())?;
        let reachable = !owner.kind.namespaced || owner.namespace == object.namespace;
        (reachable && owner.name == reference.name && owner.kind.resource.kind == reference.kind)
            .then_some(*owner)
    }
}

pub(crate) fn decide(graph: &Graph) -> Vec<Action> {
    let index = Index::new(graph);
    let mut actions = Vec::new();
    for object in graph.objects() {
        if object.deleting {
            decide_deleting(object, &index, &mut actions);
        } else if !object.owners.is_empty() {
            actions.extend(decide_dependent(object, &index));
        }
    }
    actions
}

fn decide_deleting(object: &Arc<Object>, index: &Index<'_>, actions: &mut Vec<Action>) {
    if object.has_finalizer(ORPHAN) {
        let dependents = index.dependents(object);
        for dependent in dependents {
            let owners = vec![object.uid.clone()];
            actions.push(Action::Detach {
                object: (*dependent).clone(),
                missing: Vec::new(),
                owners,
            });
        }
        if dependents.is_empty() {
            actions.push(Action::RemoveFinalizer {
                object: object.clone(),
                finalizer: ORPHAN,
            });
        }
    }
    if object.has_finalizer(FOREGROUND) {
        let blocked = index.dependents(object).iter().any(|dependent| {
            dependent
                .owners
                .iter()
                .any(|owner| owner.uid == object.uid && owner.block_owner_deletion == Some(true))
        });
        if !blocked {
            actions.push(Action::RemoveFinalizer {
                object: object.clone(),
                finalizer: FOREGROUND,
            });
        }
    }
}

fn decide_dependent(object: &Arc<Object>, index: &Index<'_>) -> Option<Action> {
    let mut staying = 0_usize;
    let mut going = Vec::new();
    let mut missing = Vec::new();
    for reference in &object.owners {
        match index.owner(object, reference) {
            Some(owner) if owner.deleting && owner.has_finalizer(FOREGROUND) => {
                going.push(reference.uid.clone());
            }
            Some(_) => staying += 1,
            None => match look_for(object, reference, index.graph) {
                Some(found) => missing.push((reference.uid.clone(), found)),
                // Nobody can say whether this owner exists, so it does.
                None => staying += 1,
            },
        }
    }
    if going.is_empty() && missing.is_empty() {
        return None;
    }
    let (uids, questions): (Vec<String>, Vec<Missing>) = missing.into_iter().unzip();
    if staying > 0 {
        let owners = going.into_iter().chain(uids).collect();
        return Some(Action::Detach {
            object: object.clone(),
            missing: questions,
            owners,
        });
    }
    let propagation = if object.has_finalizer(ORPHAN) {
        Propagation::Orphan
    } else if object.has_finalizer(FOREGROUND)
        || (!going.is_empty() && !index.dependents(object).is_empty())
    {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    Some(Action::Collect {
        object: object.clone(),
        missing: questions,
        propagation,
    })
}

fn look_for(object: &Object, reference: &OwnerReference, graph: &Graph) -> Option<Missing> {
    match graph.resolve(reference) {
        // An object of the cluster cannot be owned by one in a namespace; which namespace would it be?
        Some(kind) if kind.namespaced && object.namespace.is_empty() => None,
        Some(kind) => Some(Missing::Ask {
            owner: reference.clone(),
            kind: kind.clone(),
        }),
        None => graph
            .was_deleted(&reference.uid)
            .then_some(Missing::Deleted),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
