//! The argument vector of bubblewrap for one container: pure, so that it can be printed and compared.
//!
//! It is the whole isolation: own mount, PID, IPC, UTS and user namespaces; a private root layer over the host's programs, which are
//! read-only; the network stays the host's, because pods have loopback addresses. Not here: cgroups (limits of memory and CPU are not
//! enforced), seccomp filters, and terminals (no `/dev/pts`: with it bubblewrap nests a second user namespace, which a normal user cannot
//! enter again for exec).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::limits::{ROOT_LAYER_BYTES, SHARED_MEMORY_BYTES};

/// Parts of the host's `/etc` that programs need and that tell nothing about the host's users or services. Absent ones are skipped.
const HOST_CONFIGURATION: [&str; 24] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "default/locale",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "perl",
    "postgresql-common",
    "protocols",
    "resolv.conf",
    "services",
    "terminfo",
];
/// Certificates live in a directory that may also hold the host's private keys, so only the public part is shown.
const HOST_CERTIFICATES: [&str; 2] = ["/etc/ssl/certs", "/etc/ssl/openssl.cnf"];
/// Devices every container runtime gives.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// How the host lays out one of the old top-level program directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostDirectory {
    /// `/lib -> usr/lib`, as on merged systems.
    Link { path: PathBuf, target: PathBuf },
    /// A real directory.
    Directory { path: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

/// Everything that decides how a container sees the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bubble {
    pub user: u32,
    pub group: u32,
    pub hostname: String,
    pub host_directories: Vec<HostDirectory>,
    pub read_only_root: bool,
    pub mounts: Vec<Mount>,
    pub working_directory: PathBuf,
    /// Variables that would also steer the dynamic loader of bubblewrap itself, which runs outside the container. All other variables
    /// travel in the process environment, where other users of the machine cannot read them.
    pub inner_environment: Vec<(String, String)>,
    pub command: Vec<String>,
}

impl Bubble {
    /// The arguments after the program name.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Arguments::default();
        self.namespaces(&mut arguments);
        self.root(&mut arguments);
        devices(&mut arguments);
        configuration(&mut arguments);
        self.volumes(&mut arguments);
        if self.read_only_root {
            arguments.add(["--remount-ro", "/"]);
        }
        arguments.add(["--chdir"]);
        arguments.path(&self.working_directory);
        for (name, value) in &self.inner_environment {
            arguments.add(["--setenv", name, value]);
        }
        arguments.add(["--"]);
        arguments.add(self.command.iter().map(String::as_str));
        arguments.0
    }

    fn namespaces(&self, arguments: &mut Arguments) {
        arguments.add([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
        ]);
        arguments.add([
            "--uid",
            &self.user.to_string(),
            "--gid",
            &self.group.to_string(),
        ]);
        // PID 1 is the container's own process, as in a cluster: it gets the signals and reaps, and its end ends the container.
        arguments.add([
            "--as-pid-1",
            "--die-with-parent",
            "--new-session",
            "--hostname",
            &self.hostname,
        ]);
    }

    fn root(&self, arguments: &mut Arguments) {
        arguments.add([
            "--size",
            &ROOT_LAYER_BYTES.to_string(),
            "--tmpfs",
            "/",
            "--ro-bind",
            "/usr",
            "/usr",
        ]);
        for directory in &self.host_directories {
            match directory {
                HostDirectory::Link { path, target } => {
                    arguments.add(["--symlink"]);
                    arguments.path(target);
                    arguments.path(path);
                }
                HostDirectory::Directory { path } => {
                    arguments.add(["--ro-bind"]);
                    arguments.path(path);
                    arguments.path(path);
                }
            }
        }
        for directory in ["/etc", "/home", "/root", "/run", "/var/lib"] {
            arguments.add(["--dir", directory]);
        }
        for directory in ["/tmp", "/var/tmp"] {
            arguments.add(["--perms", "1777", "--dir", directory]);
        }
        // Relative: while the root is being built an absolute link would lead out of it, and mounts below it would fail.
        arguments.add(["--symlink", "../run", "/var/run", "--proc", "/proc"]);
    }

    fn volumes(&self, arguments: &mut Arguments) {
        // A mount may lie within another one: parents first, in the order of their depth.
        let mut mounts: Vec<&Mount> = self.mounts.iter().collect();
        mounts.sort_by_key(|mount| mount.target.components().count());
        for mount in mounts {
            arguments.add([if mount.read_only {
                "--ro-bind"
            } else {
                "--bind"
            }]);
            arguments.path(&mount.source);
            arguments.path(&mount.target);
        }
    }
}

fn devices(arguments: &mut Arguments) {
    arguments.add(["--dir", "/dev"]);
    for device in DEVICES {
        let path = format!("/dev/{device}");
        arguments.add(["--dev-bind-try", &path, &path]);
    }
    for (target, link) in [
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ] {
        arguments.add(["--symlink", target, &format!("/dev/{link}")]);
    }
    arguments.add([
        "--perms",
        "1777",
        "--size",
        &SHARED_MEMORY_BYTES.to_string(),
        "--tmpfs",
        "/dev/shm",
    ]);
}

fn configuration(arguments: &mut Arguments) {
    for name in HOST_CONFIGURATION {
        let path = format!("/etc/{name}");
        arguments.add(["--ro-bind-try", &path, &path]);
    }
    for path in HOST_CERTIFICATES {
        arguments.add(["--ro-bind-try", path, path]);
    }
}

/// Whether a variable of this name would change how a program outside the container is loaded or translated.
pub fn steers_the_loader(name: &str) -> bool {
    const PREFIXES: [&str; 3] = ["LD_", "GLIBC_", "MALLOC_"];
    const NAMES: [&str; 5] = [
        "GCONV_PATH",
        "GETCONF_DIR",
        "LOCPATH",
        "NLSPATH",
        "HOSTALIASES",
    ];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || NAMES.contains(&name)
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    fn path(&mut self, path: &Path) {
        self.0.push(path.as_os_str().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bubble() -> Bubble {
        Bubble {
            user: 999,
            group: 998,
            hostname: "villages-1".to_owned(),
            host_directories: vec![
                HostDirectory::Link {
                    path: "/lib".into(),
                    target: "usr/lib".into(),
                },
                HostDirectory::Directory {
                    path: "/bin".into(),
                },
            ],
            read_only_root: true,
            mounts: vec![
                Mount {
                    source: "/d/inner".into(),
                    target: "/data/inner".into(),
                    read_only: true,
                },
                Mount {
                    source: "/d/outer".into(),
                    target: "/data".into(),
                    read_only: false,
                },
            ],
            working_directory: "/".into(),
            inner_environment: vec![("LD_PRELOAD".to_owned(), "/x.so".to_owned())],
            command: vec!["program".to_owned(), "--flag".to_owned()],
        }
    }

    fn printed(bubble: &Bubble) -> String {
        let words: Vec<String> = bubble
            .arguments()
            .into_iter()
            .map(|word| word.into_string().expect("text"))
            .collect();
        words.join(" ").replace(" --", "\n--") + "\n"
    }

    #[test]
    fn the_argument_vector_is_the_golden_one() {
        assert_eq!(
            printed(&bubble()),
            include_str!("golden/bubble.txt"),
            "if meant, write it anew to src/node/golden/bubble.txt"
        );
    }

    #[test]
    fn a_writable_root_is_not_remounted() {
        let writable = Bubble {
            read_only_root: false,
            ..bubble()
        };
        assert!(!printed(&writable).contains("--remount-ro"));
    }

    #[test]
    fn names_that_steer_the_loader_stay_inside() {
        assert!(steers_the_loader("LD_LIBRARY_PATH") && steers_the_loader("GCONV_PATH"));
        assert!(!steers_the_loader("PGPASSWORD") && !steers_the_loader("LDAP_URL"));
    }
}
