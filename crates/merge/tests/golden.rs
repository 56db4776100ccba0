//! What a real kube-apiserver answered to sequences of writes (`golden/record.py`), and what we make of the same writes. Each step starts from
//! the server's own object, so that one difference does not hide the next.

use std::fmt::Write as _;

use geodb_merge::apply::{ApplyError, ApplyRequest, UpdateRequest, apply, settle, update};
use geodb_merge::builtin;
use geodb_merge::merge_patch::merge_patch;
use geodb_merge::schema::Schema;
use geodb_merge::strategic::strategic_merge;
use serde_json::{Value, json};

/// The recorder writes this for every time it sees.
const SOME_TIME: &str = "-";

struct Story<'a> {
    kind: &'a str,
    api_version: &'a str,
    schema: &'a Schema,
}

/// What we make of a step.
enum Outcome {
    Object(Value),
    Refused {
        code: u16,
        message: String,
        causes: Vec<Value>,
    },
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

impl Story<'_> {
    fn perform(&self, live: Option<&Value>, step: &Value) -> Outcome {
        let (manager, subresource, body) = (
            text(step, "manager"),
            text(step, "subresource"),
            &step["body"],
        );
        if text(step, "op") == "apply" {
            let force = step.get("force").is_some();
            let request = ApplyRequest {
                live,
                applied: body,
                manager,
                subresource,
                api_version: self.api_version,
                force,
                now: SOME_TIME,
                schema: self.schema,
            };
            return match apply(request) {
                Ok(applied) => {
                    let mut object = self.isolate(live, applied.object, subresource);
                    self.default_zone(&mut object);
                    Outcome::Object(object)
                }
                Err(error) => Outcome::Refused {
                    code: error.status_code(),
                    message: error.to_string(),
                    causes: if let ApplyError::Conflicts(conflicts) = &error {
                        conflicts.causes()
                    } else {
                        Vec::new()
                    },
                },
            };
        }
        let mut new = live.cloned().unwrap_or_else(|| json!({}));
        match text(step, "op") {
            "merge" => merge_patch(&mut new, body),
            "strategic" => match strategic_merge(self.schema, &new, body) {
                Ok(merged) => new = merged,
                Err(error) => {
                    return Outcome::Refused {
                        code: error.status_code(),
                        message: error.to_string(),
                        causes: Vec::new(),
                    };
                }
            },
            _ => new = body.clone(),
        }
        let new = self.defaulted(live, new, step);
        let new = self.isolate(live, new, subresource);
        let request = UpdateRequest {
            live,
            new: &new,
            manager,
            subresource,
            api_version: self.api_version,
            now: SOME_TIME,
            schema: self.schema,
        };
        Outcome::Object(update(request).object)
    }

    fn default_zone(&self, object: &mut Value) {
        if self.kind != "Thing" {
            return;
        }
        for item in object
            .pointer_mut("/spec/keyed")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if item.get("zone").is_none() {
                item["zone"] = json!("here");
            }
        }
    }

    /// Defaults are not ours; for built-in kinds they come from the server's answer. For the custom kind there is one, of a key.
    fn defaulted(&self, live: Option<&Value>, mut new: Value, step: &Value) -> Value {
        self.default_zone(&mut new);
        if let (true, Some(answer)) = (self.kind != "Thing", step.get("object")) {
            fill(&mut new, answer);
        }
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            if let Some(value) = live.and_then(|live| live["metadata"].get(field)) {
                new["metadata"][field] = value.clone();
            }
        }
        new
    }

    /// What the endpoint does not let through.
    fn isolate(&self, live: Option<&Value>, mut new: Value, subresource: &str) -> Value {
        let empty = json!({});
        let live = live.unwrap_or(&empty);
        let mut keep = |name: &str| match live.get(name) {
            Some(value) => new[name] = value.clone(),
            None => {
                new.as_object_mut()
                    .expect("objects")
                    .retain(|field, _| field != name);
            }
        };
        match (subresource, self.kind) {
            (_, "ConfigMap") => {}
            ("status", _) => {
                keep("spec");
                let managed = new["metadata"].get("managedFields").cloned();
                if self.kind == "Thing" {
                    new["metadata"] = live["metadata"].clone();
                    if let Some(managed) = managed {
                        new["metadata"]["managedFields"] = managed;
                    }
                }
            }
            _ => keep("status"),
        }
        new
    }
}

/// Adds what only the other has.
fn fill(value: &mut Value, other: &Value) {
    match (value, other) {
        (Value::Object(value), Value::Object(other)) => {
            for (name, field) in other {
                if name != "managedFields" {
                    fill(
                        value.entry(name.clone()).or_insert_with(|| field.clone()),
                        field,
                    );
                }
            }
        }
        (Value::Array(value), Value::Array(other)) if value.len() == other.len() => {
            value
                .iter_mut()
                .zip(other)
                .for_each(|(value, other)| fill(value, other));
        }
        _ => {}
    }
}

/// The entries by name. Their real order depends on the second in which the recorder came by.
fn entries(object: &Value) -> Value {
    let mut entries = object["metadata"]
        .get("managedFields")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    entries.sort_by_key(|entry| {
        ["operation", "manager", "subresource"].map(|field| text(entry, field).to_owned())
    });
    Value::Array(entries)
}

/// The object without what the server alone decides.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| {
            ![
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "generation",
                "managedFields",
            ]
            .contains(&name.as_str())
        });
    }
    object
}

/// Whether everything ours has is in the server's, too; lists of the same length.
fn is_within(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => ours.iter().all(|(name, field)| {
            theirs
                .get(name)
                .is_some_and(|other| is_within(field, other))
        }),
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .zip(theirs)
                    .all(|(ours, theirs)| is_within(ours, theirs))
        }
        (ours, theirs) => ours == theirs,
    }
}

fn differences(story: &Story<'_>, step: &Value, outcome: &Outcome) -> Vec<String> {
    let mut differences = Vec::new();
    let mut expect = |what: &str, ours: &Value, theirs: &Value, is_same: bool| {
        if !is_same {
            differences.push(format!("{what}\n  ours:   {ours}\n  theirs: {theirs}"));
        }
    };
    match outcome {
        Outcome::Object(ours) => {
            let Some(theirs) = step.get("object") else {
                return vec![format!(
                    "accepted, but the server refused: {}",
                    step["message"]
                )];
            };
            let (mine, yours) = (entries(ours), entries(theirs));
            expect("managedFields", &mine, &yours, mine == yours);
            let (mine, yours) = (content(ours), content(theirs));
            let is_same = if story.kind == "Thing" {
                mine == yours
            } else {
                is_within(&mine, &yours)
            };
            expect("object", &mine, &yours, is_same);
        }
        Outcome::Refused {
            code,
            message,
            causes,
        } => {
            expect(
                "code",
                &json!(code),
                &step["code"],
                json!(code) == step["code"],
            );
            expect(
                "message",
                &json!(message),
                &step["message"],
                json!(message) == step["message"],
            );
            if let Some(theirs) = step.get("causes").filter(|_| *code == 409) {
                let mut mine = causes.clone();
                let mut yours = theirs.as_array().cloned().unwrap_or_default();
                // The order of managers in the causes is the order of a Go map.
                for causes in [&mut mine, &mut yours] {
                    causes.sort_by_key(|cause| {
                        (
                            text(cause, "field").to_owned(),
                            text(cause, "message").to_owned(),
                        )
                    });
                }
                expect("causes", &json!(mine), &json!(yours), mine == yours);
            }
        }
    }
    differences
}

fn replay(recording: &str) -> String {
    let recording: Value = serde_json::from_str(recording).expect("the recorder writes JSON");
    let thing = Schema::from_openapi(&recording["schema"])
        .expect("structural")
        .with_status_subresource(true);
    let mut report = String::new();
    for story in recording["stories"].as_array().expect("a list") {
        let kind = text(story, "kind");
        let api_version = match kind {
            "Thing" => "example.com/v1",
            "Deployment" => "apps/v1",
            _ => "v1",
        };
        let schema = if kind == "Thing" {
            &thing
        } else {
            builtin::schema(api_version, kind).expect("a built-in kind")
        };
        let told = Story {
            kind,
            api_version,
            schema,
        };
        let mut live: Option<Value> = None;
        for (number, step) in story["steps"]
            .as_array()
            .expect("a list")
            .iter()
            .enumerate()
        {
            if step["code"] == 422 || step["code"] == 404 {
                continue; // Refused by validation, or because an earlier step was: neither is ours.
            }
            let outcome = told.perform(live.as_ref(), step);
            for difference in differences(&told, step, &outcome) {
                let _ = writeln!(
                    report,
                    "{} step {number} ({} by {}): {difference}",
                    story["title"], step["op"], step["manager"]
                );
                let _ = writeln!(report, "  body:   {}", step["body"]);
            }
            if let (Outcome::Object(ours), Some(live), Some(theirs)) =
                (&outcome, &live, step.get("object"))
            {
                // A write that the server took for none must be none for us.
                let mut ours = ours.clone();
                let changed = settle(live, &mut ours);
                if !changed && live != theirs {
                    let _ = writeln!(
                        report,
                        "{} step {number}: no change for us, but one for the server",
                        story["title"]
                    );
                }
            }
            live = step.get("object").cloned().or(live);
        }
    }
    report
}

#[test]
fn stories_end_as_on_a_real_server() {
    let report = replay(include_str!("golden/stories.json"));
    assert!(report.is_empty(), "{report}");
}

#[test]
fn random_sequences_end_as_on_a_real_server() {
    let report = match std::env::var("GEODB_MERGE_RECORDING") {
        Ok(file) => {
            replay(&std::fs::read_to_string(file).expect("GEODB_MERGE_RECORDING names a recording"))
        }
        Err(_) => replay(include_str!("golden/random.json")),
    };
    assert!(report.is_empty(), "{report}");
}
