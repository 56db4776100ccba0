//! The real kubectl against the server, command by command, as a person types them.
#![allow(
    clippy::unwrap_used,
    reason = "a test's panic is its report, in its helpers too"
)]

mod serve_support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serve_support::{Kubectl, Sandbox};

const CONFIG_MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: buoy}\ndata: {colour: red}\n";
const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.harbour.example.com}
spec:
  group: harbour.example.com
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Port, type: string, jsonPath: .spec.port, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A boat of the harbour.
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, minimum: 0, description: How many hulls.}
              port: {type: string}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;
const BOAT: &str = "apiVersion: harbour.example.com/v1\nkind: Boat\nmetadata: {name: ferry}\nspec: {replicas: 2, port: north}\n";
const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: crane, labels: {app: x}}\n\
                   spec: {containers: [{name: main, image: 'busybox:1'}]}\n";

/// Runs `work` with a server and kubectl; without kubectl the test says so and passes.
async fn with_kubectl(work: impl FnOnce(&Kubectl) + Send + 'static) {
    let sandbox = Sandbox::start();
    serve_support::default_account(sandbox.server.client()).await;
    if let Some(kubectl) = Kubectl::new(&sandbox) {
        tokio::task::spawn_blocking(move || work(&kubectl))
            .await
            .unwrap();
    }
    sandbox.stop().await;
}

fn assert_contains(text: &str, expected: &[&str]) {
    for part in expected {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// A line of a table, its columns separated by one space.
fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_get_and_delete() {
    with_kubectl(|kubectl| {
        assert_contains(
            &kubectl.run(&["get", "pods"]),
            &["No resources found in default namespace."],
        );
        assert_contains(
            &kubectl.run_with(&["apply", "-f", "-"], CONFIG_MAP),
            &["configmap/buoy created"],
        );
        assert_contains(
            &kubectl.run_with(&["apply", "-f", "-"], CONFIG_MAP),
            &["configmap/buoy unchanged"],
        );
        let blue = CONFIG_MAP.replace("red", "blue");
        assert_contains(&kubectl.run_with(&["diff", "-f", "-"], CONFIG_MAP), &[]);
        assert_contains(
            &kubectl.run_with(&["apply", "-f", "-"], &blue),
            &["configmap/buoy configured"],
        );
        assert_eq!(
            kubectl.run(&["get", "cm", "buoy", "-o", "jsonpath={.data.colour}"]),
            "blue"
        );
        let table = lines(&kubectl.run(&["get", "cm", "buoy"]));
        assert_eq!(table[0], "NAME DATA AGE");
        assert!(table[1].starts_with("buoy 1 "), "{table:?}");
        assert_contains(
            &kubectl.run(&["get", "cm", "buoy", "-o", "yaml"]),
            &["colour: blue", "kind: ConfigMap"],
        );
        assert_contains(
            &kubectl.run_with(&["replace", "-f", "-"], CONFIG_MAP),
            &["configmap/buoy replaced"],
        );
        assert_contains(
            &kubectl.run(&["delete", "cm", "buoy"]),
            &["configmap \"buoy\" deleted"],
        );
        assert_contains(
            &kubectl.refused(&["get", "cm", "buoy"], ""),
            &["Error from server (NotFound): configmaps \"buoy\" not found"],
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_on_the_server_shares_and_refuses_fields() {
    with_kubectl(|kubectl| {
        let apply = ["apply", "--server-side", "-f", "-"];
        assert_contains(
            &kubectl.run_with(&apply, CONFIG_MAP),
            &["configmap/buoy serverside-applied"],
        );
        let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
        let blue = CONFIG_MAP.replace("red", "blue");
        assert_contains(
            &kubectl.refused(&other, &blue),
            &["conflict", ".data.colour", "kubectl"],
        );
        let forced = [
            "apply",
            "--server-side",
            "--field-manager=other",
            "--force-conflicts",
            "-f",
            "-",
        ];
        assert_contains(&kubectl.run_with(&forced, &blue), &["serverside-applied"]);
        assert_eq!(
            kubectl.run(&["get", "cm", "buoy", "-o", "jsonpath={.data.colour}"]),
            "blue"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_patches_of_three_types() {
    with_kubectl(|kubectl| {
        kubectl.run_with(&["create", "-f", "-"], POD);
        assert_contains(
            &kubectl.run(&["label", "pod", "crane", "z=y"]),
            &["pod/crane labeled"],
        );
        assert_contains(
            &kubectl.run(&["annotate", "pod", "crane", "note=hello"]),
            &["pod/crane annotated"],
        );
        for (kind, patch) in [
            ("strategic", r#"{"metadata":{"labels":{"one":"1"}}}"#),
            ("merge", r#"{"metadata":{"labels":{"two":"2"}}}"#),
            (
                "json",
                r#"[{"op":"add","path":"/metadata/labels/three","value":"3"}]"#,
            ),
        ] {
            assert_contains(
                &kubectl.run(&["patch", "pod", "crane", "--type", kind, "-p", patch]),
                &["pod/crane patched"],
            );
        }
        let labels = kubectl.run(&["get", "pod", "crane", "--show-labels"]);
        assert_contains(&labels, &["app=x", "one=1", "two=2", "three=3", "z=y"]);
        let found = kubectl.run(&[
            "get",
            "pods",
            "-A",
            "-l",
            "app=x",
            "--field-selector=status.phase=Pending",
            "-o",
            "name",
        ]);
        assert_eq!(found.trim(), "pod/crane");
        let table = lines(&kubectl.run(&["get", "pods", "-o", "wide"]));
        assert_eq!(
            table[0],
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
        );
        assert!(table[1].starts_with("crane 0/1 Pending 0 "), "{table:?}");
        assert_contains(
            &kubectl.run(&["describe", "pod", "crane"]),
            &["Name:", "crane", "Status:", "Pending", "busybox:1"],
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_have_columns_scale_explain_and_validation() {
    with_kubectl(|kubectl| {
        kubectl.run_with(&["apply", "-f", "-"], DEFINITION);
        kubectl.run(&[
            "wait",
            "--for=condition=Established",
            "crd/boats.harbour.example.com",
            "--timeout=20s",
        ]);
        assert_contains(
            &kubectl.run(&["api-resources", "--api-group=harbour.example.com"]),
            &["boats", "bt", "Boat", "true"],
        );
        assert_contains(
            &kubectl.run_with(&["apply", "-f", "-"], BOAT),
            &["boat.harbour.example.com/ferry created"],
        );
        let table = lines(&kubectl.run(&["get", "bt"]));
        assert_eq!(table[0], "NAME REPLICAS READY AGE");
        assert!(table[1].starts_with("ferry 2 "), "{table:?}");
        assert_contains(
            &kubectl.run(&["get", "bt", "-o", "wide"]),
            &["PORT", "north"],
        );
        assert_contains(
            &kubectl.run(&["scale", "bt/ferry", "--replicas=5"]),
            &["ferry scaled"],
        );
        assert_eq!(
            kubectl.run(&["get", "bt", "ferry", "-o", "jsonpath={.spec.replicas}"]),
            "5"
        );
        assert_contains(
            &kubectl.run(&["explain", "boat.spec"]),
            &["KIND:", "Boat", "replicas", "How many hulls."],
        );
        assert_contains(
            &kubectl.run(&["describe", "bt", "ferry"]),
            &["Name:", "ferry", "Replicas:", "5"],
        );
        let junk = BOAT.replace("port: north", "junk: 1");
        assert_contains(
            &kubectl.refused(&["apply", "-f", "-"], &junk),
            &["unknown field \"spec.junk\""],
        );
        let wrong = BOAT.replace("replicas: 2", "replicas: -2");
        assert_contains(
            &kubectl.refused(&["apply", "-f", "-"], &wrong),
            &["spec.replicas", "greater than or equal to 0"],
        );
        let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        kubectl.run(&[
            "patch",
            "bt",
            "ferry",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ]);
        kubectl.run(&["wait", "--for=condition=Ready", "bt/ferry", "--timeout=20s"]);
        assert!(lines(&kubectl.run(&["get", "bt"]))[1].starts_with("ferry 5 True "));
        kubectl.run(&["delete", "bt", "ferry"]);
        kubectl.run(&["delete", "crd", "boats.harbour.example.com"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_goes_through_an_editor() {
    with_kubectl(|kubectl| {
        kubectl.run_with(&["apply", "-f", "-"], CONFIG_MAP);
        let editor = kubectl.home.join("editor");
        std::fs::write(&editor, "#!/bin/sh\nexec sed -i s/red/green/ \"$1\"\n").unwrap();
        std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o700)).unwrap();
        let output = kubectl
            .command(&["edit", "cm", "buoy"])
            .env("EDITOR", &editor)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            kubectl.run(&["get", "cm", "buoy", "-o", "jsonpath={.data.colour}"]),
            "green"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_table_follows() {
    with_kubectl(|kubectl| {
        kubectl.run_with(&["apply", "-f", "-"], CONFIG_MAP);
        let mut watch = kubectl
            .command(&["get", "cm", "-w"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(watch.stdout.take().unwrap()).lines();
        let mut next = || output.next().unwrap().unwrap();
        assert!(next().starts_with("NAME"));
        assert!(next().starts_with("buoy"));
        kubectl.run_with(&["apply", "-f", "-"], &CONFIG_MAP.replace("buoy", "bell"));
        assert!(next().starts_with("bell"));
        kubectl.run(&["delete", "cm", "bell"]);
        assert!(next().starts_with("bell"));
        watch.kill().unwrap();
        watch.wait().unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_look_at_first() {
    with_kubectl(|kubectl| {
        assert_contains(
            &kubectl.run(&["version"]),
            &["Server Version: v1.36.3-geodb"],
        );
        assert_contains(
            &kubectl.run(&["get", "ns"]),
            &["default", "kube-system", "Active"],
        );
        let resources = kubectl.run(&["api-resources"]);
        assert_contains(
            &resources,
            &[
                "configmaps",
                "deployments",
                "leases",
                "persistentvolumeclaims",
                "pods",
            ],
        );
        assert_contains(
            &kubectl.run(&["api-versions"]),
            &["apps/v1", "batch/v1", "v1"],
        );
        assert_contains(
            &kubectl.run(&["explain", "pod.spec.containers"]),
            &["KIND:", "Pod", "FIELD:", "image"],
        );
        assert_contains(
            &kubectl.run(&["cluster-info"]),
            &["control plane", "is running at"],
        );
        assert_contains(&kubectl.run(&["get", "--raw", "/readyz"]), &["ok"]);
        assert_contains(&kubectl.run(&["get", "all", "-A"]), &[]);
        assert_contains(&kubectl.run(&["get", "events"]), &["No resources found"]);
        let sorted = kubectl.run(&["get", "ns", "--sort-by=.metadata.name", "-o", "name"]);
        assert!(sorted.starts_with("namespace/default"), "{sorted}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_stored_so_that_charts_apply() {
    with_kubectl(|kubectl| {
        let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: d}}\n  \
                          template:\n    metadata: {labels: {app: d}}\n    spec: {containers: [{name: c, image: i}]}\n";
        assert_contains(&kubectl.run_with(&["apply", "-f", "-"], deployment), &["deployment.apps/d created"]);
        assert_contains(&kubectl.run_with(&["apply", "-f", "-"], deployment), &["deployment.apps/d unchanged"]);
        let image = deployment.replace("image: i", "image: j");
        assert_contains(&kubectl.run_with(&["apply", "-f", "-"], &image), &["deployment.apps/d configured"]);
        assert_contains(&kubectl.run(&["scale", "deploy/d", "--replicas=3"]), &["deployment.apps/d scaled"]);
        let table = lines(&kubectl.run(&["get", "deploy"]));
        assert_eq!(table[0], "NAME READY UP-TO-DATE AVAILABLE AGE");
        assert!(table[1].starts_with("d 0/3 0 0 "), "{table:?}");
        assert_contains(&kubectl.run(&["expose", "deploy", "d", "--port=80"]), &["service/d exposed"]);
        let table = lines(&kubectl.run(&["get", "svc", "d"]));
        assert_eq!(table[0], "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE");
        assert!(table[1].starts_with("d ClusterIP 127.") && table[1].contains("<none> 80/TCP"), "{table:?}");
        kubectl.run(&["delete", "deploy,svc", "--all"]);
    })
    .await;
}
