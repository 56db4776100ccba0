//! `metadata.managedFields`: who wrote which fields, how and when. Reading, writing, and the limit on the number of writers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::field_set::FieldSet;
use crate::fields_v1::{self, FieldsError};

/// At most this many writers by update are remembered; the oldest are merged into one entry. The server's own limit.
const UPDATE_MANAGERS_LIMIT_ENTRIES: usize = 10;
/// The entry that the oldest are merged into.
const OLD_UPDATES_MANAGER: &str = "ancient-changes";

/// How a manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Says what it wants and is asked about conflicts.
    Apply,
    /// Overwrites.
    Update,
}

impl Operation {
    fn text(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who owns an entry. Appliers are the same through all API versions, updaters have one entry for each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for appliers.
    pub api_version: String,
    pub subresource: String,
}

impl Manager {
    pub fn new(name: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        let api_version = if operation == Operation::Apply {
            ""
        } else {
            api_version
        };
        Self {
            name: name.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// As in the server's messages about conflicts.
    pub fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text += &format!(" with subresource {:?}", self.subresource);
        }
        if self.operation == Operation::Update {
            text += &format!(" using {}", self.api_version);
        }
        text
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub api_version: String,
    pub fields: FieldSet,
    pub time: Option<String>,
}

/// All entries of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managed(pub BTreeMap<Manager, Entry>);

/// Why `managedFields` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ManagedFieldsError {
    /// Not the list it must be.
    #[error("metadata.managedFields must be a list of objects")]
    NotAList,
    /// Neither of the two operations.
    #[error("operation must be `Apply` or `Update`")]
    UnknownOperation,
    /// No API version.
    #[error("apiVersion must not be empty")]
    NoApiVersion,
    /// Another encoding of fields.
    #[error("invalid fieldsType {0:?} in managed fields entry {1}")]
    UnknownFieldsType(String, usize),
    /// The fields themselves.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsError),
}

impl Managed {
    /// Reads the entries of an object; none if it has none.
    pub fn decode(object: &Value) -> Result<Self, ManagedFieldsError> {
        let mut managed = Self::default();
        let list = match object.pointer("/metadata/managedFields") {
            None | Some(Value::Null) => return Ok(managed),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(ManagedFieldsError::NotAList),
        };
        for (index, entry) in list.iter().enumerate() {
            if !entry.is_object() {
                return Err(ManagedFieldsError::NotAList);
            }
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err(ManagedFieldsError::UnknownOperation),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err(ManagedFieldsError::NoApiVersion);
            }
            if text("fieldsType") != "FieldsV1" {
                return Err(ManagedFieldsError::UnknownFieldsType(
                    text("fieldsType").to_owned(),
                    index,
                ));
            }
            let fields = entry
                .get("fieldsV1")
                .map_or_else(|| Ok(FieldSet::default()), fields_v1::decode)?;
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            let mut manager = Manager::new("", operation, api_version, text("subresource"));
            text("manager").clone_into(&mut manager.name);
            managed.0.insert(
                manager,
                Entry {
                    api_version: api_version.to_owned(),
                    fields,
                    time,
                },
            );
        }
        Ok(managed)
    }

    /// Writes the entries into an object, in the server's order: appliers first, then by time, then by name.
    pub fn encode(&self, object: &mut Value) {
        remove_managed_fields(object);
        if self.0.is_empty() {
            return;
        }
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|(left, left_entry), (right, right_entry)| {
            let key = |manager: &Manager, entry: &Entry| {
                (
                    manager.operation.text(),
                    entry.time.clone().unwrap_or_default(),
                    manager.name.clone(),
                )
            };
            key(left, left_entry)
                .cmp(&key(right, right_entry))
                .then_with(|| left_entry.api_version.cmp(&right_entry.api_version))
                .then_with(|| left.subresource.cmp(&right.subresource))
        });
        let list = entries
            .into_iter()
            .map(|(manager, entry)| encode_entry(manager, entry))
            .collect();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }

    /// Merges the oldest writers by update until there are few enough. They are merged by API version, as fields mean something only there.
    pub fn cap_update_managers(&mut self) {
        let mut updaters: Vec<_> = self
            .0
            .keys()
            .filter(|manager| manager.operation == Operation::Update)
            .cloned()
            .collect();
        let mut count = updaters.len();
        if count <= UPDATE_MANAGERS_LIMIT_ENTRIES {
            return;
        }
        updaters.sort_by_key(|manager| {
            (
                self.0.get(manager).and_then(|entry| entry.time.clone()),
                manager.clone(),
            )
        });
        let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in updaters {
            if count <= UPDATE_MANAGERS_LIMIT_ENTRIES {
                break;
            }
            let Some(first) = first_of_version.get(&manager.api_version).cloned() else {
                first_of_version.insert(manager.api_version.clone(), manager);
                continue;
            };
            let bucket = Manager::new(
                OLD_UPDATES_MANAGER,
                Operation::Update,
                &manager.api_version,
                "",
            );
            if !self.0.contains_key(&bucket)
                && let Some(entry) = self.0.remove(&first)
            {
                self.0.insert(bucket.clone(), entry);
            }
            let Some(mut entry) = self.0.remove(&manager) else {
                continue;
            };
            count -= 1;
            if let Some(older) = self.0.get(&bucket) {
                entry.fields = entry.fields.union(&older.fields);
            }
            self.0.insert(bucket, entry);
        }
    }
}

fn encode_entry(manager: &Manager, entry: &Entry) -> Value {
    let mut object = Map::new();
    object.insert("manager".to_owned(), json!(manager.name));
    object.insert("operation".to_owned(), json!(manager.operation.text()));
    object.insert("apiVersion".to_owned(), json!(entry.api_version));
    if let Some(time) = &entry.time {
        object.insert("time".to_owned(), json!(time));
    }
    object.insert("fieldsType".to_owned(), json!("FieldsV1"));
    object.insert("fieldsV1".to_owned(), fields_v1::encode(&entry.fields));
    if !manager.subresource.is_empty() {
        object.insert("subresource".to_owned(), json!(manager.subresource));
    }
    Value::Object(object)
}

/// The object without any entries.
pub(crate) fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // Not `remove`, which would move the last field into the gap.
        metadata.retain(|name, _| name != "managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_the_order_of_a_real_server() {
        let entry = |manager: &str, operation: &str, time: Option<&str>| {
            let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}});
            if let Some(time) = time {
                entry["time"] = json!(time);
            }
            entry
        };
        let (early, late) = (Some("2026-11-15T12:00:00Z"), Some("2026-11-15T12:00:01Z"));
        let entries = [
            entry("b", "Update", early),
            entry("a", "Update", late),
            entry("d", "Apply", early),
            entry("c", "Apply", early),
            entry("z", "Apply", None),
        ];
        let mut object = json!({"metadata": {"managedFields": entries}});
        let managed = Managed::decode(&object).expect("valid");
        managed.encode(&mut object);
        let list = object["metadata"]["managedFields"]
            .as_array()
            .expect("a list");
        let names: Vec<_> = list
            .iter()
            .filter_map(|entry| entry["manager"].as_str())
            .collect();
        assert_eq!(names, ["z", "c", "d", "b", "a"]);
    }

    #[test]
    fn entries_that_cannot_be_read_say_why() {
        let cases = [
            (
                json!("x"),
                "metadata.managedFields must be a list of objects",
            ),
            (
                json!([1]),
                "metadata.managedFields must be a list of objects",
            ),
            (json!([{}]), "operation must be `Apply` or `Update`"),
            (
                json!([{"operation": "Apply"}]),
                "apiVersion must not be empty",
            ),
            (
                json!([{"operation": "Apply", "apiVersion": "v1"}]),
                "invalid fieldsType \"\" in managed fields entry 0",
            ),
        ];
        for (entries, message) in cases {
            let error = Managed::decode(&json!({"metadata": {"managedFields": entries}}))
                .expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }
}
