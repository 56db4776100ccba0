//! What the user is told about each object: rows that change as observations come in. Pure: observations in, changed rows out.
//!
//! One row per applied object that can be ready, and one per pod of a database. A row that says the same as before is not a change.

use std::collections::BTreeMap;

use serde_json::Value;

use super::readiness::{Expectation, Verdict, judge};

/// Something a watch has seen.
#[derive(Clone, Debug)]
pub enum Observation {
    /// An applied object, by its place in the list of what was applied.
    Object {
        index: usize,
        object: Value,
    },
    ObjectGone {
        index: usize,
    },
    /// A pod that belongs to the database at `index`.
    Pod {
        index: usize,
        object: Value,
    },
    PodGone {
        index: usize,
        name: String,
    },
    /// A Warning event that happened after we began to look.
    Warning {
        text: String,
    },
}

/// How a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Working,
    Done,
    Failed,
    /// The row is no longer about anything.
    Gone,
}

/// A row that now says something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Stays the same for the same thing.
    pub title: String,
    pub mark: Mark,
    pub text: String,
}

/// Where everything that was applied stands together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ready,
    /// What is awaited, one sentence per object.
    Waiting(Vec<String>),
    Failed(Vec<String>),
}

/// An applied object to follow.
pub struct Subject {
    pub title: String,
    pub expectation: Expectation,
    /// Its pods are followed too. What a status says may be from before a restart; ready pods are from now.
    pub has_instances: bool,
}

struct Row {
    mark: Mark,
    text: String,
}

/// All rows.
pub struct Board {
    subjects: Vec<Subject>,
    verdicts: Vec<Verdict>,
    /// How many ready pods each subject needs, as its spec says.
    wanted: Vec<usize>,
    /// What a Database's status says each of its instances waits for; it knows more than the pod's own status.
    awaited: BTreeMap<String, String>,
    pods: BTreeMap<String, Value>,
    rows: BTreeMap<String, Row>,
}

impl Board {
    pub fn new(subjects: Vec<Subject>) -> Self {
        let verdicts = subjects
            .iter()
            .map(|subject| match subject.expectation {
                Expectation::Applied => Verdict::Ready("applied".to_owned()),
                _ => Verdict::Waiting("nobody has reported on it yet".to_owned()),
            })
            .collect();
        let wanted = vec![0; subjects.len()];
        Self {
            subjects,
            verdicts,
            wanted,
            awaited: BTreeMap::new(),
            pods: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// Takes in one observation and returns the rows that changed.
    pub fn observe(&mut self, observation: Observation) -> Vec<Change> {
        match observation {
            Observation::Object { index, object } => self.object(index, &object),
            Observation::ObjectGone { index } => self.object_gone(index),
            Observation::Pod { index, object } => {
                let name = name_of(&object);
                let title = self.pod_title(index, &name);
                self.pods.insert(title.clone(), object);
                let pod = self.pod_row(&title);
                pod.into_iter().chain(self.subject_row(index)).collect()
            }
            Observation::PodGone { index, name } => {
                let title = self.pod_title(index, &name);
                self.pods.remove(&title);
                let pod = self.row(&title, Mark::Gone, "gone");
                pod.into_iter().chain(self.subject_row(index)).collect()
            }
            Observation::Warning { .. } => Vec::new(),
        }
    }

    /// Where everything stands now.
    pub fn standing(&self) -> Standing {
        let mut waiting = Vec::new();
        let mut failed = Vec::new();
        for (index, subject) in self.subjects.iter().enumerate() {
            match self.verdict(index) {
                Verdict::Ready(_) => {}
                Verdict::Waiting(reason) => waiting.push(format!("{}: {reason}", subject.title)),
                Verdict::Failed(reason) => failed.push(format!("{}: {reason}", subject.title)),
            }
        }
        match (failed.is_empty(), waiting.is_empty()) {
            (false, _) => Standing::Failed(failed),
            (true, false) => Standing::Waiting(waiting),
            (true, true) => Standing::Ready,
        }
    }

    /// The rows that are not done, for the report of a wait that took too long.
    pub fn unfinished(&self) -> Vec<String> {
        self.rows
            .iter()
            .filter(|(_, row)| matches!(row.mark, Mark::Working | Mark::Failed))
            .map(|(title, row)| format!("{title}: {}", row.text))
            .collect()
    }

    fn object(&mut self, index: usize, object: &Value) -> Vec<Change> {
        let subject = &self.subjects[index];
        self.verdicts[index] = judge(subject.expectation, object);
        if subject.has_instances {
            let replicas = object.pointer("/spec/replicas").and_then(Value::as_u64);
            self.wanted[index] = replicas
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or(1);
        }
        let mut changes: Vec<Change> = self.subject_row(index).into_iter().collect();
        changes.extend(self.instances(index, object));
        changes
    }

    /// What the object says of itself, unless its pods do not bear it out yet.
    fn verdict(&self, index: usize) -> Verdict {
        let said = self.verdicts[index].clone();
        let prefix = self.pod_title(index, "");
        let pods = self
            .pods
            .range(prefix.clone()..)
            .take_while(|(title, _)| title.starts_with(&prefix));
        let ready = pods
            .filter(|(_, pod)| describe_pod(pod, None).0 == Mark::Done)
            .count();
        match said {
            Verdict::Ready(_) if ready < self.wanted[index] => {
                Verdict::Waiting(format!("{ready} of {} pods are ready", self.wanted[index]))
            }
            said => said,
        }
    }

    /// The row of an applied object; None if it says what it said.
    fn subject_row(&mut self, index: usize) -> Option<Change> {
        let title = self.subjects[index].title.clone();
        let (mark, text) = match self.verdict(index) {
            Verdict::Ready(text) => (Mark::Done, text),
            Verdict::Waiting(text) => (Mark::Working, text),
            Verdict::Failed(text) => (Mark::Failed, text),
        };
        self.row(&title, mark, &text)
    }

    /// A Database's status names what each instance waits for.
    fn instances(&mut self, index: usize, object: &Value) -> Vec<Change> {
        let instances = object
            .pointer("/status/instances")
            .and_then(Value::as_array);
        let mut changes = Vec::new();
        for instance in instances.into_iter().flatten() {
            let Some(name) = instance["name"].as_str() else {
                continue;
            };
            let title = self.pod_title(index, name);
            match instance["waitingFor"]
                .as_str()
                .filter(|text| !text.is_empty())
            {
                Some(text) => self.awaited.insert(title.clone(), text.to_owned()),
                None => self.awaited.remove(&title),
            };
            changes.extend(self.pod_row(&title));
        }
        changes
    }

    fn object_gone(&mut self, index: usize) -> Vec<Change> {
        self.verdicts[index] = Verdict::Failed("it was deleted".to_owned());
        self.subject_row(index).into_iter().collect()
    }

    fn pod_title(&self, index: usize, pod: &str) -> String {
        format!("{} / {pod}", self.subjects[index].title)
    }

    fn pod_row(&mut self, title: &str) -> Option<Change> {
        let pod = self.pods.get(title)?;
        let (mark, text) = describe_pod(pod, self.awaited.get(title).map(String::as_str));
        self.row(title, mark, &text)
    }

    /// Sets a row; None if it already said so.
    fn row(&mut self, title: &str, mark: Mark, text: &str) -> Option<Change> {
        let same = self
            .rows
            .get(title)
            .is_some_and(|row| row.mark == mark && row.text == text);
        if same {
            return None;
        }
        if mark == Mark::Gone {
            self.rows.remove(title)?;
        } else {
            self.rows.insert(
                title.to_owned(),
                Row {
                    mark,
                    text: text.to_owned(),
                },
            );
        }
        Some(Change {
            title: title.to_owned(),
            mark,
            text: text.to_owned(),
        })
    }
}

fn name_of(object: &Value) -> String {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// What a pod is at, in the order in which trouble matters: leaving, stuck containers, what the database waits for, then its phase.
fn describe_pod(pod: &Value, awaited: Option<&str>) -> (Mark, String) {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return (Mark::Working, "stopping".to_owned());
    }
    let role = pod["metadata"]["labels"][geodb_api::labels::ROLE].as_str();
    if condition_is_true(pod, "Ready") {
        return (
            Mark::Done,
            role.map_or_else(|| "ready".to_owned(), |role| format!("ready, {role}")),
        );
    }
    if let Some(stuck) = stuck_container(pod) {
        return (Mark::Working, stuck);
    }
    if let Some(awaited) = awaited {
        return (Mark::Working, awaited.to_owned());
    }
    match text("/status/phase") {
        Some("Running") => (Mark::Working, "running, not ready yet".to_owned()),
        Some("Failed") => (
            Mark::Failed,
            text("/status/message").unwrap_or("failed").to_owned(),
        ),
        Some("Succeeded") => (Mark::Done, "succeeded".to_owned()),
        _ => (
            Mark::Working,
            unscheduled(pod).unwrap_or_else(|| "starting".to_owned()),
        ),
    }
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn unscheduled(pod: &Value) -> Option<String> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    let scheduled = conditions
        .iter()
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False")?;
    Some(format!(
        "waits for a node: {}",
        scheduled["message"].as_str()?
    ))
}

/// A container that waits for something that will not come by itself: an image, a back-off after crashes.
fn stuck_container(pod: &Value) -> Option<String> {
    let statuses = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .filter_map(|list| pod["status"][list].as_array())
        .flatten();
    for status in statuses {
        let waiting = &status["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        if ["", "PodInitializing", "ContainerCreating"].contains(&reason) {
            continue;
        }
        let message = waiting["message"].as_str().unwrap_or_default();
        let name = status["name"].as_str().unwrap_or_default();
        return Some(
            format!("container {name}: {reason} {message}")
                .trim_end()
                .to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn board() -> Board {
        Board::new(vec![
            Subject {
                title: "Database rivers".to_owned(),
                expectation: Expectation::ReadyCondition,
                has_instances: true,
            },
            Subject {
                title: "ConfigMap notes".to_owned(),
                expectation: Expectation::Applied,
                has_instances: false,
            },
        ])
    }

    fn database(ready: &str, message: &str, waiting_for: Option<&str>) -> Observation {
        let object = json!({
            "metadata": {"name": "rivers", "generation": 1},
            "spec": {"replicas": 1},
            "status": {
                "conditions": [{"type": "Ready", "status": ready, "message": message}],
                "instances": [{"name": "rivers-1", "role": "Primary", "ready": false, "waitingFor": waiting_for}],
            }
        });
        Observation::Object { index: 0, object }
    }

    fn pod(status: &Value) -> Observation {
        let object = json!({"metadata": {"name": "rivers-1", "labels": {"geodb.imaginedata.com/role": "primary"}}, "status": status});
        Observation::Pod { index: 0, object }
    }

    fn change(title: &str, mark: Mark, text: &str) -> Change {
        Change {
            title: title.to_owned(),
            mark,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_database_is_followed_from_nothing_to_ready() {
        let mut board = board();
        assert_eq!(
            board.standing(),
            Standing::Waiting(vec![
                "Database rivers: nobody has reported on it yet".to_owned()
            ])
        );
        assert_eq!(
            board.observe(pod(&json!({"phase": "Pending"}))),
            [
                change("Database rivers / rivers-1", Mark::Working, "starting"),
                change(
                    "Database rivers",
                    Mark::Working,
                    "nobody has reported on it yet"
                ),
            ]
        );
        assert_eq!(
            board.observe(database(
                "False",
                "no primary yet",
                Some("initdb to finish")
            )),
            [
                change("Database rivers", Mark::Working, "no primary yet"),
                change(
                    "Database rivers / rivers-1",
                    Mark::Working,
                    "initdb to finish"
                ),
            ]
        );
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(
            board.observe(pod(&ready)),
            [change(
                "Database rivers / rivers-1",
                Mark::Done,
                "ready, primary"
            )]
        );
        assert_eq!(
            board.observe(database("True", "all there", None)),
            [change("Database rivers", Mark::Done, "all there")]
        );
        assert_eq!(board.standing(), Standing::Ready);
    }

    /// History: a restarted sandbox called its database ready by what the last one had written, before any pod ran.
    #[test]
    fn a_status_from_before_a_restart_does_not_make_it_ready() {
        let mut board = board();
        board.observe(database("True", "all there", None));
        let waiting = "Database rivers: 0 of 1 pods are ready".to_owned();
        assert_eq!(board.standing(), Standing::Waiting(vec![waiting]));
        let ready =
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        board.observe(pod(&ready));
        assert_eq!(board.standing(), Standing::Ready);
    }

    #[test]
    fn saying_the_same_again_is_no_change() {
        let mut board = board();
        assert_eq!(
            board
                .observe(database("False", "no primary yet", None))
                .len(),
            1
        );
        assert_eq!(board.observe(database("False", "no primary yet", None)), []);
    }

    #[test]
    fn a_stuck_container_says_more_than_what_is_awaited() {
        let mut board = board();
        board.observe(database("False", "x", Some("its pod")));
        let stuck = json!({"phase": "Pending", "containerStatuses": [{"name": "postgres", "state": {"waiting": {"reason": "ErrImagePull", "message": "mapped are postgres:15"}}}]});
        let changes = board.observe(pod(&stuck));
        assert_eq!(
            changes,
            [change(
                "Database rivers / rivers-1",
                Mark::Working,
                "container postgres: ErrImagePull mapped are postgres:15"
            )]
        );
        assert_eq!(board.unfinished().len(), 2);
    }

    #[test]
    fn a_deleted_object_fails_the_wait_and_a_gone_pod_leaves_its_row() {
        let mut board = board();
        board.observe(pod(&json!({"phase": "Running"})));
        let gone = Observation::PodGone {
            index: 0,
            name: "rivers-1".to_owned(),
        };
        assert_eq!(
            board.observe(gone.clone()),
            [change("Database rivers / rivers-1", Mark::Gone, "gone")]
        );
        assert_eq!(board.observe(gone), []);
        board.observe(Observation::ObjectGone { index: 0 });
        assert_eq!(
            board.standing(),
            Standing::Failed(vec!["Database rivers: it was deleted".to_owned()])
        );
    }
}
