//! Decisions as tables and stories: a World by hand, the decision beside it.

mod golden;
mod lifecycle;
mod simulated;
mod troubles;

use std::collections::BTreeMap;

use geodb_api::labels;
use geodb_api::names::{self, Credential};
use geodb_api::v2::Database;
use jiff::Timestamp;
use serde_json::json;

use crate::world::{Claim, Config, Pod, Register, Seen, World};

pub const UID: &str = "11111111-aaaa-4bbb-8ccc-222222222222";

pub fn now() -> Timestamp {
    "2031-05-06T07:08:09Z".parse().expect("a timestamp")
}

/// A Database as the API server shows it right after it was created and our finalizer was set.
pub fn harbours(replicas: u32) -> World {
    let database: Database = serde_json::from_value(json!({
        "apiVersion": "stable.imaginedata.com/v2",
        "kind": "Database",
        "metadata": { "name": "harbours", "namespace": "coast", "uid": UID, "generation": 1, "finalizers": [labels::FINALIZER] },
        "spec": { "replicas": replicas, "storage": { "size": "2Gi" }, "database": "ports", "owner": "pilot" },
    }))
    .expect("a Database");
    World {
        config: Config {
            default_image: "example/postgis:15-3.3".to_owned(),
            agent_image: "geodb:test".to_owned(),
        },
        database,
        register: Seen::Absent,
        credentials: Credential::ALL
            .into_iter()
            .map(|credential| (credential, Seen::Absent))
            .collect(),
        authority_pem: None,
        pods: Vec::new(),
        claims: Vec::new(),
    }
}

/// The same, running: all instances ready, the first one primary.
pub fn running(replicas: u32) -> World {
    let mut world = harbours(replicas);
    world.credentials = all_present();
    world.authority_pem = Some("PEM".to_owned());
    world.register = Seen::Present(Register {
        epoch: 1,
        primary: Some("harbours-1".to_owned()),
        version: Some("15.18".to_owned()),
    });
    for serial in 1..=replicas {
        world.claims.push(claim(serial));
        world
            .pods
            .push(pod(serial, if serial == 1 { "primary" } else { "replica" }));
    }
    let decision = crate::decide(&world, now());
    world.database.status = Some(decision.status);
    world
}

pub fn all_present() -> BTreeMap<Credential, Seen<()>> {
    Credential::ALL
        .into_iter()
        .map(|credential| (credential, Seen::Present(())))
        .collect()
}

pub fn claim(serial: u32) -> Claim {
    Claim {
        name: names::instance("harbours", serial),
        uid: format!("claim-{serial}"),
        resource_version: "7".to_owned(),
        database_uid: UID.to_owned(),
        terminating: false,
        removal_requested: false,
        requested: Some("2Gi".parse().expect("a size")),
    }
}

pub fn pod(serial: u32, role: &str) -> Pod {
    Pod {
        name: names::instance("harbours", serial),
        uid: format!("pod-{serial}"),
        resource_version: "9".to_owned(),
        database_uid: UID.to_owned(),
        terminating: false,
        ended: false,
        ready: true,
        waiting_for: None,
        role: Some(role.to_owned()),
    }
}
