//! What the machine must have before a node can run pods, found out before anything starts.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Something is missing; the text says what to install or enable.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error(
        "pods run in bubblewrap, which is not installed; install it with: apt-get install bubblewrap"
    )]
    Bubblewrap,
    #[error(
        "bubblewrap cannot make the namespaces pods run in ({said}); user namespaces have to be allowed: sysctl -w kernel.unprivileged_userns_clone=1, \
         user.max_user_namespaces above 0, and on AppArmor systems kernel.apparmor_restrict_unprivileged_userns=0; or run the sandbox as root"
    )]
    Namespaces { said: String },
    #[error("failed to run bubblewrap: {0}")]
    Run(#[source] io::Error),
}

/// The full path of a program, from our own `PATH`: a container's `PATH` must not decide what runs outside it.
pub fn program(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("the program {name} is not installed or not on PATH"),
            )
        })
}

/// Starts a container that does nothing, with every kind of namespace a pod will ask for.
pub fn preflight() -> Result<(), Missing> {
    let bubblewrap = program("bwrap").map_err(|_| Missing::Bubblewrap)?;
    let output = Command::new(bubblewrap)
        .args([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--uid",
            "999",
            "--gid",
            "999",
            "--as-pid-1",
            "--die-with-parent",
        ])
        .args([
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--",
            "/usr/bin/true",
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(Missing::Run)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Missing::Namespaces {
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
