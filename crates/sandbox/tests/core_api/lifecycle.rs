//! From creation to the end: preconditions, finalizers, grace, namespaces.

use serde_json::{Value, json};

use crate::{CONFIG_MAPS, PODS, Server, config_map, pod};

#[test]
fn deleting_answers_with_what_went() {
    let mut server = Server::new();
    let uid = server.post(CONFIG_MAPS, config_map("w1")).created().body["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{CONFIG_MAPS}/w1");
    let foreign = "11111111-1111-1111-1111-111111111111";
    let conflict = server.delete(&path, json!({"preconditions": {"uid": foreign}}));
    let conflict = conflict.refused(409, &format!("Operation cannot be fulfilled on ConfigMap \"w1\": the UID in the precondition ({foreign}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"));
    assert_eq!(
        conflict.body["details"],
        json!({"name": "w1", "kind": "ConfigMap"})
    );
    assert!(
        server
            .delete(&path, json!({"preconditions": {"resourceVersion": "5"}}))
            .message()
            .contains("the ResourceVersion in the precondition (5) does not match")
    );
    server.delete(&path, json!({"propagationPolicy": "Foreground", "orphanDependents": true})).refused(422, "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Foreground\": orphanDependents and deletionPropagation cannot be both set");
    server.delete(&path, json!({"propagationPolicy": "Zork"})).refused(422, "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Zork\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"");
    server
        .delete(&format!("{path}?dryRun=All"), Value::Null)
        .ok();
    server.get(&path).ok();
    let gone = server
        .delete(&path, json!({"preconditions": {"uid": uid}}))
        .ok();
    assert_eq!(
        (&gone.body["kind"], &gone.body["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(
        gone.body["details"],
        json!({"name": "w1", "kind": "configmaps", "uid": uid})
    );
    server
        .delete(&path, Value::Null)
        .refused(404, "configmaps \"w1\" not found");
}

#[test]
fn finalizers_hold_an_object() {
    let mut server = Server::new();
    let mut map = config_map("g1");
    map["metadata"]["finalizers"] = json!(["x.example.com/y"]);
    server.post(CONFIG_MAPS, map).created();
    let path = format!("{CONFIG_MAPS}/g1");
    let marked = server.delete(&path, Value::Null).ok();
    assert_eq!(
        marked.body["metadata"]["deletionTimestamp"],
        "2026-11-15T20:06:00Z"
    );
    assert_eq!(marked.body["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = server.delete(&path, Value::Null).ok();
    assert_eq!(
        marked.version(),
        again.version(),
        "a second deletion changes nothing"
    );
    server.merge(&path, json!({"metadata": {"finalizers": ["x.example.com/y", "x.example.com/z"]}})).refused(422, "ConfigMap \"g1\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"x.example.com/z\"}");
    let before = server.changes.len();
    let last = server
        .merge(&path, json!({"metadata": {"finalizers": null}}))
        .ok();
    assert_eq!(
        last.version(),
        marked.version(),
        "the end has no version of its own in the answer"
    );
    server
        .get(&path)
        .refused(404, "configmaps \"g1\" not found");
    assert_eq!(server.changes.len(), before + 1);
    assert!(server.changes[before].new.is_none());
}

#[test]
fn propagation_is_written_as_finalizers() {
    let mut server = Server::new();
    server.post(CONFIG_MAPS, config_map("owner")).created();
    let path = format!("{CONFIG_MAPS}/owner");
    let foreground = server
        .delete(&path, json!({"propagationPolicy": "Foreground"}))
        .ok();
    assert_eq!(
        foreground.body["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    let orphan = server
        .delete(&path, json!({"propagationPolicy": "Orphan"}))
        .ok();
    assert_eq!(orphan.body["metadata"]["finalizers"], json!(["orphan"]));
    server
        .delete(&path, json!({"propagationPolicy": "Background"}))
        .ok();
    server
        .get(&path)
        .refused(404, "configmaps \"owner\" not found");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    server
        .post("/apis/batch/v1/namespaces/default/jobs", job)
        .created();
    let orphaned = server
        .delete("/apis/batch/v1/namespaces/default/jobs/j", Value::Null)
        .ok();
    assert_eq!(
        orphaned.body["metadata"]["finalizers"],
        json!(["orphan"]),
        "jobs orphan unless told otherwise"
    );
}

#[test]
fn a_scheduled_pod_has_time_to_end() {
    let mut server = Server::new();
    server.post(PODS, pod("pp")).created();
    let unscheduled = server.delete(&format!("{PODS}/pp"), Value::Null).ok();
    let metadata = &unscheduled.body["metadata"];
    assert_eq!(
        (
            &unscheduled.body["kind"],
            &metadata["generation"],
            &metadata["deletionGracePeriodSeconds"]
        ),
        (&json!("Pod"), &json!(2), &json!(0))
    );
    server
        .get(&format!("{PODS}/pp"))
        .refused(404, "pods \"pp\" not found");

    server.post(PODS, pod("pq")).created();
    let path = format!("{PODS}/pq");
    let bound = server.post(&format!("{path}/binding"), json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pq"}, "target": {"kind": "Node", "name": "n1"}}));
    assert_eq!(
        (bound.status, &bound.body["status"]),
        (201, &json!("Success"))
    );
    let scheduled = server.get(&path).ok();
    assert_eq!(scheduled.body["spec"]["nodeName"], "n1");
    assert_eq!(
        scheduled.body["status"]["conditions"][0]["type"],
        "PodScheduled"
    );
    let twice = server.post(
        &format!("{path}/binding"),
        json!({"target": {"kind": "Node", "name": "n2"}}),
    );
    twice.refused(
        409,
        "Operation cannot be fulfilled on pods/binding \"pq\": pod pq is already assigned to node \"n1\"",
    );
    let graceful = server.delete(&path, Value::Null).ok();
    assert_eq!(
        graceful.body["metadata"]["deletionTimestamp"],
        "2026-11-15T20:06:30Z"
    );
    assert_eq!(graceful.body["metadata"]["deletionGracePeriodSeconds"], 30);
    server.advance(5);
    let longer = server.delete(&path, json!({"gracePeriodSeconds": 60})).ok();
    assert_eq!(longer.version(), graceful.version(), "grace only shrinks");
    let shorter = server.delete(&path, json!({"gracePeriodSeconds": 10})).ok();
    assert_eq!(
        shorter.body["metadata"]["deletionTimestamp"],
        "2026-11-15T20:06:10Z"
    );
    let still = server
        .merge(&path, json!({"metadata": {"labels": {"a": "b"}}}))
        .ok();
    assert_eq!(
        still.body["metadata"]["deletionGracePeriodSeconds"], 10,
        "a write does not end it early"
    );
    let forced = server.delete(&path, json!({"gracePeriodSeconds": 0})).ok();
    assert_eq!(forced.body["metadata"]["deletionGracePeriodSeconds"], 0);
    server.get(&path).refused(404, "pods \"pq\" not found");
}

#[test]
fn a_collection_goes_at_once() {
    let mut server = Server::new();
    for name in ["a", "b", "c"] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"keep": if name == "b" { "yes" } else { "no" }});
        server.post(CONFIG_MAPS, map).created();
    }
    let gone = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=keep=no"), Value::Null)
        .ok();
    assert_eq!(
        (
            &gone.body["kind"],
            gone.body["items"].as_array().unwrap().len()
        ),
        (&json!("ConfigMapList"), 2)
    );
    let left = server.get(CONFIG_MAPS).ok();
    assert_eq!(left.body["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_namespace_waits_for_its_content() {
    let mut server = Server::new();
    let made = server
        .post(
            "/api/v1/namespaces",
            json!({"metadata": {"name": "harbour"}}),
        )
        .created();
    assert_eq!(
        made.body["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "harbour"})
    );
    assert_eq!(
        (&made.body["spec"], &made.body["status"]),
        (
            &json!({"finalizers": ["kubernetes"]}),
            &json!({"phase": "Active"})
        )
    );
    let path = "/api/v1/namespaces/harbour";
    let updated = server
        .put(
            path,
            json!({"metadata": {"name": "harbour", "labels": {"a": "b"}}}),
        )
        .ok();
    assert_eq!(
        updated.body["spec"],
        json!({"finalizers": ["kubernetes"]}),
        "only finalize changes it"
    );
    let deleted = server.delete(path, Value::Null).ok();
    assert_eq!(deleted.body["status"]["phase"], "Terminating");
    let refused = server.post("/api/v1/namespaces/harbour/configmaps", config_map("a"));
    let refused = refused.refused(403, "configmaps \"a\" is forbidden: unable to create new content in namespace harbour because it is being terminated");
    assert_eq!(
        refused.body["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": "namespace harbour is being terminated", "field": "metadata.namespace"}])
    );
    let mut finalized = deleted.body.clone();
    finalized["spec"] = json!({});
    server.put(&format!("{path}/finalize"), finalized).ok();
    server
        .get(path)
        .refused(404, "namespaces \"harbour\" not found");
    server
        .delete("/api/v1/namespaces/default", Value::Null)
        .refused(
            403,
            "namespaces \"default\" is forbidden: this namespace may not be deleted",
        );
}

#[test]
fn an_eviction_asks_the_budget() {
    let mut server = Server::new();
    let mut labelled = pod("p");
    labelled["metadata"]["labels"] = json!({"app": "x"});
    server.post(PODS, labelled).created();
    let path = format!("{PODS}/p");
    server.post(
        &format!("{path}/binding"),
        json!({"target": {"name": "n1"}}),
    );
    server
        .merge(
            &format!("{path}/status"),
            json!({"status": {"phase": "Running"}}),
        )
        .ok();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    server.post(budgets, json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}}})).created();
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let early = server
        .post(&format!("{path}/eviction"), eviction.clone())
        .refused(
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
        );
    assert!(
        early.body["details"]["causes"][0]["message"]
            .as_str()
            .unwrap()
            .contains("still being processed")
    );
    server.merge(&format!("{budgets}/b/status"), json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}})).ok();
    let full = server.post(&format!("{path}/eviction"), eviction.clone());
    assert_eq!(full.status, 429);
    assert_eq!(
        full.body["details"]["causes"][0],
        json!({"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods and has 1 currently"})
    );
    server
        .merge(
            &format!("{budgets}/b/status"),
            json!({"status": {"disruptionsAllowed": 1}}),
        )
        .ok();
    assert_eq!(
        server.post(&format!("{path}/eviction"), eviction).status,
        201
    );
    assert!(server.get(&path).ok().body["metadata"]["deletionTimestamp"].is_string());
    let spent = server.get(&format!("{budgets}/b")).ok();
    assert_eq!(spent.body["status"]["disruptionsAllowed"], 0);
}

#[test]
fn storage_brings_everything_back() {
    use geodb_sandbox::core::{Config, State};
    let mut server = Server::new();
    server
        .post(crate::DEFINITIONS, crate::custom::definition())
        .created();
    server.post("/apis/ex.com/v1/namespaces/default/foos", json!({"apiVersion": "ex.com/v1", "kind": "Foo", "metadata": {"name": "a"}, "spec": {"name": "n"}})).created();
    server.post("/api/v1/namespaces/default/services", json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.3", "ports": [{"port": 1}]}})).created();
    let mut stored: std::collections::BTreeMap<(String, String, String), Value> =
        std::collections::BTreeMap::new();
    for change in &server.changes {
        let key = (
            change.resource.to_string(),
            change.namespace.to_string(),
            change.name.to_string(),
        );
        match &change.new {
            Some(object) => stored.insert(key, Value::clone(object)),
            None => stored.remove(&key),
        };
    }
    let revision = server.state.revision();
    let config = Config {
        service_first: "10.0.0.1".parse().unwrap(),
        service_last: "10.0.0.6".parse().unwrap(),
    };
    let objects = stored
        .into_iter()
        .map(|((resource, _, _), object)| (resource, object));
    server.state = State::load(config, objects, revision).unwrap();
    assert_eq!(
        server
            .get("/apis/ex.com/v1/namespaces/default/foos/a")
            .ok()
            .body["spec"]["replicas"],
        1
    );
    let taken = server.post("/api/v1/namespaces/default/services", json!({"metadata": {"name": "t"}, "spec": {"clusterIP": "10.0.0.3", "ports": [{"port": 1}]}}));
    assert_eq!(taken.status, 422);
    let old = server.watch(&format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        revision - 1
    ));
    assert!(old.ends, "history does not survive");
    let broken = State::load(
        Config::default(),
        [("configmaps".to_owned(), json!({"metadata": {}}))],
        5,
    );
    assert!(broken.unwrap_err().to_string().contains("it has no name"));
}
