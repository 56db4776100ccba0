//! What is printed once the sandbox is up: lines to copy, and what to try.

use std::path::Path;

use super::connect::{Connection, shell_word};

/// How to use kubectl here, and each database.
pub fn welcome(kubeconfig: &Path, connections: &[Connection]) -> String {
    let mut text = String::from("\n");
    for connection in connections {
        text.push_str(&format!(
            "{} is ready. Connect from any terminal:\n{}\n",
            connection.database,
            connection.lines()
        ));
    }
    text.push_str("Use kubectl (1.34 or newer) in another terminal:\n");
    text.push_str(&format!("  export KUBECONFIG={}\n", shell_word(kubeconfig)));
    text.push_str("  kubectl get db,pods,pvc,svc\n");
    if let Some(connection) = connections.first() {
        text.push_str(&things_to_try(connection));
    }
    text.push_str("\nCtrl-C stops everything.\n");
    text
}

fn things_to_try(connection: &Connection) -> String {
    let Connection {
        database,
        namespace,
        ..
    } = connection;
    let option = if namespace == super::apply::DEFAULT_NAMESPACE {
        String::new()
    } else {
        format!(" -n {namespace}")
    };
    let primary = format!("$(kubectl{option} get db {database} -o jsonpath='{{.status.primary}}')");
    // The postmaster is the process that listens on the pod's own address.
    let address = format!("$(kubectl{option} get pod {primary} -o jsonpath='{{.status.podIP}}')");
    let postmaster = format!(
        "$(ss -Hltnp \"src {address}:{}\" | grep -o 'pid=[0-9]*' | head -n 1 | cut -d= -f2)",
        connection.port
    );
    format!(
        "\nThings to try:\n  \
         kubectl{option} scale db {database} --replicas 4     # a replica is cloned and streams\n  \
         kubectl{option} delete pod {primary}     # the primary comes back with its data\n  \
         kill -9 {postmaster}     # so does a killed PostgreSQL\n  \
         kubectl{option} describe db {database}     # conditions and events\n  \
         kubectl{option} logs {primary}     # PostgreSQL's and the agent's log\n  \
         kubectl{option} delete db {database}     # everything goes, but what spec.onDelete keeps\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_can_be_copied() {
        let text = welcome(Path::new("/my data/kubeconfig"), &[Connection::for_tests()]);
        for line in [
            "  psql 'postgresql://keeper:s3cret@127.9.128.1:5432/rivers'",
            "  psql 'postgresql://keeper:s3cret@127.9.128.2:5432/rivers'",
            "  export KUBECONFIG='/my data/kubeconfig'",
            "  kubectl -n water scale db rivers --replicas 4",
        ] {
            assert!(
                text.lines().any(|printed| printed.starts_with(line)),
                "{line}\n{text}"
            );
        }
    }

    #[test]
    fn without_a_database_there_is_still_a_kubeconfig() {
        let text = welcome(Path::new("/d/kubeconfig"), &[]);
        assert!(text.contains("export KUBECONFIG=/d/kubeconfig"), "{text}");
        assert!(!text.contains("psql"), "{text}");
    }
}
