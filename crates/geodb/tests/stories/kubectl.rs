//! What kubectl shows and does: the words of a user's first hour.

use super::harness::{CHANGE_WITHIN, Sandbox, eventually, run_within, skipped_without_kubectl};

#[test]
fn kubectl_shows_and_changes_everything() {
    if skipped_without_kubectl("kubectl_shows_and_changes_everything") {
        return;
    }
    let sandbox = Sandbox::start();
    tables_are_for_people(&sandbox);
    describe_tells_conditions_and_events(&sandbox);
    logs_are_the_agents_and_postgresqls(&sandbox);
    apply_and_edit_change_the_spec(&sandbox);
    a_wrong_spec_is_refused_with_the_field(&sandbox);
    delete_leaves_nothing_but_what_the_policy_keeps(&sandbox);
}

fn tables_are_for_people(sandbox: &Sandbox) {
    let table = sandbox.kubectl(&["get", "db"]);
    let header = table.lines().next().unwrap_or_default();
    for column in [
        "NAME", "READY", "PRIMARY", "VERSION", "STORAGE", "STATUS", "AGE",
    ] {
        assert!(header.contains(column), "{column}: {table}");
    }
    assert!(table.contains("3/3"), "{table}");
    let everything = sandbox.kubectl(&["get", "pods,pvc,svc,secret"]);
    for name in [
        "pod/cities-1",
        "persistentvolumeclaim/cities-1",
        "service/cities-rw",
        "service/cities-ro",
        "service/cities-r",
        "secret/cities-app",
        "secret/cities-ca",
    ] {
        assert!(everything.contains(name), "{name}: {everything}");
    }
}

fn describe_tells_conditions_and_events(sandbox: &Sandbox) {
    let text = sandbox.kubectl(&["describe", "db", "cities"]);
    assert!(text.contains("Conditions:"), "{text}");
    assert!(text.contains("Ready"), "{text}");
    assert!(
        text.contains("Events:")
            && !text.contains("Events:  <none>")
            && !text.contains("Events:        <none>"),
        "{text}"
    );
    let events = sandbox.kubectl(&["get", "events"]);
    assert!(events.contains("database/cities"), "{events}");
    assert!(events.contains("pod/cities-1"), "{events}");
}

fn logs_are_the_agents_and_postgresqls(sandbox: &Sandbox) {
    let logs = sandbox.kubectl(&["logs", &sandbox.primary()]);
    assert!(
        logs.contains("database system is ready to accept connections"),
        "{logs}"
    );
    let last = sandbox.kubectl(&["logs", &sandbox.primary(), "--tail", "1"]);
    assert_eq!(last.lines().count(), 1, "{last}");
}

fn apply_and_edit_change_the_spec(sandbox: &Sandbox) {
    let manifest = sandbox.data().join("apply.yaml");
    let text = std::fs::read_to_string(super::harness::cities()).expect("the example is there");
    std::fs::write(&manifest, text.replace("replicas: 3", "replicas: 2"))
        .expect("the manifest can be written");
    sandbox.kubectl(&["apply", "-f", &manifest.to_string_lossy()]);
    assert_eq!(sandbox.database()["spec"]["replicas"], 2);
    sandbox.await_ready();

    // An editor that changes the number and saves: what `kubectl edit` does with a person in front of it.
    let editor = sandbox.data().join("editor");
    std::fs::write(
        &editor,
        "#!/bin/sh\nexec sed -i 's/replicas: 2$/replicas: 3/' \"$1\"\n",
    )
    .expect("the editor can be written");
    let mut command = sandbox.kubectl_command(&["edit", "db", "cities"]);
    command.env("KUBE_EDITOR", format!("sh {}", editor.display()));
    let (status, output, errors) = run_within(&mut command, CHANGE_WITHIN);
    assert!(status.success(), "{output}{errors}");
    assert_eq!(
        sandbox.database()["spec"]["replicas"],
        3,
        "{output}{errors}"
    );
    sandbox.await_ready();
}

fn a_wrong_spec_is_refused_with_the_field(sandbox: &Sandbox) {
    let patch = r#"{"spec":{"replicas":0}}"#;
    let output = sandbox.try_kubectl(&["patch", "db", "cities", "--type", "merge", "-p", patch]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "zero instances are refused");
    assert!(errors.contains("spec.replicas"), "{errors}");
}

fn delete_leaves_nothing_but_what_the_policy_keeps(sandbox: &Sandbox) {
    sandbox.kubectl(&["delete", "db", "cities"]);
    eventually("nothing of the database is left", CHANGE_WITHIN, || {
        let left = sandbox.kubectl(&[
            "get",
            "db,pods,svc,secret,configmap,lease,endpointslice,serviceaccount,role,rolebinding",
            "-o",
            "name",
        ]);
        let ours: Vec<&str> = left
            .lines()
            .filter(|name| name.contains("/cities"))
            .collect();
        if ours.is_empty() {
            Ok(())
        } else {
            Err(ours.join(" "))
        }
    });
}
