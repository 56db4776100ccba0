//! The resource as users and the API server meet it.

use serde_json::{Value, json};

use crate::names::{self, Endpoint};
use crate::quantity::StorageSize;
use crate::v2::{Database, OnDelete};

fn smallest() -> Value {
    json!({
        "apiVersion": "stable.imaginedata.com/v2",
        "kind": "Database",
        "metadata": { "name": "harbours" },
        "spec": { "storage": { "size": "2Gi" } },
    })
}

#[test]
fn a_storage_size_is_all_a_user_has_to_say() {
    let database: Database = serde_json::from_value(smallest()).expect("the smallest Database");
    assert_eq!(database.spec.replicas, 3);
    assert_eq!(database.spec.database, "app");
    assert_eq!(database.spec.owner, "app");
    assert_eq!(database.spec.on_delete, OnDelete::Snapshot);
}

#[test]
fn every_field_is_documented_for_kubectl_explain() {
    fn undocumented(schema: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                let path = format!("{path}.{name}");
                if property.get("description").is_none() {
                    found.push(path.clone());
                }
                undocumented(property, &path, found);
            }
        }
    }
    let crd = serde_json::to_value(&crate::crds()[0]).expect("a CRD serialises");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut found = Vec::new();
    undocumented(schema, "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_crd_stays_far_below_what_kubectl_apply_can_carry() {
    for crd in crate::crds() {
        let bytes = serde_json::to_vec(&crd).expect("a CRD serialises").len();
        assert!(bytes <= 100 * 1024, "{} bytes", bytes);
    }
}

#[test]
fn sizes_compare_by_value_and_keep_their_spelling() {
    let size = |text: &str| text.parse::<StorageSize>();
    assert_eq!(size("1024Mi"), size("1Gi"));
    assert!(size("50Gi").unwrap() > size("50G").unwrap());
    assert_eq!(size("50G").unwrap().to_string(), "50G");
    for wrong in [
        "",
        "0",
        "-1Gi",
        "1.5Gi",
        "Gi",
        "10 Gi",
        "010Gi",
        "1Zi",
        "99999999999999999999Gi",
        "1Gi\n",
    ] {
        assert!(size(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn serials_are_read_back_only_from_our_own_names() {
    assert_eq!(
        names::serial("harbours", &names::instance("harbours", 12)),
        Some(12)
    );
    for other in [
        "harbours",
        "harbours-",
        "harbours-01",
        "harbours-1x",
        "harbours-rw",
        "harbour-1",
        "harbours-0",
        "harbours-99999999999",
    ] {
        assert_eq!(names::serial("harbours", other), None, "{other}");
    }
}

#[test]
fn endpoints_have_the_documented_names() {
    let all: Vec<String> = Endpoint::ALL
        .iter()
        .map(|endpoint| endpoint.service("harbours"))
        .collect();
    assert_eq!(all, ["harbours-rw", "harbours-ro", "harbours-r"]);
}

#[test]
fn no_format_makes_a_real_server_warn() {
    let text = serde_json::to_string(&crate::crds()).expect("CRDs serialise");
    assert!(
        !text.contains("uint"),
        "API servers know int32, int64, float and double only"
    );
}
