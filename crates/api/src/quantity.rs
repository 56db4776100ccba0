//! Storage sizes: a Kubernetes quantity, restricted to what a volume can be (a whole number with a unit).

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A size as the user wrote it (`50Gi`), with its value in bytes beside it. Ordered and compared by value: `1024Mi` equals `1Gi`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StorageSize {
    text: String,
    bytes: u64,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a storage size: write a whole number with a unit, for example 50Gi or 500M")]
pub struct InvalidStorageSize(String);

const UNITS: [(&str, u64); 11] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("", 1),
];

/// The same rule as `FromStr`, for the schema.
const PATTERN: &str = "^[1-9][0-9]{0,17}(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$";

impl StorageSize {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl FromStr for StorageSize {
    type Err = InvalidStorageSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidStorageSize(text.to_owned());
        let digits_end = text
            .find(|character: char| !character.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let factor = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, factor)| *factor)
            .ok_or_else(invalid)?;
        if digits.starts_with('0') || digits.len() > 18 {
            return Err(invalid());
        }
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        let bytes = number.checked_mul(factor).ok_or_else(invalid)?;
        Ok(Self {
            text: text.to_owned(),
            bytes,
        })
    }
}

impl TryFrom<String> for StorageSize {
    type Error = InvalidStorageSize;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<StorageSize> for String {
    fn from(size: StorageSize) -> Self {
        size.text
    }
}

impl fmt::Display for StorageSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl PartialEq for StorageSize {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for StorageSize {}

impl PartialOrd for StorageSize {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StorageSize {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl JsonSchema for StorageSize {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StorageSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}
