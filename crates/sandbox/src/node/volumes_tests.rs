//! Tests of `volumes`: what may be mounted where.
#![allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]

use super::*;
use serde_json::{Value, json};

fn mounts(directory: &Path, read_only: bool, mount: Value) -> Result<Vec<Mount>, String> {
    let volume = PreparedVolume {
        directory: directory.to_owned(),
        read_only,
    };
    let prepared = Prepared {
        volumes: [("v".to_owned(), volume)].into(),
        renew_at: None,
    };
    let container: Container =
        serde_json::from_value(json!({"name": "c", "volumeMounts": [mount]})).expect("a container");
    prepared
        .mounts(&container)
        .map_err(|error| error.to_string())
}

#[test]
fn a_mount_is_read_only_when_the_volume_or_the_mount_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (volume, mount, expected) in [
        (false, false, false),
        (true, false, true),
        (false, true, true),
    ] {
        let made = mounts(
            directory.path(),
            volume,
            json!({"name": "v", "mountPath": "/x", "readOnly": mount}),
        )
        .expect("a mount");
        assert_eq!(
            made,
            [Mount {
                source: directory.path().to_owned(),
                target: "/x".into(),
                read_only: expected
            }]
        );
    }
}

#[test]
fn a_sub_path_is_made_in_the_volume_and_cannot_leave_it() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::os::unix::fs::symlink("/etc", directory.path().join("out")).expect("a link");
    let made = mounts(
        directory.path(),
        false,
        json!({"name": "v", "mountPath": "/x", "subPath": "a/b"}),
    )
    .expect("a mount");
    assert_eq!(
        made[0].source,
        directory.path().canonicalize().expect("a path").join("a/b")
    );
    assert!(made[0].source.is_dir());
    for bad in ["../x", "/etc", "out", "out/ssl", "a/../../x"] {
        let error = mounts(
            directory.path(),
            false,
            json!({"name": "v", "mountPath": "/x", "subPath": bad}),
        )
        .expect_err("refused");
        assert!(error.contains("subPath"), "{bad}: {error}");
    }
    assert!(
        mounts(
            directory.path(),
            true,
            json!({"name": "v", "mountPath": "/x", "subPath": "absent"})
        )
        .is_err()
    );
}

#[test]
fn impossible_mounts_are_refused() {
    let directory = Path::new("/tmp");
    for (mount, expected) in [
        (json!({"name": "w", "mountPath": "/x"}), "does not have"),
        (json!({"name": "v", "mountPath": "x"}), "absolute"),
        (json!({"name": "v", "mountPath": "/a/../b"}), "absolute"),
        (json!({"name": "v", "mountPath": "/"}), "root"),
        (
            json!({"name": "v", "mountPath": "/x", "subPathExpr": "$(A)"}),
            "subPathExpr",
        ),
    ] {
        let error = mounts(directory, false, mount).expect_err("refused");
        assert!(
            error.contains(expected),
            "{error} should contain {expected}"
        );
    }
}
