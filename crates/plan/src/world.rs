//! What a pass knows. Only what decisions need, so that a World is cheap to build by hand in a test.

use std::collections::BTreeMap;

use geodb_api::names::Credential;
use geodb_api::quantity::StorageSize;
use geodb_api::v2::Database;

/// "Not looked up" is not "not there".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<T> {
    Unknown,
    Absent,
    Present(T),
}

impl<T> Seen<T> {
    pub fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// What the installation decides for all databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// For Databases that name no image.
    pub default_image: String,
    /// Our own image; its init container brings the agent into the pod.
    pub agent_image: String,
}

#[derive(Clone, Debug)]
pub struct World {
    pub config: Config,
    pub database: Database,
    pub register: Seen<Register>,
    /// Which of the Secrets that we make once are there. Missing keys count as `Unknown`.
    pub credentials: BTreeMap<Credential, Seen<()>>,
    /// Certificate of the database's own authority, once it is made.
    pub authority_pem: Option<String>,
    /// All pods labelled with the Database's name, whoever's UID they carry.
    pub pods: Vec<Pod>,
    /// All claims labelled with the Database's name, whoever's UID they carry.
    pub claims: Vec<Claim>,
}

/// What the operator reads in the register; it never writes there after creating it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    pub epoch: u64,
    /// The instance of the published record: the primary.
    pub primary: Option<String>,
    pub version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// UID of the Database it was made for.
    pub database_uid: String,
    pub terminating: bool,
    /// It ended and will not run again (evicted, for example).
    pub ended: bool,
    pub ready: bool,
    /// Why it is not ready, in a few words, as the node reports it.
    pub waiting_for: Option<String>,
    /// The role label as it is.
    pub role: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// UID of the Database it was made for.
    pub database_uid: String,
    pub terminating: bool,
    pub removal_requested: bool,
    /// The size it asks for now.
    pub requested: Option<StorageSize>,
}

impl World {
    pub fn name(&self) -> &str {
        self.database.metadata.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.database
            .metadata
            .namespace
            .as_deref()
            .unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.database.metadata.uid.as_deref().unwrap_or_default()
    }

    pub fn generation(&self) -> i64 {
        self.database.metadata.generation.unwrap_or_default()
    }

    pub fn being_deleted(&self) -> bool {
        self.database.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self) -> bool {
        let finalizers = self
            .database
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default();
        finalizers
            .iter()
            .any(|finalizer| finalizer == geodb_api::labels::FINALIZER)
    }

    pub fn image(&self) -> &str {
        self.database
            .spec
            .image
            .as_deref()
            .unwrap_or(&self.config.default_image)
    }

    pub fn own_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods
            .iter()
            .filter(|pod| pod.database_uid == self.uid())
    }

    pub fn own_claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims
            .iter()
            .filter(|claim| claim.database_uid == self.uid())
    }

    /// The published primary's instance.
    pub fn primary(&self) -> Option<&str> {
        self.register
            .present()
            .and_then(|register| register.primary.as_deref())
    }

    /// Whether this database was ever made: then nothing may make it anew.
    pub fn was_initialised(&self) -> bool {
        let recorded = self
            .database
            .status
            .as_ref()
            .is_some_and(|status| status.epoch > 0);
        recorded
            || self
                .register
                .present()
                .is_some_and(|register| register.epoch > 0)
    }
}
