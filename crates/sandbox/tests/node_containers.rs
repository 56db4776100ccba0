//! Containers without an API server: what they see, how they end, and that they end with the process that started them, however that ends.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use geodb_sandbox::node::bwrap::{Bubble, Mount};
use geodb_sandbox::node::container::{RunningContainer, host_directories, start};
use geodb_sandbox::node::environment::Variables;
use geodb_sandbox::node::logs::LogWriter;
use geodb_sandbox::node::preflight;

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// A user with no rights and no files.
const NOBODY: u32 = 65534;
/// Names the directory of a test that runs itself again as a process to be killed.
const HOLDER_DIRECTORY: &str = "GEODB_TEST_HOLDER_DIRECTORY";

fn bubble(directory: &Path, script: &str) -> Bubble {
    Bubble {
        user: 999,
        group: 999,
        hostname: "test".to_owned(),
        host_directories: host_directories(),
        read_only_root: true,
        mounts: vec![Mount {
            source: directory.to_owned(),
            target: "/data".into(),
            read_only: false,
        }],
        working_directory: "/data".into(),
        inner_environment: vec![("LD_BIND_NOW".to_owned(), "1".to_owned())],
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
    }
}

fn variables() -> Variables {
    let mut variables = Variables::default();
    variables.set("PATH", "/usr/bin:/bin".to_owned());
    variables.set("odd.name", "odd value".to_owned());
    variables
}

async fn run(directory: &Path, script: &str) -> RunningContainer {
    let log = LogWriter::create(&directory.join("log/0.log")).expect("a log");
    start(&bubble(directory, script), &variables(), log)
        .await
        .expect("a container")
}

fn lines(directory: &Path) -> Vec<String> {
    let log = std::fs::read_to_string(directory.join("log/0.log")).expect("a log");
    log.lines()
        .map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned())
        .collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(POLL);
    }
}

/// Living processes that have this directory mounted.
fn processes_with(directory: &Path) -> Vec<u32> {
    let marker = directory
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    let processes = std::fs::read_dir("/proc")
        .expect("read")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|process| {
            std::fs::read_to_string(format!("/proc/{process}/mountinfo"))
                .is_ok_and(|mounts| mounts.contains(&marker))
        })
        .collect()
}

#[test]
fn this_machine_can_run_containers() {
    preflight().expect("bubblewrap works here; if not, the message says what to do");
}

#[tokio::test]
async fn a_container_is_alone_with_its_processes_and_its_files() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = "echo pid $$; ls /proc | grep -c '^[0-9]'; id -u; id -g; hostname; pwd; tr '\\0' '\\n' < /proc/1/environ | grep -E '^(odd.name|LD_BIND_NOW)=' | sort; \
                  touch /x 2>/dev/null || echo sealed; touch /data/mine && echo written; ls /home /root /etc/shadow 2>/dev/null; grep -c CapEff:.*0000000000000000 /proc/self/status";
    let exit = run(directory.path(), script)
        .await
        .wait()
        .await
        .expect("an end");
    assert_eq!((exit.code, exit.not_executed), (0, None));
    let lines = lines(directory.path());
    // PID 1, the `ls` and the `grep` that count.
    assert_eq!(
        lines[..7],
        ["pid 1", "3", "999", "999", "test", "/data", "LD_BIND_NOW=1"],
        "{lines:?}"
    );
    assert_eq!(
        lines[7..10],
        ["odd.name=odd value", "sealed", "written"],
        "{lines:?}"
    );
    assert!(
        lines.contains(&"/home:".to_owned()) && lines.last() == Some(&"1".to_owned()),
        "no capabilities, an empty home: {lines:?}"
    );
    assert!(
        !lines.iter().any(|line| line.contains("shadow")),
        "{lines:?}"
    );
}

#[tokio::test]
async fn the_word_reaches_pid_1_and_force_ends_everything() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let polite = run(
        directory.path(),
        "trap 'exit 5' TERM; touch /data/up; while :; do sleep 0.02; done",
    )
    .await;
    until("it is up", || directory.path().join("up").exists());
    assert!(polite.process().terminate().await);
    assert_eq!(polite.wait().await.expect("an end").code, 5);
    let deaf = run(
        directory.path(),
        "trap '' TERM; setsid sleep 1000 & touch /data/deaf; sleep 1000",
    )
    .await;
    // The shell itself, the sleep that left its group, and the one it waits for.
    until("all three run", || {
        directory.path().join("deaf").exists() && processes_with(directory.path()).len() >= 3
    });
    let process = deaf.process();
    assert!(process.terminate().await);
    assert!(processes_with(directory.path()).len() >= 3);
    process.kill();
    assert_eq!(deaf.wait().await.expect("an end").code, 137);
    until("its processes are gone", || {
        processes_with(directory.path()).is_empty()
    });
    assert!(!process.terminate().await, "there is nobody left to tell");
}

#[tokio::test]
async fn a_command_can_be_run_inside() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let container = run(directory.path(), "touch /data/up; exec sleep 1000").await;
    until("it is up", || directory.path().join("up").exists());
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let inside = container
        .process()
        .execute(
            &words(&["sh", "-c", "id -u; hostname; pwd; ls -d /proc/1"]),
            &variables(),
            Path::new("/data"),
        )
        .await
        .expect("run");
    assert_eq!(inside, (true, "999\ntest\n/data\n/proc/1".to_owned()));
    let variable = container
        .process()
        .execute(
            &words(&["printenv", "odd.name"]),
            &variables(),
            Path::new("/"),
        )
        .await
        .expect("run");
    assert_eq!(variable, (true, "odd value".to_owned()));
    let failed = container
        .process()
        .execute(
            &words(&["sh", "-c", "echo no; exit 1"]),
            &variables(),
            Path::new("/"),
        )
        .await
        .expect("run");
    assert_eq!(failed, (false, "no".to_owned()));
    drop(container);
    until("dropping it ends it", || {
        processes_with(directory.path()).is_empty()
    });
}

#[test]
#[ignore = "not a test: the process that other tests start and kill"]
fn holder() {
    let Some(directory) = std::env::var_os(HOLDER_DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .thread_keep_alive(POLL)
        .build()
        .expect("a runtime");
    let handle = runtime.handle().clone();
    let for_task = directory.clone();
    // Started from a thread of a pool, which goes away at once: the container must not go with it.
    let started = runtime.spawn_blocking(move || {
        let container = handle.block_on(run(
            &for_task,
            "(sleep 1000 &) ; touch /data/up; exec sleep 1000",
        ));
        (container, rustix::thread::gettid().as_raw_nonzero())
    });
    let (container, thread) = runtime.block_on(started).expect("started");
    until("the container is up", || directory.join("up").exists());
    until("the pool's thread is gone", || {
        !Path::new(&format!("/proc/self/task/{thread}")).exists()
    });
    let words = ["test", "-f", "/data/up"].map(str::to_owned);
    let (succeeded, said) = runtime
        .block_on(
            container
                .process()
                .execute(&words, &variables(), Path::new("/")),
        )
        .expect("run inside");
    assert!(succeeded, "{said}");
    std::fs::write(directory.join("executed"), "").expect("written");
    loop {
        std::thread::park();
    }
}

/// Starts the holder as `user`, waits for its container, kills it without a warning, and sees everything end.
fn kill_the_holder(user: Option<u32>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    let mut program = std::env::current_exe().expect("this program");
    if user.is_some() {
        // The build's directory may be closed to others.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("opened");
        program = path.join("program");
        std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("copied");
    }
    let shared = path.join("shared");
    std::fs::create_dir(&shared).expect("made");
    std::os::unix::fs::chown(&shared, user, user).expect("given");
    let mut command = Command::new(program);
    command
        .args(["--ignored", "--exact", "holder", "--nocapture"])
        .env(HOLDER_DIRECTORY, &shared)
        .current_dir("/");
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut holder = command.spawn().expect("a holder");
    until("the holder's container answers", || {
        shared.join("executed").exists()
    });
    assert!(processes_with(path).len() >= 2, "the container runs");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    until("everything has ended", || processes_with(path).is_empty());
}

#[test]
fn kill_9_of_the_owner_leaves_nothing() {
    kill_the_holder(None);
}

#[test]
fn a_normal_user_can_do_the_same() {
    if !rustix::process::geteuid().is_root() {
        // Then the other tests are this one.
        return;
    }
    kill_the_holder(Some(NOBODY));
}
