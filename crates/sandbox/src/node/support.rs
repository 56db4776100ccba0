//! What a pod may ask for that this node does not do: refused with a reason, never quietly left out.
//!
//! Quietly true here, and in `docs/sandbox.md`: resource requests and limits are not enforced, `seccompProfile` is accepted and not applied, `emptyDir` with medium Memory
//! is a directory, and containers of a pod do not share `/dev/shm`.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// The first thing that cannot be done, in words for its author.
pub fn refusal(pod: &Pod, container: &Container) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let asked = of_pod(spec).or_else(|| of_container(spec, container))?;
    Some(format!("the sandbox's node does not do {asked}"))
}

fn of_pod(spec: &PodSpec) -> Option<&'static str> {
    let checks = [
        (
            spec.host_network == Some(true),
            "hostNetwork: every pod has its own loopback address",
        ),
        (spec.host_pid == Some(true), "hostPID"),
        (spec.host_ipc == Some(true), "hostIPC"),
        (
            spec.share_process_namespace == Some(true),
            "shareProcessNamespace",
        ),
        (
            spec.host_aliases
                .as_ref()
                .is_some_and(|aliases| !aliases.is_empty()),
            "hostAliases: /etc/hosts belongs to the namespace",
        ),
        (
            spec.ephemeral_containers
                .as_ref()
                .is_some_and(|containers| !containers.is_empty()),
            "ephemeral containers",
        ),
        (
            spec.active_deadline_seconds.is_some(),
            "activeDeadlineSeconds",
        ),
        (
            spec.runtime_class_name.is_some(),
            "runtimeClassName: there is one runtime, bubblewrap",
        ),
        (
            spec.init_containers
                .iter()
                .flatten()
                .any(|container| container.restart_policy.is_some()),
            "init containers with a restartPolicy (sidecars)",
        ),
        (
            spec.os.as_ref().is_some_and(|os| os.name != "linux"),
            "any operating system but linux",
        ),
    ];
    checks
        .into_iter()
        .find_map(|(asked, what)| asked.then_some(what))
}

fn of_container(spec: &PodSpec, container: &Container) -> Option<&'static str> {
    let context = container.security_context.as_ref();
    let adds = context
        .and_then(|context| context.capabilities.as_ref())
        .and_then(|capabilities| capabilities.add.as_ref());
    let groups = spec
        .security_context
        .as_ref()
        .and_then(|context| context.supplemental_groups.as_ref());
    let mounts = container.volume_mounts.iter().flatten();
    let checks = [
        (
            context.and_then(|context| context.privileged) == Some(true),
            "privileged containers",
        ),
        (
            adds.is_some_and(|adds| !adds.is_empty()),
            "added capabilities: containers have none",
        ),
        (
            groups.is_some_and(|groups| !groups.is_empty()),
            "supplementalGroups: a container has one user and one group",
        ),
        (
            container.lifecycle.as_ref().is_some_and(|lifecycle| {
                lifecycle.post_start.is_some() || lifecycle.pre_stop.is_some()
            }),
            "lifecycle hooks",
        ),
        (
            container
                .lifecycle
                .as_ref()
                .is_some_and(|lifecycle| lifecycle.stop_signal.is_some()),
            "a stopSignal other than SIGTERM",
        ),
        (
            container.tty == Some(true) || container.stdin == Some(true),
            "stdin and tty",
        ),
        (
            container
                .volume_devices
                .as_ref()
                .is_some_and(|devices| !devices.is_empty()),
            "volumeDevices",
        ),
        (
            mounts.into_iter().any(|mount| {
                mount
                    .mount_propagation
                    .as_deref()
                    .is_some_and(|propagation| propagation != "None")
            }),
            "mountPropagation",
        ),
    ];
    checks
        .into_iter()
        .find_map(|(asked, what)| asked.then_some(what))
}

/// The user and group a container runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub user: u32,
    pub group: u32,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdentityError {
    #[error("container has runAsNonRoot and image will run as root (container: {0})")]
    ImageRunsAsRoot(String),
    #[error("container's runAsUser breaks non-root policy (container: {0})")]
    UserIsRoot(String),
    #[error("runAsUser and runAsGroup have to be between 0 and 4294967294 (container: {0})")]
    OutOfRange(String),
}

/// The container's word over the pod's over the image's.
pub fn identity(
    pod: &Pod,
    container: &Container,
    image_user: u32,
) -> Result<Identity, IdentityError> {
    let of_pod = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref());
    let of_container = container.security_context.as_ref();
    let number = |value: i64| {
        u32::try_from(value)
            .ok()
            .filter(|number| *number != u32::MAX)
            .ok_or_else(|| IdentityError::OutOfRange(container.name.clone()))
    };
    let asked = of_container
        .and_then(|context| context.run_as_user)
        .or(of_pod.and_then(|context| context.run_as_user));
    let group = of_container
        .and_then(|context| context.run_as_group)
        .or(of_pod.and_then(|context| context.run_as_group));
    let non_root = of_container
        .and_then(|context| context.run_as_non_root)
        .or(of_pod.and_then(|context| context.run_as_non_root))
        == Some(true);
    let user = asked.map_or(Ok(image_user), number)?;
    if non_root && user == 0 {
        return Err(if asked.is_some() {
            IdentityError::UserIsRoot(container.name.clone())
        } else {
            IdentityError::ImageRunsAsRoot(container.name.clone())
        });
    }
    // A container runtime gives group 0 to a user that names none.
    Ok(Identity {
        user,
        group: group.map_or(Ok(0), number)?,
    })
}

/// The user of PostgreSQL in the stock images.
const POSTGRES: u32 = 999;

/// The home directory `accounts` gives the user.
pub fn home(identity: Identity) -> &'static str {
    match identity.user {
        0 => "/root",
        POSTGRES => "/var/lib/postgresql",
        _ => "/",
    }
}

/// `/etc/passwd` and `/etc/group` that know root and the container's user.
pub fn accounts(identity: Identity) -> (String, String) {
    let Identity { user, group } = identity;
    let name = if user == POSTGRES { "postgres" } else { "user" };
    let home = home(identity);
    let mut passwd = "root:x:0:0:root:/root:/bin/sh\n".to_owned();
    let mut groups = "root:x:0:\n".to_owned();
    if user != 0 {
        passwd.push_str(&format!("{name}:x:{user}:{group}::{home}:/bin/sh\n"));
    }
    if group != 0 {
        groups.push_str(&format!("{name}:x:{group}:\n"));
    }
    (passwd, groups)
}

#[cfg(test)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    fn refused(spec: Value) -> Option<String> {
        let pod = pod(spec);
        refusal(&pod, &pod.spec.as_ref().expect("a spec").containers[0])
    }

    #[test]
    fn an_ordinary_hardened_pod_is_not_refused() {
        let spec = json!({"securityContext": {"runAsUser": 999, "fsGroup": 999, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false}}]});
        assert_eq!(refused(spec), None);
    }

    #[test]
    fn what_is_not_done_is_named() {
        let table = [
            (
                json!({"hostNetwork": true, "containers": [{"name": "c"}]}),
                "hostNetwork",
            ),
            (
                json!({"containers": [{"name": "c", "securityContext": {"privileged": true}}]}),
                "privileged",
            ),
            (
                json!({"containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}]}),
                "capabilities",
            ),
            (
                json!({"containers": [{"name": "c", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]}),
                "lifecycle",
            ),
            (
                json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "c"}]}),
                "sidecars",
            ),
        ];
        for (spec, expected) in table {
            assert!(
                refused(spec).is_some_and(|reason| reason.contains(expected)),
                "{expected}"
            );
        }
    }

    #[test]
    fn the_containers_identity_wins_and_root_is_refused_where_it_is_not_wanted() {
        let of = |spec: Value, image_user: u32| {
            let pod = pod(spec);
            identity(
                &pod,
                &pod.spec.as_ref().expect("a spec").containers[0],
                image_user,
            )
        };
        let both = json!({"securityContext": {"runAsUser": 5, "runAsGroup": 6}, "containers": [{"name": "c", "securityContext": {"runAsUser": 7}}]});
        assert_eq!(of(both, 0), Ok(Identity { user: 7, group: 6 }));
        let non_root =
            json!({"securityContext": {"runAsNonRoot": true}, "containers": [{"name": "c"}]});
        assert_eq!(
            of(non_root.clone(), 0),
            Err(IdentityError::ImageRunsAsRoot("c".to_owned()))
        );
        assert_eq!(
            of(non_root, 65532),
            Ok(Identity {
                user: 65532,
                group: 0
            })
        );
        let root = json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}, "containers": [{"name": "c"}]});
        assert_eq!(
            of(root, 65532),
            Err(IdentityError::UserIsRoot("c".to_owned()))
        );
        let negative = json!({"securityContext": {"runAsUser": -1}, "containers": [{"name": "c"}]});
        assert!(matches!(of(negative, 0), Err(IdentityError::OutOfRange(_))));
    }

    #[test]
    fn user_999_is_postgres() {
        let (passwd, groups) = accounts(Identity {
            user: 999,
            group: 999,
        });
        assert!(passwd.contains("postgres:x:999:999:") && groups.contains("postgres:x:999:"));
        assert_eq!(
            accounts(Identity { user: 0, group: 0 }),
            (
                "root:x:0:0:root:/root:/bin/sh\n".to_owned(),
                "root:x:0:\n".to_owned()
            )
        );
    }
}
