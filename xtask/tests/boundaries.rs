//! Who may depend on whom, read from what cargo resolves. The crates' cut is the design; a dependency that crosses it is a design change.

use std::collections::BTreeSet;
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crates that decide: no runtime, no client, no randomness reaches them, not even through others.
const PURE: [&str; 4] = ["geodb-api", "geodb-ha", "geodb-merge", "geodb-plan"];
/// What a pure crate must not link, however indirectly.
const IMPURE: [&str; 9] = [
    "kube-client",
    "kube-runtime",
    "tokio",
    "hyper",
    "async-std",
    "smol",
    "rand",
    "reqwest",
    "tracing-subscriber",
];
/// Crates that run on a real cluster: they must not know that there is a sandbox or a simulator.
const UNAWARE_OF_THE_SANDBOX: [&str; 2] = ["geodb-agent", "geodb-operator"];
const SANDBOX_SIDE: [&str; 2] = ["geodb-sandbox", "geodb-sim"];

/// The crates that `package` links when built alone (so that no other member's features blur the answer), itself included.
fn linked_by(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(xtask::repository())
        .args([
            "tree",
            "--locked",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .output()
        .expect("cargo tree starts");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The names a member asks for in its own Cargo.toml, without its tests' ones.
fn asked_for_by(package: &str) -> BTreeSet<String> {
    let metadata = MetadataCommand::new()
        .manifest_path(xtask::repository().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata answers");
    let member = metadata
        .packages
        .iter()
        .find(|member| member.name.as_str() == package)
        .unwrap_or_else(|| panic!("{package} is a member of the workspace"));
    member
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind != DependencyKind::Development)
        .map(|dependency| dependency.name.clone())
        .collect()
}

#[test]
fn pure_crates_link_no_runtime_client_or_randomness() {
    for package in PURE {
        let linked = linked_by(package);
        let breaches: Vec<&&str> = IMPURE
            .iter()
            .filter(|name| linked.contains(**name))
            .collect();
        assert!(
            breaches.is_empty(),
            "{package} is pure but links {breaches:?}; `cargo tree -p {package} -e normal -i NAME` says through whom"
        );
    }
}

#[test]
fn pure_crates_depend_on_pure_crates_of_ours_only() {
    for package in PURE {
        for name in asked_for_by(package)
            .iter()
            .filter(|name| name.starts_with("geodb"))
        {
            assert!(
                PURE.contains(&name.as_str()),
                "{package} is pure but depends on {name}"
            );
        }
    }
}

#[test]
fn operator_and_agent_do_not_know_the_sandbox() {
    for package in UNAWARE_OF_THE_SANDBOX {
        let linked = linked_by(package);
        for name in SANDBOX_SIDE {
            assert!(!linked.contains(name), "{package} links {name}");
        }
    }
}

#[test]
fn the_kit_and_merge_know_nothing_of_geodb() {
    for package in ["geodb-kit", "geodb-merge"] {
        let ours: Vec<String> = linked_by(package)
            .into_iter()
            .filter(|name| name.starts_with("geodb") && name != package)
            .collect();
        assert!(ours.is_empty(), "{package} stands alone but links {ours:?}");
    }
}

#[test]
fn the_sandbox_knows_neither_operator_nor_agent() {
    let linked = linked_by("geodb-sandbox");
    for name in ["geodb-operator", "geodb-agent", "geodb-api", "geodb-plan"] {
        assert!(
            !linked.contains(name),
            "geodb-sandbox links {name}: it serves any operator, ours like others"
        );
    }
}
