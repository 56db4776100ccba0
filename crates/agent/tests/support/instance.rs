//! One instance's pod: bubblewrap around the agent, with what a node would give it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use geodb_ha::environment as words;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::sql::APP_DATABASE;
use super::{Cluster, DATABASE, NAMESPACE, eventually};

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const HEALTH_PORT: &str = "8008";

pub struct Instance {
    pub name: String,
    pub address: String,
    /// The claim; it stays when the pod goes.
    pub volume: PathBuf,
    /// The pod's emptyDir with the socket in it.
    pub run: PathBuf,
    directory: PathBuf,
    pod: Option<Child>,
}

impl Instance {
    pub fn new(cluster: &Cluster, serial: u8, directory: &Path) -> Self {
        let (volume, run) = (directory.join("volume"), directory.join("run"));
        for path in [&volume, &run] {
            fs::create_dir_all(path).unwrap();
        }
        Self {
            name: format!("{DATABASE}-{serial}"),
            address: cluster.api.pod_address(serial),
            volume,
            run,
            directory: directory.to_owned(),
            pod: None,
        }
    }

    /// Starts the container, on the volume as it is.
    pub fn start(&mut self, cluster: &Cluster) {
        assert!(self.pod.is_none(), "{} already runs", self.name);
        let account = self.directory.join("account");
        fs::create_dir_all(&account).unwrap();
        fs::write(account.join("token"), &cluster.api.token).unwrap();
        fs::write(account.join("ca.crt"), &cluster.api.authority).unwrap();
        fs::write(account.join("namespace"), NAMESPACE).unwrap();
        fs::write(
            self.directory.join("passwd"),
            "postgres:x:999:999::/:/bin/false\n",
        )
        .unwrap();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let mut bubblewrap = Command::new("bwrap");
        bubblewrap.args(self.isolation(cluster, &account));
        // The program is this test binary, told to be the agent.
        bubblewrap.args([
            "/opt/geodb/geodb",
            "agent_program",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ]);
        bubblewrap
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.pod = Some(bubblewrap.spawn().unwrap());
    }

    fn isolation(&self, cluster: &Cluster, account: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut arguments: Vec<String> = "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --uid 999 --gid 999 --as-pid-1 \
             --die-with-parent --new-session --clearenv --tmpfs / --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
             --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp --ro-bind /etc/alternatives /etc/alternatives"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        // Or the program that is named here, to measure the one that is shipped.
        let named = std::env::var_os("GEODB_TEST_PROGRAM").map(PathBuf::from);
        let own = named.unwrap_or_else(|| std::env::current_exe().unwrap());
        for (source, target) in [
            (own.as_path(), words::PROGRAM_PATH),
            (&self.directory.join("passwd"), "/etc/passwd"),
            (account, SERVICE_ACCOUNT),
            (&cluster.secrets.server, words::SERVER_SECRET_PATH),
            (&cluster.secrets.replication, words::REPLICATION_SECRET_PATH),
            (&cluster.secrets.app, words::APP_SECRET_PATH),
        ] {
            arguments.extend(["--ro-bind".to_owned(), text(source), target.to_owned()]);
        }
        for (source, target) in [
            (&self.volume, words::VOLUME_PATH),
            (&self.run, words::RUN_PATH),
        ] {
            arguments.extend(["--bind".to_owned(), text(source), target.to_owned()]);
        }
        let api = cluster.api.address;
        for (name, value) in [
            ("KUBERNETES_SERVICE_HOST", api.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT", api.port().to_string()),
            ("PATH", "/usr/bin:/bin".to_owned()),
            ("RUST_LOG", "info,geodb_agent=debug".to_owned()),
            (super::super::AGENT_MARK, "1".to_owned()),
            (words::DATABASE, DATABASE.to_owned()),
            (words::INSTANCE, self.name.clone()),
            (words::NAMESPACE, NAMESPACE.to_owned()),
            (words::POD_IP, self.address.clone()),
            (words::APP_DATABASE, APP_DATABASE.to_owned()),
            (words::EXTENSIONS, cluster.extensions.to_owned()),
        ] {
            arguments.extend(["--setenv".to_owned(), name.to_owned(), value]);
        }
        arguments
    }

    pub fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// Kills the whole container, as a node does that has lost patience.
    pub async fn kill(&mut self) {
        let mut pod = self.pod.take().expect("a running pod");
        pod.kill().await.unwrap();
        // The namespace's processes die with it, a moment later.
        let lock = self.volume.join("state/lock");
        eventually("the container is gone", || async {
            let file = File::open(&lock).ok()?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()
        })
        .await;
    }

    /// Asks PID 1 to end, and waits for it.
    pub async fn terminate(&mut self) -> std::process::ExitStatus {
        kill_process(self.agent_pid(), Signal::TERM).unwrap();
        let mut pod = self.pod.take().expect("a running pod");
        tokio::time::timeout(super::PATIENCE, pod.wait())
            .await
            .expect("the container ends")
            .unwrap()
    }

    /// The number of the agent's process, outside its namespace.
    pub fn agent_pid(&self) -> Pid {
        let bubblewrap = self
            .pod
            .as_ref()
            .and_then(Child::id)
            .expect("a running pod") as i32;
        let children = children_of(bubblewrap);
        Pid::from_raw(*children.first().expect("bubblewrap has a child")).unwrap()
    }

    /// Every process of the container besides the agent: the postmaster first, then its children.
    pub fn postgres_pids(&self) -> Vec<i32> {
        let postmasters = children_of(self.agent_pid().as_raw_nonzero().get());
        let backends = postmasters.iter().flat_map(|pid| children_of(*pid));
        postmasters
            .iter()
            .copied()
            .chain(backends.collect::<Vec<_>>())
            .collect()
    }

    pub fn postmaster(&self) -> Pid {
        Pid::from_raw(*self.postgres_pids().first().expect("a postmaster")).unwrap()
    }

    pub fn is_running(&mut self) -> bool {
        self.pod
            .as_mut()
            .is_some_and(|pod| pod.try_wait().unwrap().is_none())
    }

    /// What a probe says: whether it is ready, and why.
    pub async fn probe(&self, path: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(format!("{}:{HEALTH_PORT}", self.address))
            .await
            .ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status = answer.split_whitespace().nth(1)?.parse().ok()?;
        let body = answer.split_once("\r\n\r\n")?.1;
        Some((status, serde_json::from_str(body).ok()?))
    }

    pub async fn reason(&self) -> Option<String> {
        Some(
            self.probe(words::READY_PATH).await?.1["reason"]
                .as_str()?
                .to_owned(),
        )
    }

    /// Waits until the readiness probe succeeds.
    pub async fn ready(&self) {
        self.says("ready", |status, _| status == 200).await;
    }

    pub async fn waits_until_not_ready(&self) {
        self.says("not ready", |status, _| status == 503).await;
    }

    /// Another pod gets another emptyDir.
    pub fn replace_run_directory(&mut self) {
        self.run = self.directory.join("run-of-the-next-pod");
        fs::create_dir_all(&self.run).unwrap();
    }

    /// Kills the container and starts it again in the same pod.
    pub async fn restart(&mut self, cluster: &Cluster) {
        self.kill().await;
        self.start(cluster);
    }

    /// Waits until the instance gives this reason.
    pub async fn waits_because(&self, reason: &str) {
        self.says(reason, |status, said| status == 503 && said == reason)
            .await;
    }

    async fn says(&self, what: &str, check: impl Fn(u16, &str) -> bool) {
        let check = &check;
        let began = std::time::Instant::now();
        loop {
            let said = self.probe(words::READY_PATH).await;
            if let Some((status, body)) = &said
                && check(*status, body["reason"].as_str().unwrap_or_default())
            {
                return;
            }
            assert!(
                began.elapsed() < super::PATIENCE,
                "{} is not {what}; it says {said:?}\n{}",
                self.name,
                self.log()
            );
            tokio::time::sleep(super::LOOK_EVERY).await;
        }
    }
}

fn children_of(parent: i32) -> Vec<i32> {
    let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent_of = |pid: i32| {
        stat(pid)
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse::<i32>()
            .ok()
    };
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}
