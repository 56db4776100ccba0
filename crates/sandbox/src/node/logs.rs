//! A container's log on disk: one record per line, `TIME STREAM TAG text`, as container runtimes write it, in files that are rotated by size.
//!
//! Writing only; `logread` reads. The two meet in the files and in a counter that tells a follower that there is more.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

use super::clock;
use super::limits::{LOG_FILE_BYTES, LOG_FILES, LOG_LINE_BYTES};

/// Bytes read from a pipe at once: the size of a pipe's buffer on Linux.
const PIPE_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// What followers of a log wait on: grows with every write, and is closed when the run is over.
pub type Progress = watch::Receiver<u64>;

/// The file of one run of a container.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit_bytes: u64,
    progress: watch::Sender<u64>,
}

impl LogWriter {
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_with_limit(path, LOG_FILE_BYTES)
    }

    fn create_with_limit(path: &Path, limit_bytes: u64) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            limit_bytes,
            progress: watch::channel(0).0,
        })
    }

    pub fn progress(&self) -> Progress {
        self.progress.subscribe()
    }

    /// One record; `full` says that the line ends here.
    fn record(&mut self, stream: Stream, text: &[u8], full: bool) -> io::Result<()> {
        let mut record = Vec::with_capacity(text.len() + 64);
        write!(
            record,
            "{:.9} {} {} ",
            clock::now(),
            stream.as_str(),
            if full { "F" } else { "P" }
        )?;
        record.extend_from_slice(text);
        record.push(b'\n');
        self.file.write_all(&record)?;
        self.bytes += record.len() as u64;
        if self.bytes >= self.limit_bytes {
            self.rotate()?;
        }
        self.progress.send_modify(|count| *count += 1);
        Ok(())
    }

    /// `N.log` becomes `N.log.1`, older ones move up, the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        for age in (1..LOG_FILES - 1).rev() {
            let _ = std::fs::rename(rotated(&self.path, age), rotated(&self.path, age + 1));
        }
        std::fs::rename(&self.path, rotated(&self.path, 1))?;
        self.file = open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The name of a log file that was rotated `age` times.
pub fn rotated(path: &Path, age: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{age}"));
    PathBuf::from(name)
}

/// Cuts a stream into records.
#[derive(Debug)]
struct Lines {
    stream: Stream,
    pending: Vec<u8>,
}

impl Lines {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
        }
    }

    /// Calls `record` for each whole line and for each piece of a line that is too long for one record.
    fn push(&mut self, bytes: &[u8], record: &mut dyn FnMut(Stream, &[u8], bool)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(piece);
            let whole = self.pending.last() == Some(&b'\n');
            if whole {
                self.pending.pop();
            }
            while self.pending.len() > LOG_LINE_BYTES {
                let rest = self.pending.split_off(LOG_LINE_BYTES);
                record(self.stream, &self.pending, false);
                self.pending = rest;
            }
            if whole {
                record(self.stream, &self.pending, true);
                self.pending.clear();
            }
        }
    }

    fn finish(&mut self, record: &mut dyn FnMut(Stream, &[u8], bool)) {
        if !self.pending.is_empty() {
            record(self.stream, &self.pending, true);
            self.pending.clear();
        }
    }
}

/// Copies a container's output to its log until both pipes end. A log that cannot be written (a full disk) never stops the container: what does
/// not fit is lost, and said so once. Returns the first line on stderr, where bubblewrap says why it could not start a program.
pub async fn pump(
    mut stdout: impl AsyncRead + Unpin,
    mut stderr: impl AsyncRead + Unpin,
    mut log: LogWriter,
) -> Option<String> {
    let (mut out, mut err) = (Lines::new(Stream::Stdout), Lines::new(Stream::Stderr));
    let (mut out_buffer, mut err_buffer) = (vec![0; PIPE_BYTES], vec![0; PIPE_BYTES]);
    let (mut out_open, mut err_open) = (true, true);
    let mut first_complaint: Option<String> = None;
    let mut broken = false;
    let mut record = |stream: Stream, text: &[u8], full: bool| {
        if stream == Stream::Stderr && first_complaint.is_none() {
            first_complaint = Some(String::from_utf8_lossy(text).into_owned());
        }
        if let Err(error) = log.record(stream, text, full)
            && !broken
        {
            broken = true;
            tracing::warn!(log = %log.path.display(), %error, "failed to write a container's log; its output is lost until this works again");
        }
    };
    while out_open || err_open {
        tokio::select! {
            read = stdout.read(&mut out_buffer), if out_open => match read {
                Ok(count) if count > 0 => out.push(&out_buffer[..count], &mut record),
                _ => { out_open = false; out.finish(&mut record); }
            },
            read = stderr.read(&mut err_buffer), if err_open => match read {
                Ok(count) if count > 0 => err.push(&err_buffer[..count], &mut record),
                _ => { err_open = false; err.finish(&mut record); }
            },
        }
    }
    first_complaint
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(input: &[&[u8]]) -> Vec<(String, bool)> {
        let mut lines = Lines::new(Stream::Stdout);
        let mut seen = Vec::new();
        let mut record = |_: Stream, text: &[u8], full: bool| {
            seen.push((String::from_utf8_lossy(text).into_owned(), full));
        };
        for bytes in input {
            lines.push(bytes, &mut record);
        }
        lines.finish(&mut record);
        seen
    }

    #[test]
    fn lines_are_put_together_from_any_pieces() {
        assert_eq!(
            records(&[b"a", b"b\nc\n", b"\n", b"tail"]),
            [
                ("ab".to_owned(), true),
                ("c".to_owned(), true),
                (String::new(), true),
                ("tail".to_owned(), true)
            ]
        );
    }

    #[test]
    fn a_line_beyond_the_limit_is_cut_into_parts_and_ends_whole() {
        let long = vec![b'x'; LOG_LINE_BYTES * 2 + 1];
        let seen = records(&[&long, b"\n"]);
        assert_eq!(
            seen.iter()
                .map(|(text, full)| (text.len(), *full))
                .collect::<Vec<_>>(),
            [(LOG_LINE_BYTES, false), (LOG_LINE_BYTES, false), (1, true)]
        );
    }

    #[tokio::test]
    async fn files_rotate_and_the_oldest_goes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("0.log");
        let log = LogWriter::create_with_limit(&path, 200).expect("created");
        let text: String = (0..60).map(|number| format!("line {number}\n")).collect();
        let complaint = pump(text.as_bytes(), &b"first\nsecond\n"[..], log).await;
        assert_eq!(complaint.as_deref(), Some("first"));
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .expect("read")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        assert_eq!(names, ["0.log", "0.log.1", "0.log.2", "0.log.3", "0.log.4"]);
        let newest = std::fs::read_to_string(rotated(&path, 1)).expect("read");
        assert!(
            newest
                .lines()
                .all(|line| line.contains(" stdout F line ") || line.contains(" stderr F ")),
            "{newest}"
        );
    }
}
