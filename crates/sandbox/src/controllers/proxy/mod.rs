//! The Service proxy: every Service with an address of ours answers there, over TCP, with one of its ready endpoints.
//!
//! A Service nobody is ready for has no listener, so clients are refused at once, as kube-proxy rejects them. UDP, session affinity
//! and node ports are not done here.

mod frontend;
mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cache::Cache;
use super::worker::{self, Controller, Decision, Failure};
use frontend::Frontend;
pub use table::ServiceRange;
use table::{Route, Table};
pub(crate) use table::{belongs, cluster_address, is_ready};

/// Connections through all Services together. Each costs two descriptors; a process commonly may have a thousand to a million, and one
/// that waits here waits in the listener's backlog, where it harms nobody.
pub(crate) const CONNECTIONS_LIMIT: usize = 16_384;

pub(crate) struct Proxy {
    pub range: ServiceRange,
    pub services: Cache<Service>,
    pub slices: Cache<EndpointSlice>,
    pub cancel: CancellationToken,
    pub tasks: TaskTracker,
    pub connections: Arc<Semaphore>,
    pub frontends: Mutex<BTreeMap<SocketAddr, Open>>,
}

/// A frontend and the route it was given last.
pub(crate) struct Open {
    frontend: Arc<Frontend>,
    route: Route,
}

#[derive(Debug)]
pub(crate) enum Action {
    Follow { address: SocketAddr, route: Route },
    Close { address: SocketAddr },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Follow { address, .. } | Action::Close { address } => address.to_string(),
        }
    }
}

fn decide(table: Table, open: &BTreeMap<SocketAddr, Route>) -> Vec<Action> {
    let gone = open.keys().filter(|address| !table.contains_key(address));
    let mut actions: Vec<Action> = gone
        .map(|address| Action::Close { address: *address })
        .collect();
    let changed = table
        .into_iter()
        .filter(|(address, route)| open.get(address) != Some(route));
    actions.extend(changed.map(|(address, route)| Action::Follow { address, route }));
    actions
}

impl Controller for Proxy {
    const NAME: &'static str = "proxy";
    type Action = Action;

    fn synced(&self) -> bool {
        self.services.synced() && self.slices.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        let table = table::table(self.range, &self.services.all(), &self.slices.all());
        let open = self
            .frontends
            .lock()
            .iter()
            .map(|(address, open)| (*address, open.route.clone()))
            .collect();
        Decision::of(decide(table, &open))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Close { address } => drop(self.frontends.lock().remove(address)),
            Action::Follow { address, route } => {
                let present = self
                    .frontends
                    .lock()
                    .get(address)
                    .map(|open| open.frontend.clone());
                let frontend = present.unwrap_or_else(|| {
                    Arc::new(Frontend::new(
                        *address,
                        &self.cancel,
                        &self.tasks,
                        self.connections.clone(),
                    ))
                });
                let followed = frontend.follow(route.clone()).await;
                followed.map_err(|source| Failure::Files {
                    what: format!("listen on {address} for a Service"),
                    source,
                })?;
                self.frontends.lock().insert(
                    *address,
                    Open {
                        frontend,
                        route: route.clone(),
                    },
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn route(ready: &[&str], known: &[&str]) -> Route {
        Route {
            ready: ready.iter().map(|text| address(text)).collect(),
            known: known.iter().map(|text| address(text)).collect(),
        }
    }

    #[test]
    fn frontends_follow_the_table() {
        let front = address("127.71.128.1:80");
        let one = route(&["127.71.2.1:80"], &["127.71.2.1:80"]);
        let nobody = route(&[], &["127.71.2.1:80"]);
        let told = |table: &[(SocketAddr, Route)], open: &[(SocketAddr, Route)]| {
            format!(
                "{:?}",
                decide(
                    table.iter().cloned().collect(),
                    &open.iter().cloned().collect()
                )
            )
        };
        assert!(told(&[(front, one.clone())], &[]).starts_with("[Follow"));
        assert_eq!(
            told(&[(front, one.clone())], &[(front, one.clone())]),
            "[]",
            "nothing changed, nothing done"
        );
        assert!(told(&[(front, nobody.clone())], &[(front, one.clone())]).starts_with("[Follow"));
        assert_eq!(told(&[(front, nobody.clone())], &[(front, nobody)]), "[]");
        assert!(told(&[], &[(front, one)]).starts_with("[Close"));
    }
}
