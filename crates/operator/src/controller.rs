//! The controller of Databases: observe, decide, and nothing else; the kit acts and reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use geodb_api::names::Credential;
use geodb_api::v2::{Database, DatabaseStatus};
use geodb_kit::Key;
use geodb_kit::clock::{Clock, SystemClock};
use geodb_kit::events::{Note, Weight};
use geodb_kit::executor::{StepError, Target};
use geodb_kit::operator::{Decision, Operator, Report, Wait};
use geodb_kit::outcome::PassError;
use geodb_plan::{Config, EventKind, Seen, Step, Trouble, World};
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use serde_json::Value;

use crate::caches::Caches;
use crate::credentials::{self, Contents, Subject};
use crate::observe::observe;
use crate::translate;

/// What was being done when an Event happened; the reason says the rest.
const ACTION: &str = "Reconcile";

pub struct DatabaseController {
    pub client: Client,
    pub caches: Caches,
    pub config: Config,
}

/// What a pass decides on: the plan's World, and secret values made in advance for what is missing, so that deciding needs no randomness.
pub struct Observed {
    world: World,
    database: Arc<Database>,
    material: BTreeMap<Credential, Contents>,
}

impl Operator for DatabaseController {
    type World = Observed;

    async fn observe(&self, key: &Key) -> Result<Option<Observed>, PassError> {
        let Some(database) = self.caches.databases.get(key) else {
            return Ok(None);
        };
        let (world, authority) = observe(&database, &self.caches, &self.client, &self.config)
            .await
            .map_err(|error| PassError::new("Observe", error))?;
        let material = material(&world, authority.as_ref())?;
        Ok(Some(Observed {
            world,
            database,
            material,
        }))
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let decision = geodb_plan::decide(&observed.world, now);
        let ends = decision.steps.contains(&Step::RemoveFinalizer);
        let made_credentials = decision
            .steps
            .iter()
            .any(|step| matches!(step, Step::MakeCredential(_)));
        // Secrets are not watched, so nothing else would wake us for the next step.
        let next = if made_credentials {
            Wait::Until {
                duration: Duration::ZERO,
                reason: "credentials were made in this pass".to_owned(),
            }
        } else {
            Wait::Nothing
        };
        Decision {
            parts: translate::parts(&observed.world, &decision.steps, &observed.material),
            report: if ends {
                None
            } else {
                report(&observed.database, &decision.status)
            },
            events: decision
                .events
                .into_iter()
                .map(|event| note(&observed.database, event))
                .collect(),
            next,
        }
    }

    fn explain(&self, status: &mut Value, errors: &[StepError], now: Timestamp) {
        let foreign = errors
            .iter()
            .find(|error| matches!(error, StepError::Foreign { .. }));
        let Some(error) = foreign else { return };
        let Ok(mut typed) = serde_json::from_value::<DatabaseStatus>(status.clone()) else {
            return;
        };
        geodb_plan::explain(
            &mut typed,
            &Trouble::ForeignObject {
                description: error.target().to_string(),
            },
            now,
        );
        if let Ok(explained) = serde_json::to_value(&typed) {
            *status = explained;
        }
    }
}

/// Secret values for what is missing. Certificates are signed by the authority that is stored, never by a fresh one.
fn material(
    world: &World,
    authority: Option<&Contents>,
) -> Result<BTreeMap<Credential, Contents>, PassError> {
    let missing: Vec<Credential> = world
        .credentials
        .iter()
        .filter(|(_, seen)| **seen == Seen::Absent)
        .map(|(credential, _)| *credential)
        .collect();
    if missing.is_empty() || world.being_deleted() {
        return Ok(BTreeMap::new());
    }
    let subject = Subject {
        database: world.name(),
        namespace: world.namespace(),
        owner: &world.database.spec.owner,
        app_database: &world.database.spec.database,
    };
    let now = SystemClock.now();
    let mut material = BTreeMap::new();
    for credential in missing {
        let signed = matches!(credential, Credential::Server | Credential::Replication);
        if signed && authority.is_none() {
            continue;
        }
        let contents = credentials::make(credential, &subject, authority, now)
            .map_err(|error| PassError::new("Credentials", error))?;
        material.insert(credential, contents);
    }
    Ok(material)
}

fn report(database: &Database, status: &DatabaseStatus) -> Option<Report> {
    match (serde_json::to_value(database), serde_json::to_value(status)) {
        (Ok(live), Ok(status)) => Some(Report {
            target: Target::of(database),
            live,
            status,
        }),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "a Database does not serialise; this is a bug");
            None
        }
    }
}

/// The same turn is told again only when the Database has moved on since.
fn note(database: &Database, event: geodb_plan::Event) -> Note {
    let weight = match event.kind {
        EventKind::Normal => Weight::Normal,
        EventKind::Warning => Weight::Warning,
    };
    let version = database.resource_version().unwrap_or_default();
    Note::about(database, weight, event.reason.as_str(), ACTION, event.note).occurrence(version)
}
