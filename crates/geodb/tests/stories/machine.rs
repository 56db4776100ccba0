//! What the machine knows about a sandbox: its processes, mounts and addresses, read from /proc.

use std::path::Path;

/// Processes that belong to a sandbox: its data directory is on their command line or among their mounts.
pub fn processes_of(data: &Path) -> Vec<u32> {
    let marker = data.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").expect("/proc can be listed");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mounts = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            contains(&command, marker.as_bytes()) || contains(&mounts, marker.as_bytes())
        })
        .collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether this test's own view of the file system has a mount of the sandbox.
pub fn mounts_of(data: &Path) -> Vec<String> {
    let marker = data.to_string_lossy().into_owned();
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("our mounts can be read");
    text.lines()
        .filter(|line| line.contains(&marker))
        .map(str::to_owned)
        .collect()
}

/// The range 127.N that a sandbox keeps in its data directory.
pub fn range_of(data: &Path) -> u8 {
    let text = std::fs::read_to_string(data.join("range")).expect("a sandbox has a range");
    text.trim().parse().expect("a range is a number")
}

/// Listening sockets in 127.N.0.0/16, as /proc/net/tcp writes them.
pub fn listeners_in(range: u8) -> Vec<String> {
    const LISTEN: &str = "0A";
    let text = std::fs::read_to_string("/proc/net/tcp").expect("sockets can be read");
    // Addresses are little-endian hexadecimal: 127.N.x.y is YYXXNN7F.
    let ending = format!("{range:02X}7F");
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next()?;
            let state = fields.nth(1)?;
            let address = local.split(':').next()?;
            (state == LISTEN && address.ends_with(&ending)).then(|| local.to_owned())
        })
        .collect()
}

/// The process that is the postmaster of an instance of this sandbox: `postgres` whose parent is the agent of that instance.
pub fn postmaster_of(data: &Path, instance: &str) -> Option<u32> {
    let marker = format!("GEODB_INSTANCE={instance}");
    let of_instance: Vec<u32> = processes_of(data)
        .into_iter()
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == marker.as_bytes())
        })
        .collect();
    let agents: Vec<u32> = of_instance
        .iter()
        .copied()
        .filter(|pid| command_name(*pid) == "geodb")
        .collect();
    processes_of(data).into_iter().find(|pid| {
        command_name(*pid) == "postgres"
            && parent_of(*pid).is_some_and(|parent| agents.contains(&parent))
    })
}

fn command_name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn parent_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}
