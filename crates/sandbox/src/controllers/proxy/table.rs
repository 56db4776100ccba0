//! From Services and EndpointSlices to "who listens where, and forwards to whom". Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::super::endpoints::SERVICE_NAME;

/// The Services' half of a sandbox's range `127.N.0.0/16`: everything from `127.N.128.0` up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    pub number: u8,
}

impl ServiceRange {
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let [first, second, third, _] = address.octets();
        first == 127 && second == self.number && third >= 128
    }
}

/// What one address and port of a Service leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// New connections go here, in turn. Empty: the connection is refused.
    pub ready: Vec<SocketAddr>,
    /// Connections to anything else are closed.
    pub known: BTreeSet<SocketAddr>,
}

pub(crate) type Table = BTreeMap<SocketAddr, Route>;

pub(crate) fn table(
    range: ServiceRange,
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
) -> Table {
    let mut table = Table::new();
    for service in services {
        let Some(address) = cluster_address(service).filter(|address| range.contains(*address))
        else {
            continue;
        };
        let ports = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default();
        let of_service: Vec<&EndpointSlice> = slices
            .iter()
            .map(Arc::as_ref)
            .filter(|slice| belongs(slice, service))
            .collect();
        for port in ports
            .iter()
            .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        {
            if let Ok(number) = u16::try_from(port.port) {
                table.insert(
                    SocketAddr::new(IpAddr::V4(address), number),
                    route(port, &of_service),
                );
            }
        }
    }
    table
}

pub(crate) fn cluster_address(service: &Service) -> Option<Ipv4Addr> {
    service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()
}

pub(crate) fn belongs(slice: &EndpointSlice, service: &Service) -> bool {
    slice.metadata.namespace == service.metadata.namespace
        && slice.metadata.deletion_timestamp.is_none()
        && slice
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(SERVICE_NAME))
            == service.metadata.name.as_ref()
}

/// An endpoint without conditions is ready: unknown means ready in this API.
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint
        .conditions
        .as_ref()
        .and_then(|conditions| conditions.ready)
        .unwrap_or(true)
}

fn serves_while_terminating(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| {
        conditions.serving == Some(true) && conditions.terminating == Some(true)
    })
}

fn route(port: &ServicePort, slices: &[&EndpointSlice]) -> Route {
    let mut ready = BTreeSet::new();
    let mut leaving = BTreeSet::new();
    let mut known = BTreeSet::new();
    for slice in slices {
        let wanted = port.name.as_deref().unwrap_or_default();
        let number = slice
            .ports
            .iter()
            .flatten()
            .find(|candidate| candidate.name.as_deref().unwrap_or_default() == wanted)
            .and_then(|candidate| u16::try_from(candidate.port?).ok());
        let Some(number) = number else { continue };
        for endpoint in slice.endpoints.iter() {
            for address in endpoint
                .addresses
                .iter()
                .filter_map(|address| address.parse::<IpAddr>().ok())
            {
                let target = SocketAddr::new(address, number);
                known.insert(target);
                if is_ready(endpoint) {
                    ready.insert(target);
                } else if serves_while_terminating(endpoint) {
                    leaving.insert(target);
                }
            }
        }
    }
    // As kube-proxy does: those on their way out serve when nobody else does.
    let chosen = if ready.is_empty() { leaving } else { ready };
    Route {
        ready: chosen.into_iter().collect(),
        known,
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(ip: &str, ports: Value) -> Arc<Service> {
        let value = json!({"metadata": {"name": "web", "namespace": "grove"}, "spec": {"clusterIP": ip, "ports": ports}});
        Arc::new(serde_json::from_value(value).expect("a service"))
    }

    fn slice(ports: Value, endpoints: Value) -> Arc<EndpointSlice> {
        let value = json!({"metadata": {"name": "web-x", "namespace": "grove", "labels": {SERVICE_NAME: "web"}},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
        Arc::new(serde_json::from_value(value).expect("a slice"))
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    const RANGE: ServiceRange = ServiceRange { number: 71 };

    #[test]
    fn new_connections_go_to_the_ready_and_old_ones_stay_with_the_known() {
        let services = [service(
            "127.71.128.9",
            json!([{"port": 5432, "targetPort": 5432}]),
        )];
        let slices = [slice(
            json!([{"name": "", "port": 5432, "protocol": "TCP"}]),
            json!([{"addresses": ["127.71.2.1"], "conditions": {"ready": true}},
                   {"addresses": ["127.71.2.2"], "conditions": {"ready": false}},
                   {"addresses": ["127.71.2.3"]}]),
        )];
        let table = table(RANGE, &services, &slices);
        let route = &table[&address("127.71.128.9:5432")];
        assert_eq!(
            route.ready,
            [address("127.71.2.1:5432"), address("127.71.2.3:5432")]
        );
        assert_eq!(route.known.len(), 3);
    }

    #[test]
    fn ports_meet_by_name() {
        let services = [service(
            "127.71.128.9",
            json!([{"name": "sql", "port": 5432}, {"name": "web", "port": 80}]),
        )];
        let slices = [slice(
            json!([{"name": "web", "port": 8080}]),
            json!([{"addresses": ["127.71.2.1"]}]),
        )];
        let table = table(RANGE, &services, &slices);
        assert_eq!(
            table[&address("127.71.128.9:5432")],
            Route::default(),
            "nobody serves it, so it is refused"
        );
        assert_eq!(
            table[&address("127.71.128.9:80")].ready,
            [address("127.71.2.1:8080")]
        );
    }

    #[test]
    fn terminating_endpoints_serve_when_nobody_else_does() {
        let services = [service("127.71.128.9", json!([{"port": 80}]))];
        let leaving = json!({"addresses": ["127.71.2.2"], "conditions": {"ready": false, "serving": true, "terminating": true}});
        let ports = json!([{"port": 80}]);
        let alone = table(RANGE, &services, &[slice(ports.clone(), json!([leaving]))]);
        assert_eq!(
            alone[&address("127.71.128.9:80")].ready,
            [address("127.71.2.2:80")]
        );
        let both = table(
            RANGE,
            &services,
            &[slice(
                ports,
                json!([leaving, {"addresses": ["127.71.2.1"]}]),
            )],
        );
        assert_eq!(
            both[&address("127.71.128.9:80")].ready,
            [address("127.71.2.1:80")]
        );
    }

    #[test]
    fn foreign_and_headless_addresses_are_not_listened_on() {
        for ip in [
            "None",
            "10.96.0.1",
            "127.72.128.1",
            "127.71.2.1",
            "127.0.0.1",
            "",
        ] {
            assert!(
                table(RANGE, &[service(ip, json!([{"port": 80}]))], &[]).is_empty(),
                "{ip}"
            );
        }
        let udp = service("127.71.128.9", json!([{"port": 53, "protocol": "UDP"}]));
        assert!(table(RANGE, &[udp], &[]).is_empty());
    }
}
