//! What the agents of a database agree on: one small document, changed only by compare-and-swap.
//!
//! It lives in an annotation of a Lease; this module is the document and the words in it, not the Lease and not the access to it.
//! A document that does not parse or contradicts itself is an error for the caller to show: nobody acts on a register it cannot trust.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Annotation of the Lease that holds the register as JSON.
pub const REGISTER_ANNOTATION: &str = "geodb.imaginedata.com/register";
/// Annotation by which the operator says that this database has never had an epoch, so that a new one may be made.
pub const BOOTSTRAP_ANNOTATION: &str = "geodb.imaginedata.com/bootstrap";
/// The one value of [`BOOTSTRAP_ANNOTATION`] that allows it.
pub const BOOTSTRAP_ALLOWED: &str = "allowed";

/// Bytes of an incarnation: PostgreSQL cuts `application_name` after 63, and a cut identity could be mistaken for another one.
pub const INCARNATION_BYTES_MAX: usize = 63;
/// Characters of the random part of an incarnation that the agent makes: 16 million values for the volumes of one instance.
pub const INCARNATION_RANDOM_LENGTH: usize = 6;

/// Number of an election. Zero means that there has never been one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before the first election.
    pub const NONE: Epoch = Epoch(0);
    /// The election that makes the database.
    pub const FIRST: Epoch = Epoch(1);

    /// The election after this one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(
            self.0
                .checked_add(1)
                .expect("an epoch counts elections and cannot reach 2^64"),
        )
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A timeline of PostgreSQL: it changes with every promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeline(pub u32);

/// A position in the write-ahead log, written as PostgreSQL writes it: `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl FromStr for Lsn {
    type Err = RegisterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || RegisterError::Lsn(text.to_owned());
        let (high, low) = text.split_once('/').ok_or_else(invalid)?;
        let part = |digits: &str| {
            let plain = !digits.is_empty()
                && digits.len() <= 8
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain
                .then(|| u64::from_str_radix(digits, 16).ok())
                .flatten()
                .ok_or_else(invalid)
        };
        Ok(Lsn(part(high)? << 32 | part(low)?))
    }
}

impl Serialize for Lsn {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// One life of one instance's data: `INSTANCE.RANDOM`. Another volume, or data made anew, is another incarnation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(String);

impl Incarnation {
    /// The incarnation of `instance` with `random` as the part that tells its lives apart.
    pub fn new(instance: &str, random: &str) -> Result<Self, RegisterError> {
        format!("{instance}.{random}").parse()
    }

    /// The instance this is a life of.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.0.rsplit_once('.').map_or("", |(instance, _)| instance)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Incarnation {
    type Err = RegisterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = |part: &str, dot: bool| {
            let allowed = |byte: u8| {
                byte.is_ascii_lowercase()
                    || byte.is_ascii_digit()
                    || byte == b'-'
                    || (dot && byte == b'.')
            };
            !part.is_empty() && part.bytes().all(allowed)
        };
        match text.rsplit_once('.') {
            _ if text.len() > INCARNATION_BYTES_MAX => {
                Err(RegisterError::IncarnationTooLong(text.to_owned()))
            }
            Some((instance, random)) if plain(instance, true) && plain(random, false) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(RegisterError::Incarnation(text.to_owned())),
        }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Serialize for Incarnation {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Incarnation {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// What a leader has published about itself: from then on clients and replicas come to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub epoch: Epoch,
    pub leader: Incarnation,
    /// Those of whom `w` have every acknowledged commit, besides the leader.
    pub voters: BTreeSet<Incarnation>,
    pub w: u32,
    pub timeline: Timeline,
    /// Where the leader's timeline begins.
    pub switch_lsn: Lsn,
    pub address: String,
    pub port: u16,
    /// Which database this is, as PostgreSQL numbers it: data with another number is foreign.
    pub system_identifier: String,
    pub version: String,
}

/// The register: the last started election, who won it, and what its leader published.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    pub epoch: Epoch,
    #[serde(default)]
    pub winner: Option<Incarnation>,
    #[serde(default)]
    pub record: Option<Record>,
}

impl Register {
    /// The register in a Lease whose [`REGISTER_ANNOTATION`] is `annotation`. A Lease without one has never seen an election.
    pub fn from_lease(annotation: Option<&str>) -> Result<Self, RegisterError> {
        let Some(text) = annotation else {
            return Ok(Self::default());
        };
        let register: Self = serde_json::from_str(text).map_err(RegisterError::Json)?;
        register.check()?;
        Ok(register)
    }

    /// The value of [`REGISTER_ANNOTATION`] that says this.
    #[must_use]
    pub fn to_annotation(&self) -> String {
        debug_assert!(
            self.check().is_ok(),
            "a register we write must be one we would read: {self:?}"
        );
        serde_json::to_string(self).expect("a register is plain data with string keys")
    }

    /// The published record of the current epoch; none while an election is open or its winner has not published.
    #[must_use]
    pub fn current_record(&self) -> Option<&Record> {
        self.record
            .as_ref()
            .filter(|record| record.epoch == self.epoch)
    }

    fn check(&self) -> Result<(), RegisterError> {
        let contradiction = |what: &str| Err(RegisterError::Contradiction(what.to_owned()));
        if self.epoch == Epoch::NONE && (self.winner.is_some() || self.record.is_some()) {
            return contradiction("there is a winner or a record, but no epoch");
        }
        let Some(record) = &self.record else {
            return Ok(());
        };
        if record.epoch == Epoch::NONE || record.epoch > self.epoch {
            return contradiction("the record's epoch is not one that was started");
        }
        if record.epoch == self.epoch && self.winner.as_ref() != Some(&record.leader) {
            return contradiction("the record's leader did not win its epoch");
        }
        if record.voters.contains(&record.leader) || record.w as usize > record.voters.len() {
            return contradiction("the record's voters cannot be a quorum of its leader");
        }
        Ok(())
    }
}

/// Why a register, or a word in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error("{0:?} is not a log position such as 0/16B3748")]
    Lsn(String),
    #[error(
        "{0:?} is not an incarnation such as cities-1.5f3a9c: lower case letters, digits, '-' and one last '.' before the random part"
    )]
    Incarnation(String),
    #[error(
        "incarnation {0:?} is longer than {INCARNATION_BYTES_MAX} bytes, which PostgreSQL would cut: use a shorter name for the Database"
    )]
    IncarnationTooLong(String),
    #[error(
        "the annotation {REGISTER_ANNOTATION} is not a register; restore it, or remove it so that the last primary publishes itself again"
    )]
    Json(#[source] serde_json::Error),
    #[error(
        "the register contradicts itself: {0}; restore it, or remove the annotation {REGISTER_ANNOTATION} so that the last primary publishes itself again"
    )]
    Contradiction(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{"epoch":1,"winner":"cities-1.5f3a9c","record":{"epoch":1,"leader":"cities-1.5f3a9c","voters":[],"w":0,"timeline":1,"switchLsn":"0/0","address":"127.71.0.4","port":5432,"systemIdentifier":"7444000000000000001","version":"15.18"}}"#;

    #[test]
    fn the_document_of_the_contract_survives_a_round_trip_byte_for_byte() {
        let register = Register::from_lease(Some(EXAMPLE)).unwrap();
        assert_eq!(register.to_annotation(), EXAMPLE);
        assert_eq!(
            register.current_record().unwrap().leader.instance(),
            "cities-1"
        );
    }

    #[test]
    fn a_lease_without_annotation_has_never_seen_an_election() {
        let register = Register::from_lease(None).unwrap();
        assert_eq!(
            (register.epoch, register.winner, register.record),
            (Epoch::NONE, None, None)
        );
    }

    #[test]
    fn a_register_edited_by_hand_is_refused_with_what_to_do() {
        let cases = [
            ("", "not a register"),
            ("{}", "not a register"),
            ("[]", "not a register"),
            (r#"{"epoch":-1}"#, "not a register"),
            (r#"{"epoch":1,"winner":"Cities 1"}"#, "not a register"),
            (r#"{"epoch":0,"winner":"cities-1.a"}"#, "no epoch"),
        ];
        for (text, message) in cases {
            let error = Register::from_lease(Some(text)).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        let broken = [
            EXAMPLE.replacen(r#""epoch":1"#, r#""epoch":0"#, 1),
            EXAMPLE.replacen(
                r#""winner":"cities-1.5f3a9c""#,
                r#""winner":"cities-2.5f3a9c""#,
                1,
            ),
            EXAMPLE.replace(r#""record":{"epoch":1"#, r#""record":{"epoch":2"#),
            EXAMPLE.replace(r#""w":0"#, r#""w":1"#),
            EXAMPLE.replace(r#""voters":[]"#, r#""voters":["cities-1.5f3a9c"]"#),
            EXAMPLE.replace("0/0", "0-0"),
        ];
        for text in broken {
            Register::from_lease(Some(&text)).expect_err(&text);
        }
    }

    #[test]
    fn a_record_of_an_older_epoch_is_not_current() {
        let open = EXAMPLE
            .replacen(r#""epoch":1"#, r#""epoch":2"#, 1)
            .replacen(r#""winner":"cities-1.5f3a9c""#, r#""winner":null"#, 1);
        let register = Register::from_lease(Some(&open)).unwrap();
        assert!(register.record.is_some() && register.current_record().is_none());
    }

    #[test]
    fn positions_are_written_as_postgresql_writes_them() {
        for (text, value) in [
            ("0/0", 0),
            ("0/16B3748", 0x16B_3748),
            ("16/B374D848", 0x16_B374_D848),
            ("FFFFFFFF/FFFFFFFF", u64::MAX),
        ] {
            assert_eq!(text.parse::<Lsn>().unwrap(), Lsn(value));
            assert_eq!(Lsn(value).to_string(), text);
        }
        for text in [
            "",
            "/",
            "0",
            "0/",
            "/0",
            "0/0/0",
            "+1/0",
            "g/0",
            "123456789/0",
            "0x1/0",
            " 0/0",
        ] {
            text.parse::<Lsn>().expect_err(text);
        }
    }

    #[test]
    fn incarnations_know_their_instance_and_stay_within_application_name() {
        assert_eq!(
            "cities.eu-12.00ff"
                .parse::<Incarnation>()
                .unwrap()
                .instance(),
            "cities.eu-12"
        );
        for text in [
            "",
            "cities-1",
            ".a",
            "cities-1.",
            "Cities-1.a",
            "cities 1.a",
            "cities-1.a'b",
            "cities-1.a\n",
        ] {
            text.parse::<Incarnation>().expect_err(text);
        }
        assert!(Incarnation::new(&"x".repeat(56), "5f3a9c").is_ok());
        assert!(matches!(
            Incarnation::new(&"x".repeat(57), "5f3a9c"),
            Err(RegisterError::IncarnationTooLong(_))
        ));
    }
}
