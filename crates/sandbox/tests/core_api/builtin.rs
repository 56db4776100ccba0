//! Defaults, additions and checks of built-in kinds, as a real server made them.

use serde_json::{Value, json};

use crate::{CONFIG_MAPS, PODS, Server, config_map, pod};

const SERVICES: &str = "/api/v1/namespaces/default/services";

#[test]
fn a_pod_is_completed() {
    let mut server = Server::new();
    let made = server.post(PODS, pod("pp")).created();
    let volume = made.body["spec"]["volumes"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(volume.starts_with("kube-api-access-"), "{volume}");
    let expected = json!({
        "volumes": [{"name": volume, "projected": {"sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ], "defaultMode": 420}}],
        "containers": [{"name": "c", "image": "i", "resources": {}, "volumeMounts": [{"name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
        "securityContext": {}, "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
    });
    assert_eq!(made.body["spec"], expected);
    assert_eq!(
        made.body["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(made.body["metadata"]["generation"], 1);
    let mut stranger = pod("stranger");
    stranger["spec"]["serviceAccountName"] = "nobody".into();
    server.post(PODS, stranger).refused(403, "pods \"stranger\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found");
}

#[test]
fn a_pods_spec_is_fixed_but_for_its_image() {
    let mut server = Server::new();
    server.post(PODS, pod("p")).created();
    let path = format!("{PODS}/p");
    let refused = server.merge(&path, json!({"spec": {"hostname": "other"}}));
    assert_eq!(refused.status, 422);
    assert!(refused.message().starts_with("Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`"), "{}", refused.message());
    let strategic = json!({"spec": {"containers": [{"name": "c", "image": "i:2"}], "activeDeadlineSeconds": 5}});
    let patched = server
        .patch(&path, "application/strategic-merge-patch+json", strategic)
        .ok();
    assert_eq!(
        (
            &patched.body["spec"]["containers"][0]["image"],
            &patched.body["metadata"]["generation"]
        ),
        (&json!("i:2"), &json!(2))
    );
    let status = server
        .merge(
            &format!("{path}/status"),
            json!({"status": {"phase": "Running"}}),
        )
        .ok();
    assert_eq!(
        (
            &status.body["status"]["phase"],
            &status.body["metadata"]["generation"]
        ),
        (&json!("Running"), &json!(2))
    );
    let cases = [
        (json!({"containers": []}), "spec.containers: Required value"),
        (
            json!({"containers": [{"name": "c"}]}),
            "spec.containers[0].image: Required value",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 0}]}]}),
            "spec.containers[0].ports[0].containerPort: Required value",
        ),
        (
            json!({"restartPolicy": "Sometimes", "containers": [{"name": "c", "image": "i"}]}),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
    ];
    for (spec, message) in cases {
        server
            .post(PODS, json!({"metadata": {"name": "bad"}, "spec": spec}))
            .refused(422, &format!("Pod \"bad\" is invalid: {message}"));
    }
}

#[test]
fn services_have_addresses_of_their_own() {
    let mut server = Server::new();
    let service = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let made = server
        .post(SERVICES, service("s0", json!({"ports": [{"port": 80}]})))
        .created();
    let address = made.body["spec"]["clusterIP"].as_str().unwrap().to_owned();
    assert_eq!(
        made.body["spec"],
        json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}], "clusterIP": address, "clusterIPs": [address], "type": "ClusterIP",
            "sessionAffinity": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"})
    );
    assert_eq!(made.body["status"], json!({"loadBalancer": {}}));
    let replaced = server
        .put(
            &format!("{SERVICES}/s0"),
            service("s0", json!({"ports": [{"port": 81}]})),
        )
        .ok();
    assert_eq!(
        replaced.body["spec"]["clusterIP"],
        address.as_str(),
        "an address once given stays"
    );
    server.merge(&format!("{SERVICES}/s0"), json!({"spec": {"clusterIP": "10.0.0.9"}})).refused(422, "Service \"s0\" is invalid: spec.clusterIPs[0]: Invalid value: [\"10.0.0.9\"]: may not change once set");
    let headless = server
        .post(SERVICES, service("headless", json!({"clusterIP": "None"})))
        .created();
    assert_eq!(headless.body["spec"]["clusterIPs"], json!(["None"]));
    server.post(SERVICES, service("twin", json!({"clusterIP": address, "ports": [{"port": 1}]}))).refused(422, &format!("Service \"twin\" is invalid: spec.clusterIPs: Invalid value: [\"{address}\"]: failed to allocate IP {address}: provided IP is already allocated"));
    // The range of these tests has six.
    let mut addresses = vec![address];
    for number in 1..6 {
        let made = server
            .post(
                SERVICES,
                service(&format!("s{number}"), json!({"ports": [{"port": 80}]})),
            )
            .created();
        addresses.push(made.body["spec"]["clusterIP"].as_str().unwrap().to_owned());
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 6);
    assert_eq!(
        server
            .post(SERVICES, service("full", json!({"ports": [{"port": 80}]})))
            .status,
        500
    );
    server.delete(&format!("{SERVICES}/s3"), Value::Null).ok();
    server
        .post(SERVICES, service("again", json!({"ports": [{"port": 80}]})))
        .created();
    let refused = server.post(
        SERVICES,
        service("np", json!({"type": "NodePort", "ports": [{"port": 80}]})),
    );
    assert_eq!((refused.status, refused.reason()), (501, "NotImplemented"));
}

#[test]
fn secrets_take_text_and_keep_bytes() {
    let mut server = Server::new();
    let secrets = "/api/v1/namespaces/default/secrets";
    let made = server.post(secrets, json!({"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "y", "a": "z"}})).created();
    assert_eq!(
        (
            &made.body["data"],
            &made.body["type"],
            made.body.get("stringData")
        ),
        (&json!({"a": "eg==", "b": "eQ=="}), &json!("Opaque"), None)
    );
    server
        .merge(&format!("{secrets}/s"), json!({"type": "x"}))
        .refused(
            422,
            "Secret \"s\" is invalid: type: Invalid value: \"x\": field is immutable",
        );
    assert_eq!(
        server
            .post(
                secrets,
                json!({"metadata": {"name": "t"}, "data": {"a": "not base64!"}})
            )
            .status,
        400
    );
    server.post(secrets, json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls"})).refused(422, "Secret \"t\" is invalid: [data[tls.crt]: Required value, data[tls.key]: Required value]");
}

#[test]
fn immutable_maps_do_not_change() {
    let mut server = Server::new();
    let mut map = config_map("imm");
    map["immutable"] = true.into();
    server.post(CONFIG_MAPS, map.clone()).created();
    map["immutable"] = false.into();
    map["data"]["a"] = "2".into();
    server.put(&format!("{CONFIG_MAPS}/imm"), map).refused(422, "ConfigMap \"imm\" is invalid: [immutable: Forbidden: field is immutable when `immutable` is set, data: Forbidden: field is immutable when `immutable` is set]");
    let keyed = json!({"metadata": {"name": "k"}, "data": {"a b": "x"}});
    server.post(CONFIG_MAPS, keyed).refused(422, "ConfigMap \"k\" is invalid: data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')");
}

#[test]
fn jobs_find_their_pods_by_uid() {
    let mut server = Server::new();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let made = server.post(jobs, json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})).created();
    let uid = made.body["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        made.body["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    );
    assert_eq!(
        made.body["spec"]["template"]["metadata"]["labels"],
        json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j", "controller-uid": uid, "job-name": "j"})
    );
    let spec = &made.body["spec"];
    assert_eq!(
        (
            &spec["parallelism"],
            &spec["completions"],
            &spec["backoffLimit"],
            &spec["suspend"]
        ),
        (&json!(1), &json!(1), &json!(6), &json!(false))
    );
    assert_eq!(
        server
            .merge(&format!("{jobs}/j"), json!({"spec": {"completions": 2}}))
            .status,
        422
    );
    server.post(jobs, json!({"metadata": {"name": "k"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}})).refused(422, "Job.batch \"k\" is invalid: spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"");
}

#[test]
fn claims_grow_when_bound() {
    let mut server = Server::new();
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    server.post("/apis/storage.k8s.io/v1/storageclasses", json!({"metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "x"})).created();
    let made = server.post(claims, json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})).created();
    assert_eq!(
        (
            &made.body["spec"]["storageClassName"],
            &made.body["spec"]["volumeMode"],
            &made.body["status"]["phase"]
        ),
        (&json!("local"), &json!("Filesystem"), &json!("Pending"))
    );
    let path = format!("{claims}/c");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert_eq!(
        server.merge(&path, larger.clone()).status,
        422,
        "not before it is bound"
    );
    server
        .merge(&path, json!({"spec": {"volumeName": "pv-1"}}))
        .ok();
    server
        .merge(
            &format!("{path}/status"),
            json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}),
        )
        .ok();
    server.merge(&path, larger.clone()).refused(403, "persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize");
    let class = "/apis/storage.k8s.io/v1/storageclasses/local";
    server
        .merge(class, json!({"allowVolumeExpansion": true}))
        .ok();
    server.merge(class, json!({"provisioner": "y"})).refused(422, "StorageClass.storage.k8s.io \"local\" is invalid: provisioner: Invalid value: \"y\": field is immutable");
    assert_eq!(
        server.merge(&path, larger).ok().body["spec"]["resources"]["requests"]["storage"],
        "2Gi"
    );
    assert_eq!(
        server
            .merge(&path, json!({"spec": {"volumeName": "pv-2"}}))
            .status,
        422
    );
    let smaller = json!({"spec": {"resources": {"requests": {"storage": "512Mi"}}}});
    server.merge(&path, smaller).refused(422, "PersistentVolumeClaim \"c\" is invalid: spec.resources.requests.storage: Forbidden: field can not be less than status.capacity");
    server.post(claims, json!({"metadata": {"name": "d"}, "spec": {}})).refused(422, "PersistentVolumeClaim \"d\" is invalid: [spec.accessModes: Required value: at least 1 access mode is required, spec.resources[storage]: Required value]");
}

#[test]
fn workloads_are_stored_and_scaled_with_a_warning() {
    let mut server = Server::new();
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let made = server.post(deployments, json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})).created();
    assert!(
        made.warnings[0].contains("runs no controller"),
        "{:?}",
        made.warnings
    );
    assert_eq!(
        made.body["spec"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
    );
    assert_eq!(
        made.body["spec"]["template"]["spec"].get("enableServiceLinks"),
        None
    );
    let scaled = server
        .merge(
            &format!("{deployments}/d/scale"),
            json!({"spec": {"replicas": 3}}),
        )
        .ok();
    assert_eq!(
        (&scaled.body["spec"], &scaled.body["status"]),
        (
            &json!({"replicas": 3}),
            &json!({"replicas": 0, "selector": "a=b"})
        )
    );
    for path in [
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        "/apis/apiregistration.k8s.io/v1/apiservices",
    ] {
        let refused = server.post(path, json!({"metadata": {"name": "v1.x.io"}}));
        assert_eq!(
            (refused.status, refused.reason()),
            (501, "NotImplemented"),
            "{path}"
        );
    }
}

#[test]
fn reviews_are_answered() {
    let mut server = Server::new();
    let me = server
        .post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            json!({}),
        )
        .created();
    assert_eq!(
        me.body["status"]["userInfo"],
        json!({"username": "admin", "groups": ["system:masters"]})
    );
    let may = server
        .post(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            json!({"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}),
        )
        .created();
    assert_eq!(may.body["status"]["allowed"], true);
}

#[test]
fn bindings_keep_their_role() {
    let mut server = Server::new();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let binding = |role: &str| json!({"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": role}, "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "d"}]});
    let made = server.put(&format!("{bindings}/b"), binding("x")).created();
    assert_eq!(
        made.body["subjects"][0]["apiGroup"],
        "rbac.authorization.k8s.io"
    );
    let refused = server.put(&format!("{bindings}/b"), binding("y"));
    assert!(
        refused.message().ends_with("cannot change roleRef"),
        "{}",
        refused.message()
    );
}
