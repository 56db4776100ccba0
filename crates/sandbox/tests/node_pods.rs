//! Pods of a node, as a client of the API sees them: each test has an API server and a node of its own, and real processes.

mod node_harness;

use node_harness::cluster;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_its_files_its_environment_and_its_user_and_completes() {
    let cluster = cluster().await;
    cluster
        .create(
            "v1",
            "ConfigMap",
            json!({"metadata": {"name": "settings"}, "data": {"colour": "green"}}),
        )
        .await;
    cluster
        .create(
            "v1",
            "Secret",
            json!({"metadata": {"name": "key"}, "stringData": {"word": "sesame"}}),
        )
        .await;
    let script = "echo user $(id -u) $(id -un); cat /shared/from-init; echo $COLOUR $WORD $IP; cat /files/colour /files/renamed; \
                  cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; \
                  touch /nope 2>/dev/null || echo read-only; touch /scratch/x && echo scratch; echo last words > /dev/termination-log";
    cluster
        .pod("hello", json!({"restartPolicy": "Never", "serviceAccountName": "default",
            "securityContext": {"runAsUser": 999, "runAsGroup": 999, "runAsNonRoot": true},
            "initContainers": [{"name": "prepare", "image": "busybox:1", "command": ["sh", "-c", "echo prepared > /shared/from-init"], "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
            "containers": [{"name": "main", "image": "debian:12", "command": ["sh", "-c", script],
                "securityContext": {"readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
                "env": [{"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
                    {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "key", "key": "word"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}, {"name": "scratch", "mountPath": "/scratch"}, {"name": "files", "mountPath": "/files"}]}],
            "volumes": [{"name": "shared", "emptyDir": {}}, {"name": "scratch", "emptyDir": {}},
                {"name": "files", "projected": {"sources": [{"configMap": {"name": "settings"}}, {"secret": {"name": "key", "items": [{"key": "word", "path": "renamed"}]}}]}}]}))
        .await;
    let pod = cluster
        .until("hello", "it has ended", |pod| {
            pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
        })
        .await;
    let status = &pod["status"];
    let ip = status["podIP"].as_str().expect("an address");
    let log = cluster.log("hello", "main", "").await;
    assert_eq!(
        log,
        format!(
            "user 999 postgres\nprepared\ngreen sesame {ip}\ngreensesame{}\ntoken\nread-only\nscratch\n",
            cluster.namespace
        )
    );
    assert_eq!(status["phase"], "Succeeded");
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"], &ended["message"]),
        (&json!(0), &json!("Completed"), &json!("last words\n"))
    );
    assert_eq!(
        status["initContainerStatuses"][0]["state"]["terminated"]["reason"],
        "Completed"
    );
    assert_eq!(cluster.condition(&pod, "Initialized"), "True");
    assert_eq!(cluster.condition(&pod, "Ready"), "False");
    cluster
        .until_events(
            "hello",
            &[
                "Pulled", "Created", "Started", "Pulled", "Created", "Started",
            ],
        )
        .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_container_is_restarted_at_once_and_then_backs_off() {
    let cluster = cluster().await;
    cluster.pod("crash", json!({"containers": [{"name": "main", "image": "busybox:1", "command": ["sh", "-c", "echo run; exit 3"]}]})).await;
    let pod = cluster
        .until("crash", "it backs off", |pod| {
            pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
                == "CrashLoopBackOff"
        })
        .await;
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(container["lastState"]["terminated"]["reason"], "Error");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(cluster.log("crash", "main", "previous=true").await, "run\n");
    cluster.until_event("crash", "BackOff").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_exist_is_a_start_error_and_no_restart_means_failed() {
    let cluster = cluster().await;
    cluster.pod("nowhere", json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1", "command": ["/no/such/program"]}]})).await;
    let pod = cluster
        .until("nowhere", "it has failed", |pod| {
            pod["status"]["phase"] == "Failed"
        })
        .await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"]),
        (&json!(128), &json!("StartError"))
    );
    assert!(
        ended["message"]
            .as_str()
            .expect("a message")
            .contains("/no/such/program"),
        "{ended}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_decide_when_a_container_is_ready_and_when_it_is_restarted() {
    let cluster = cluster().await;
    cluster
        .pod("probed", json!({"terminationGracePeriodSeconds": 30, "containers": [{"name": "main", "image": "busybox:1",
            "command": ["sh", "-c", "trap 'exit 7' TERM; touch /tmp/alive; while :; do sleep 0.05; done"],
            "startupProbe": {"exec": {"command": ["test", "-f", "/tmp/alive"]}, "periodSeconds": 1},
            "readinessProbe": {"exec": {"command": ["test", "-f", "/work/ready"]}, "periodSeconds": 1},
            "livenessProbe": {"exec": {"command": ["test", "!", "-f", "/work/sick"]}, "periodSeconds": 1, "failureThreshold": 1},
            "volumeMounts": [{"name": "work", "mountPath": "/work"}]}],
            "volumes": [{"name": "work", "emptyDir": {}}]}))
        .await;
    let pod = cluster
        .until("probed", "it has started", |pod| {
            pod["status"]["containerStatuses"][0]["started"] == true
        })
        .await;
    assert_eq!(cluster.condition(&pod, "Ready"), "False");
    let work = cluster.pod_volume(&pod, "work");
    std::fs::write(work.join("ready"), "").expect("written");
    cluster
        .until("probed", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    std::fs::write(work.join("sick"), "").expect("written");
    let pod = cluster
        .until("probed", "it was restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == 1
        })
        .await;
    assert_eq!(
        pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        7
    );
    cluster.until_event("probed", "Unhealthy").await;
    cluster.until_event("probed", "Killing").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_gets_its_grace_and_leaves_nothing_but_its_claim() {
    let cluster = cluster().await;
    let volume = cluster.bound_claim("data").await;
    let pod = json!({"containers": [{"name": "main", "image": "busybox:1",
        "command": ["sh", "-c", "trap 'echo bye > /data/bye; exit 0' TERM; echo up > /data/up; sleep 1000 & while :; do wait $!; done"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    cluster.pod("graceful", pod.clone()).await;
    let shown = cluster
        .until("graceful", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    cluster.until_file(&volume.join("up")).await;
    cluster.delete_pod("graceful").await;
    cluster.until_gone("graceful").await;
    assert_eq!(
        std::fs::read_to_string(volume.join("bye")).expect("read"),
        "bye\n"
    );
    cluster.until_left_nothing(&shown).await;
    // The next pod of the same name finds the data.
    cluster.pod("graceful", pod).await;
    let again = cluster
        .until("graceful", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    assert_ne!(again["metadata"]["uid"], shown["metadata"]["uid"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_ignores_its_grace_is_killed() {
    let cluster = cluster().await;
    cluster
        .pod("stubborn", json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "busybox:1", "command": ["sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"]}]}))
        .await;
    let shown = cluster
        .until("stubborn", "it runs", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await;
    cluster.delete_pod("stubborn").await;
    cluster.until_gone("stubborn").await;
    cluster.until_left_nothing(&shown).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_said_and_waited_for() {
    let cluster = cluster().await;
    let main = |extra: serde_json::Value| {
        let mut container =
            json!({"name": "main", "image": "busybox:1", "command": ["sleep", "1000"]});
        container
            .as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        container
    };
    cluster
        .pod(
            "image",
            json!({"containers": [main(json!({"image": "nginx:1"}))]}),
        )
        .await;
    cluster.pod("env", json!({"containers": [main(json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]}))]})).await;
    cluster
        .pod(
            "root",
            json!({"securityContext": {"runAsNonRoot": true}, "containers": [main(json!({}))]}),
        )
        .await;
    cluster.pod("volume", json!({"containers": [main(json!({}))], "volumes": [{"name": "v", "secret": {"secretName": "late"}}]})).await;
    cluster.pod("host", json!({"containers": [main(json!({}))], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]})).await;
    let reason = |pod: &serde_json::Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let pod = cluster
        .until("image", "it waits for its image", |pod| {
            reason(pod) == "ErrImagePull"
        })
        .await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].to_string();
    assert!(
        message.contains("nginx:1") && message.contains("busybox:*"),
        "{message}"
    );
    cluster
        .until("env", "it waits for its Secret", |pod| {
            reason(pod) == "CreateContainerConfigError"
        })
        .await;
    cluster
        .until("root", "it is refused as root", |pod| {
            reason(pod) == "CreateContainerConfigError"
        })
        .await;
    cluster
        .until("volume", "it waits for its volume", |pod| {
            reason(pod) == "ContainerCreating"
        })
        .await;
    cluster
        .create(
            "v1",
            "Secret",
            json!({"metadata": {"name": "late"}, "stringData": {"k": "v"}}),
        )
        .await;
    cluster
        .until("env", "it runs", |pod| pod["status"]["phase"] == "Running")
        .await;
    cluster
        .until("volume", "it runs", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await;
    cluster.until_event("host", "FailedMount").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_back_starts_its_pods_again_with_the_same_address_and_data() {
    let mut cluster = cluster().await;
    let volume = cluster.bound_claim("data").await;
    cluster
        .pod("steady", json!({"containers": [{"name": "main", "image": "busybox:1",
            "command": ["sh", "-c", "trap 'echo stopped >> /data/log; exit 0' TERM; echo started >> /data/log; while :; do sleep 0.05; done"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}))
        .await;
    cluster.pod("once", json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1", "command": ["sleep", "1000"]}]})).await;
    let before = cluster
        .until("steady", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    cluster
        .until("once", "it runs", |pod| pod["status"]["phase"] == "Running")
        .await;
    cluster.until_file(&volume.join("log")).await;
    let stray = cluster.data().join("pods/00000000-stray");
    std::fs::create_dir_all(&stray).expect("made");
    cluster.restart_node().await;
    let after = cluster
        .until("steady", "it was restarted", |pod| {
            pod["status"]["containerStatuses"][0]["restartCount"] == 1
                && cluster.condition(pod, "Ready") == "True"
        })
        .await;
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(
        after["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"],
        "Unknown"
    );
    let once = cluster
        .until("once", "it has failed", |pod| {
            pod["status"]["phase"] == "Failed"
        })
        .await;
    assert_eq!(
        once["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        255
    );
    cluster
        .until_lines(&volume.join("log"), &["started", "stopped", "started"])
        .await;
    assert!(!stray.exists(), "what no pod owns is removed");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_can_be_followed_cut_and_dated() {
    let cluster = cluster().await;
    cluster
        .pod("talker", json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1",
            "command": ["sh", "-c", "echo one; echo two; echo three; while [ ! -f /work/go ]; do sleep 0.05; done; echo four"],
            "volumeMounts": [{"name": "work", "mountPath": "/work"}]}],
            "volumes": [{"name": "work", "emptyDir": {}}]}))
        .await;
    let pod = cluster
        .until("talker", "it runs", |pod| {
            pod["status"]["phase"] == "Running"
        })
        .await;
    let (follower, work) = (
        cluster.follow("talker", "main"),
        cluster.pod_volume(&pod, "work"),
    );
    let release = async {
        cluster.until_log("talker", "main", "three").await;
        std::fs::write(work.join("go"), "").expect("written");
    };
    let (followed, ()) = tokio::join!(follower, release);
    assert_eq!(followed, "one\ntwo\nthree\nfour\n");
    assert_eq!(
        cluster.log("talker", "main", "tailLines=2").await,
        "three\nfour\n"
    );
    assert_eq!(
        cluster.log("talker", "main", "limitBytes=5").await,
        "one\nt"
    );
    assert_eq!(
        cluster
            .log("talker", "main", "sinceSeconds=3600&tailLines=1")
            .await,
        "four\n"
    );
    let dated = cluster
        .log("talker", "main", "timestamps=true&tailLines=1")
        .await;
    assert!(
        dated.ends_with("Z four\n") && dated.starts_with("20"),
        "{dated}"
    );
    let bad = cluster.log_answer("talker", "main", "tailLines=x").await;
    assert_eq!(bad.0, 400);
    assert_eq!(cluster.log_answer("talker", "other", "").await.0, 400);
    assert_eq!(
        cluster
            .log_answer("talker", "main", "previous=true")
            .await
            .0,
        400
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_at_rest_writes_nothing() {
    let cluster = cluster().await;
    cluster
        .pod("calm", json!({"containers": [{"name": "main", "image": "busybox:1", "command": ["sleep", "1000"],
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}]}))
        .await;
    let pod = cluster
        .until("calm", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    cluster.until_event("calm", "Started").await;
    let before = cluster.writes();
    // Several turns of the probe: nothing to await but the absence of writes.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(cluster.writes(), before);
    let same = cluster.until("calm", "it is there", |_| true).await;
    assert_eq!(
        same["metadata"]["resourceVersion"],
        pod["metadata"]["resourceVersion"]
    );
    cluster.stop().await;
}

/// The newest PostgreSQL of this machine, and where its programs are.
fn postgresql() -> (String, std::path::PathBuf) {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .expect("PostgreSQL is installed; make test does it");
    let newest = versions
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max()
        .expect("a version");
    (
        newest.to_string(),
        format!("/usr/lib/postgresql/{newest}/bin").into(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_runs_as_its_user_and_answers_on_the_pods_address() {
    let cluster = cluster().await;
    let volume = cluster.bound_claim("data").await;
    let (major, programs) = postgresql();
    let script = "initdb -D /data/pg -U postgres -A trust --no-sync > /dev/null && exec postgres -D /data/pg -h $IP -k /run";
    cluster
        .pod("server", json!({"terminationGracePeriodSeconds": 30, "securityContext": {"runAsUser": 999, "runAsGroup": 999, "runAsNonRoot": true},
            "containers": [{"name": "postgres", "image": format!("postgis/postgis:{major}-3.3"), "command": ["sh", "-c", script],
                "securityContext": {"readOnlyRootFilesystem": true},
                "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "run", "mountPath": "/run"}]}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "run", "emptyDir": {}}]}))
        .await;
    let pod = cluster
        .until("server", "it is ready", |pod| {
            cluster.condition(pod, "Ready") == "True"
        })
        .await;
    let address = pod["status"]["podIP"].as_str().expect("an address");
    let answer = tokio::process::Command::new(programs.join("psql"))
        .args(["-h", address, "-U", "postgres", "-XAtc", "select 6 * 7"])
        .env_clear()
        .output()
        .await
        .expect("psql");
    assert_eq!(
        String::from_utf8_lossy(&answer.stdout),
        "42\n",
        "{}",
        String::from_utf8_lossy(&answer.stderr)
    );
    cluster.delete_pod("server").await;
    cluster.until_gone("server").await;
    assert!(
        !volume.join("pg/postmaster.pid").exists(),
        "it was shut down in order"
    );
    cluster.stop().await;
}
