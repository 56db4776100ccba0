//! Starts sandboxes and talks to them as a user would: kubectl, psql, signals.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// From nothing to three streaming instances, on two cores that other tests use too.
pub const READY_WITHIN: Duration = Duration::from_secs(180);
/// For one change (a scale, a restart) to be over.
pub const CHANGE_WITHIN: Duration = Duration::from_secs(120);
/// An orderly stop: PostgreSQL's fast shutdown, three times at once.
pub const STOP_WITHIN: Duration = Duration::from_secs(60);
/// How often a condition that nothing can announce to us is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The example that `make run` uses.
pub fn cities() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cities.yaml")
}

/// The binary under test.
pub fn geodb() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_geodb"));
    // A user's environment must not decide a test.
    for variable in [
        "KUBECONFIG",
        "PGHOST",
        "PGPORT",
        "PGUSER",
        "PGPASSWORD",
        "PGDATABASE",
        "PGSERVICE",
        "GEODB_LOG",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Looks until `look` finds what it looks for; its last complaint is the report.
pub fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        match look() {
            Ok(found) => return found,
            Err(complaint) if Instant::now() > deadline => {
                panic!("{what}: not within {} s: {complaint}", within.as_secs())
            }
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// The kubectl that scripts/test chose, or None if it could find and build none; then it has said so.
pub fn kubectl_program() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| match std::env::var("GEODB_KUBECTL") {
        Ok(none) if none == "none" => None,
        Ok(program) => Some(program),
        Err(_) => panic!("GEODB_KUBECTL is not set: run the tests with `make test` or scripts/test, which finds or builds a kubectl of 1.34 or newer"),
    });
    program.as_deref()
}

/// True if this story cannot be told without kubectl; says so where the test's reader sees it.
pub fn skipped_without_kubectl(story: &str) -> bool {
    let skipped = kubectl_program().is_none();
    if skipped {
        eprintln!("SKIPPED {story}: there is no kubectl of 1.34 or newer and no Go to build one");
    }
    skipped
}

/// A running sandbox with the example database in it.
pub struct Sandbox {
    child: Child,
    data: PathBuf,
    /// Kept so that the directory lives as long as the sandbox.
    _directory: Option<TempDir>,
}

impl Sandbox {
    /// A new one, in a directory of its own; returns when the database is ready.
    pub fn start() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("geodb-story-")
            .tempdir()
            .expect("a temporary directory");
        let mut sandbox = Self::start_in(directory.path());
        sandbox._directory = Some(directory);
        sandbox
    }

    /// One that goes on with what is in `data`; returns when the database is ready.
    pub fn start_in(data: &Path) -> Self {
        let output =
            std::fs::File::create(data.join("story.out")).expect("the output file can be made");
        let errors =
            std::fs::File::create(data.join("story.err")).expect("the error file can be made");
        let child = geodb()
            .args(["sandbox", "--data"])
            .arg(data)
            .arg("-f")
            .arg(cities())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("geodb starts");
        let mut sandbox = Self {
            child,
            data: data.to_owned(),
            _directory: None,
        };
        sandbox.await_welcome();
        sandbox
    }

    fn await_welcome(&mut self) {
        let output = self.data.join("story.out");
        eventually("the sandbox says how to connect", READY_WITHIN, || {
            let text = std::fs::read_to_string(&output).unwrap_or_default();
            if text.contains("Ctrl-C stops everything.") {
                return Ok(());
            }
            let errors = std::fs::read_to_string(self.data.join("story.err")).unwrap_or_default();
            if let Some(status) = self
                .child
                .try_wait()
                .expect("the sandbox can be waited for")
            {
                panic!("the sandbox ended with {status}:\n{errors}");
            }
            Err(errors)
        });
    }

    /// What it has printed, for the report of a failure.
    pub fn printed(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.data.join(name)).unwrap_or_default();
        format!("{}{}", read("story.err"), read("story.out"))
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// kubectl's answer, whatever it is.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_command(arguments)
            .output()
            .expect("kubectl starts")
    }

    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command =
            Command::new(kubectl_program().expect("stories that need kubectl ask first"));
        command
            .args(arguments)
            .env("KUBECONFIG", self.data.join("kubeconfig"))
            .env("HOME", &self.data);
        command
    }

    /// kubectl's output; anything but success fails the story.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(
            output.status.success(),
            "kubectl {}: {}\n{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn kubectl_json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.kubectl(&arguments)).expect("kubectl prints JSON")
    }

    /// Some server path, as text.
    pub fn raw(&self, path: &str) -> String {
        self.kubectl(&["get", "--raw", path])
    }

    pub fn database(&self) -> Value {
        self.kubectl_json(&["get", "db", "cities"])
    }

    pub fn primary(&self) -> String {
        self.database()["status"]["primary"]
            .as_str()
            .expect("there is a primary")
            .to_owned()
    }

    /// Waits until the Database says that it is ready in its current version.
    pub fn await_ready(&self) {
        eventually("the database is ready", CHANGE_WITHIN, || {
            let database = self.database();
            let conditions = database["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let ready = conditions
                .iter()
                .find(|condition| condition["type"] == "Ready");
            let current =
                database["status"]["observedGeneration"] == database["metadata"]["generation"];
            match ready {
                Some(ready) if ready["status"] == "True" && current => Ok(()),
                _ => Err(database["status"].to_string()),
            }
        });
    }

    /// The connection line that the user would copy: 0 is the primary's, 1 the replicas'.
    fn connection_line(&self, index: usize) -> String {
        let text =
            std::fs::read_to_string(self.data.join("story.out")).expect("the output can be read");
        let mut uris = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("psql '")?.split('\'').next());
        uris.nth(index)
            .expect("the welcome has a psql line")
            .to_owned()
    }

    /// One query as the owner over the read-write service; unaligned rows without headers.
    pub fn psql(&self, sql: &str) -> String {
        self.try_psql(sql)
            .unwrap_or_else(|error| panic!("psql: {error}\n{}", self.printed()))
    }

    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        query(&self.connection_line(0), sql)
    }

    /// The same over the read-only service.
    pub fn try_psql_read_only(&self, sql: &str) -> Result<String, String> {
        query(&self.connection_line(1), sql)
    }

    /// Ctrl-C, as the terminal sends it; returns when it has stopped.
    pub fn interrupt(mut self) -> ExitStatus {
        send("INT", self.pid());
        eventually("the sandbox stops in order", STOP_WITHIN, || {
            let status = self
                .child
                .try_wait()
                .expect("the sandbox can be waited for");
            status.ok_or_else(|| {
                std::fs::read_to_string(self.data.join("story.err")).unwrap_or_default()
            })
        })
    }

    /// No chance to clean up.
    pub fn kill(mut self) {
        self.child.kill().expect("the sandbox can be killed");
        self.child.wait().expect("the sandbox can be waited for");
    }
}

impl Drop for Sandbox {
    /// A story that fails half-way must not leave a sandbox behind; its pods die with it.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!(
                "the sandbox of the failed story printed:\n{}",
                self.printed()
            );
        }
    }
}

fn query(uri: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args([
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set",
            "ON_ERROR_STOP=1",
            "--command",
            sql,
            uri,
        ])
        .env("PGCONNECT_TIMEOUT", "5")
        .stdin(Stdio::null())
        .output()
        .expect("psql starts");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

pub fn send(signal: &str, pid: u32) {
    let status = Command::new("kill")
        .args(["-s", signal, &pid.to_string()])
        .status()
        .expect("kill starts");
    assert!(status.success(), "kill -s {signal} {pid}: {status}");
}

/// Runs a command that ends by itself, with a deadline; returns its status and output.
pub fn run_within(command: &mut Command, within: Duration) -> (ExitStatus, String, String) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let output = read_aside(child.stdout.take().expect("it is piped"));
    let errors = read_aside(child.stderr.take().expect("it is piped"));
    let deadline = Instant::now() + within;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the command can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!(
                "not done within {} s: {}",
                within.as_secs(),
                errors.join().unwrap_or_default()
            );
        }
        std::thread::sleep(LOOK_EVERY);
    };
    (
        status,
        output.join().expect("the output was read"),
        errors.join().expect("the errors were read"),
    )
}

/// Reads a pipe to its end on a thread of its own, so that the writer never waits for us.
fn read_aside(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // What could be read is what there is to report.
        let _ = from.read_to_string(&mut text);
        text
    })
}
