//! What holds for any requests in any order.

use std::collections::BTreeMap;

use http::Method;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{CONFIG_MAPS, DEFINITIONS, Server, custom, lines, pod, request, with_body};
use geodb_sandbox::core::{EventType, Response};

/// Any JSON, with the words of the API among its keys so that it gets far.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9./-]{0,8}".prop_map(Value::from)
    ];
    let key = prop_oneof![
        Just("metadata".to_owned()),
        Just("spec".to_owned()),
        Just("status".to_owned()),
        Just("name".to_owned()),
        Just("namespace".to_owned()),
        Just("labels".to_owned()),
        Just("finalizers".to_owned()),
        Just("ownerReferences".to_owned()),
        Just("managedFields".to_owned()),
        Just("containers".to_owned()),
        Just("ports".to_owned()),
        Just("op".to_owned()),
        Just("path".to_owned()),
        Just("kind".to_owned()),
        Just("apiVersion".to_owned()),
        Just("versions".to_owned()),
        Just("names".to_owned()),
        Just("selector".to_owned()),
        Just("template".to_owned()),
        Just("resourceVersion".to_owned()),
        Just("spec.replicas".to_owned()),
        "[a-z]{1,6}",
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        ]
    })
}

fn any_path() -> impl Strategy<Value = String> {
    let resource = prop_oneof![
        Just("/api/v1/namespaces/default/configmaps"),
        Just("/api/v1/namespaces/default/pods"),
        Just("/api/v1/namespaces/default/services"),
        Just("/api/v1/namespaces/default/secrets"),
        Just("/api/v1/namespaces"),
        Just("/api/v1/nodes"),
        Just("/api/v1/namespaces/default/persistentvolumeclaims"),
        Just("/api/v1/namespaces/default/events"),
        Just("/apis/events.k8s.io/v1/namespaces/default/events"),
        Just("/apis/batch/v1/namespaces/default/jobs"),
        Just("/apis/apps/v1/namespaces/default/deployments"),
        Just("/apis/coordination.k8s.io/v1/namespaces/default/leases"),
        Just("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
        Just("/apis/ex.com/v1/namespaces/default/foos"),
        Just("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        Just("/api/v1/pods"),
        Just("/apis/policy/v1/namespaces/default/poddisruptionbudgets"),
        Just("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ];
    let rest = prop_oneof![
        Just(""),
        Just("/a"),
        Just("/p"),
        Just("/foos.ex.com"),
        Just("/a/status"),
        Just("/p/binding"),
        Just("/p/eviction"),
        Just("/p/log"),
        Just("/a/scale"),
        Just("/default/finalize")
    ];
    let query = prop_oneof![
        4 => Just(String::new()), 1 => Just("?watch=true".to_owned()), 1 => Just("?dryRun=All".to_owned()), 1 => Just("?fieldManager=m".to_owned()), 1 => Just("?fieldManager=m&force=true".to_owned()), 1 => Just("?fieldValidation=Strict".to_owned()),
        1 => "[?]labelSelector=[a-z!=<>(), ]{0,10}", 1 => "[?]fieldSelector=[a-z.=!,]{0,12}", 1 => "[?]continue=[A-Za-z0-9]{0,12}", 1 => "[?]resourceVersion=[0-9]{1,3}(&resourceVersionMatch=Exact)?", 1 => "[?]limit=[0-9-]{1,2}",
    ];
    (resource, rest, query).prop_map(|(resource, rest, query)| format!("{resource}{rest}{query}"))
}

fn any_request() -> impl Strategy<Value = geodb_sandbox::core::Request> {
    let method = prop_oneof![
        Just(Method::GET),
        Just(Method::POST),
        Just(Method::PUT),
        Just(Method::PATCH),
        Just(Method::DELETE)
    ];
    let content_type = prop_oneof![
        Just("application/json"),
        Just("application/json-patch+json"),
        Just("application/merge-patch+json"),
        Just("application/strategic-merge-patch+json"),
        Just("application/apply-patch+yaml"),
        Just("application/yaml"),
        Just(""),
    ];
    let accept = prop_oneof![4 => Just(""), 1 => Just("application/json;as=Table;v=v1;g=meta.k8s.io"), 1 => Just("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let body = prop_oneof![
        3 => any_json(), 1 => Just(pod("p")), 1 => Just(custom::definition()),
        2 => any_json().prop_map(|spec| json!({"apiVersion": "ex.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": spec})),
        2 => any_json().prop_map(|spec| json!({"metadata": {"name": "a"}, "spec": spec})), 1 => any_json().prop_map(|metadata| json!({"metadata": metadata})),
        1 => any_json().prop_map(|value| json!([{"op": "add", "path": "/spec", "value": value}])),
    ];
    (method, any_path(), content_type, accept, body).prop_map(
        |(method, path, content_type, accept, body)| {
            let mut request = with_body(request(method, &path), content_type, &body);
            request.accept = accept.to_owned();
            request
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Nothing a client sends makes the server panic, and a refusal has changed nothing.
    #[test]
    fn no_request_breaks_the_server(requests in prop::collection::vec(any_request(), 1..25)) {
        let mut server = Server::new();
        server.post(DEFINITIONS, custom::definition()).created();
        server.post(CONFIG_MAPS, crate::config_map("a")).created();
        server.post(crate::PODS, pod("p")).created();
        for request in requests {
            let before = server.state.revision();
            let count = server.changes.len();
            let response = server.handle(&request);
            let revisions: Vec<u64> = server.changes[count..].iter().map(|change| change.revision).collect();
            prop_assert_eq!(revisions, (before + 1..=server.state.revision()).collect::<Vec<_>>(), "every revision is one change");
            if let Response::Json { status, .. } = response && status >= 400 {
                prop_assert_eq!(server.changes.len(), count);
            }
        }
    }

    /// A client that lists and then watches sees what one sees that lists later: from any revision, with or without a selector.
    #[test]
    fn a_watch_is_the_difference_of_two_lists(steps in prop::collection::vec((0..4_u8, 0..4_u8, any::<bool>()), 1..40), from in any::<prop::sample::Index>(), selects in any::<bool>()) {
        let mut server = Server::new();
        let selector = if selects { "labelSelector=on=yes" } else { "" };
        let list = |server: &mut Server| -> (u64, BTreeMap<String, String>) {
            let reply = server.get(&format!("{CONFIG_MAPS}?{selector}")).ok();
            let items = reply.body["items"].as_array().unwrap().iter().map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item["metadata"]["resourceVersion"].as_str().unwrap().to_owned()));
            (reply.version().parse().unwrap(), items.collect())
        };
        let mut snapshots = vec![list(&mut server)];
        for (step, name, on) in steps {
            let name = format!("m{name}");
            let path = format!("{CONFIG_MAPS}/{name}");
            let body = json!({"metadata": {"name": name, "labels": {"on": if on { "yes" } else { "no" }}}, "data": {"step": step.to_string()}});
            match step {
                0 => server.post(CONFIG_MAPS, body),
                1 => server.put(&path, body),
                2 => server.delete(&path, Value::Null),
                _ => server.merge(&path, body),
            };
            snapshots.push(list(&mut server));
        }
        let (revision, mut view) = snapshots[from.index(snapshots.len())].clone();
        let watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={revision}&{selector}"));
        let mut last = revision;
        for event in &watch.initial {
            let name = event.object["metadata"]["name"].as_str().unwrap().to_owned();
            let version = event.object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let number: u64 = version.parse().unwrap();
            prop_assert!(number > last, "versions only grow: {:?}", lines(&watch.initial));
            last = number;
            match event.kind {
                EventType::Added => prop_assert!(view.insert(name, version).is_none()),
                EventType::Modified => prop_assert!(view.insert(name, version).is_some()),
                EventType::Deleted => prop_assert!(view.remove(&name).is_some()),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(view, list(&mut server).1);
    }
}
