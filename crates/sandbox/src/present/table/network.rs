//! Tables of what pods are reached by: Services, Endpoints, EndpointSlices, NetworkPolicies.

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{self, array, text};
use super::{AGE, NAME, Printer, text as column, wide};

/// How many ports or addresses a cell shows before it says "more".
const ENTRIES_SHOWN: usize = 3;

pub(super) fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "Service" => &SERVICE,
        "Endpoints" => &ENDPOINTS,
        "EndpointSlice" => &ENDPOINT_SLICE,
        "NetworkPolicy" => &NETWORK_POLICY,
        _ => return None,
    })
}

const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        column("Type", "How the service is reached."),
        column("Cluster-IP", "Its address, or None."),
        column("External-IP", "Its addresses outside the cluster."),
        column("Port(s)", "Its ports and their protocols."),
        AGE,
        wide("Selector", "The labels of the pods behind it."),
    ],
    cells: service,
};

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = text(object, "/spec/type");
    let ports = array(object, "/spec/ports").iter().map(|port| {
        let number = port.get("port").map(cell::scalar).unwrap_or_default();
        let protocol = text(port, "/protocol");
        match cell::integer(port, "/nodePort") {
            0 => format!("{number}/{protocol}"),
            node => format!("{number}:{node}/{protocol}"),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        cell::name(object),
        kind.into(),
        cell::text_or_none(object, "/spec/clusterIP"),
        external_addresses(object, kind).into(),
        cell::or_none(&ports).into(),
        cell::age(object, now),
        cell::labels(object.pointer("/spec/selector")).into(),
    ]
}

fn external_addresses(object: &Value, kind: &str) -> String {
    let mut addresses = array(object, "/spec/externalIPs")
        .iter()
        .map(cell::scalar)
        .collect::<Vec<_>>();
    match kind {
        "ExternalName" => return text(object, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = array(object, "/status/loadBalancer/ingress");
            let address = |entry: &Value| match text(entry, "/ip") {
                "" => text(entry, "/hostname").to_owned(),
                address => address.to_owned(),
            };
            addresses.extend(ingress.iter().map(address));
            if addresses.is_empty() {
                return "<pending>".to_owned();
            }
        }
        _ => {}
    }
    cell::or_none(&addresses.join(",")).to_owned()
}

const ENDPOINTS: Printer = Printer {
    columns: &[
        NAME,
        column("Endpoints", "Addresses and ports that are ready."),
        AGE,
    ],
    cells: |object, now| {
        let mut entries = Vec::new();
        for subset in array(object, "/subsets") {
            for address in array(subset, "/addresses") {
                let ports = array(subset, "/ports");
                if ports.is_empty() {
                    entries.push(text(address, "/ip").to_owned());
                }
                entries.extend(ports.iter().map(|port| {
                    format!("{}:{}", text(address, "/ip"), cell::integer(port, "/port"))
                }));
            }
        }
        vec![
            cell::name(object),
            cell::shortened(&entries, ENTRIES_SHOWN).into(),
            cell::age(object, now),
        ]
    },
};

const ENDPOINT_SLICE: Printer = Printer {
    columns: &[
        NAME,
        column("AddressType", "Which kind of addresses it holds."),
        column("Ports", "The ports every endpoint has."),
        column("Endpoints", "The endpoints' addresses."),
        AGE,
    ],
    cells: endpoint_slice,
};

fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| match port.get("port") {
        Some(number) if !number.is_null() => cell::scalar(number),
        _ => "*".to_owned(),
    };
    let ports = match object.get("ports").and_then(Value::as_array) {
        Some(ports) if !ports.is_empty() => {
            cell::shortened(&ports.iter().map(port).collect::<Vec<_>>(), ENTRIES_SHOWN)
        }
        _ => "<unset>".to_owned(),
    };
    let addresses = array(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| array(endpoint, "/addresses"))
        .map(cell::scalar);
    let addresses = match addresses.collect::<Vec<_>>() {
        addresses if addresses.is_empty() => "<unset>".to_owned(),
        addresses => cell::shortened(&addresses, ENTRIES_SHOWN),
    };
    vec![
        cell::name(object),
        text(object, "/addressType").into(),
        ports.into(),
        addresses.into(),
        cell::age(object, now),
    ]
}

const NETWORK_POLICY: Printer = Printer {
    columns: &[NAME, column("Pod-Selector", "The pods it is about."), AGE],
    cells: |object, now| {
        let selector = cell::selector(object.pointer("/spec/podSelector"));
        vec![cell::name(object), selector.into(), cell::age(object, now)]
    },
};
