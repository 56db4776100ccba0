//! Reading containers' logs: which file, which lines, and more as it comes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::clock;
use super::limits::LOG_FILES;
use super::logs::{Progress, rotated};

/// Bytes of log handed over at once.
const CHUNK_BYTES: usize = 32 * 1024;

/// Where logs are, and which of them still grow.
#[derive(Clone, Debug)]
pub struct LogBook {
    root: PathBuf,
    growing: Arc<Mutex<HashMap<PathBuf, Progress>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub tail_lines: Option<usize>,
    pub since: Option<Timestamp>,
    pub limit_bytes: Option<usize>,
}

impl LogQuery {
    /// From the query string of the kubelet's endpoint.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (name, value) in query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        {
            let value = percent_encoding::percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| format!("{name} is not text"))?;
            let number = || {
                value.parse::<usize>().map_err(|_| {
                    format!("{name} has to be a number that is not negative, not {value:?}")
                })
            };
            let flag = || match value.as_ref() {
                "true" | "1" => Ok(true),
                "false" | "0" | "" => Ok(false),
                other => Err(format!("{name} has to be true or false, not {other:?}")),
            };
            match name {
                "follow" => parsed.follow = flag()?,
                "previous" => parsed.previous = flag()?,
                "timestamps" => parsed.timestamps = flag()?,
                "tailLines" => parsed.tail_lines = Some(number()?),
                "limitBytes" => parsed.limit_bytes = Some(number()?),
                "sinceSeconds" => {
                    parsed.since = Some(
                        clock::now()
                            - SignedDuration::from_secs(
                                i64::try_from(number()?)
                                    .unwrap_or(i64::MAX / 4)
                                    .min(MOST_SECONDS),
                            ),
                    );
                }
                "sinceTime" => {
                    parsed.since = Some(value.parse().map_err(|_| {
                        format!("sinceTime has to be a time (RFC 3339), not {value:?}")
                    })?);
                }
                "stream" if value == "All" => {}
                "stream" => {
                    return Err("stream has to be All: the streams are kept in one file".to_owned());
                }
                // The API server passes on what it does not use itself; none of it changes the text.
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// A century: more than any log, and far from the end of time.
const MOST_SECONDS: i64 = 3_155_760_000;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("container {container:?} in pod {pod:?} is waiting to start or not a container of it")]
    NoRun { pod: String, container: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { pod: String, container: String },
    #[error("failed to read the log: {0}")]
    Read(#[from] io::Error),
}

impl LogBook {
    pub fn new(data: &Path) -> Self {
        Self {
            root: data.join("logs"),
            growing: Arc::default(),
        }
    }

    pub fn pod_directory(&self, pod: &Pod) -> PathBuf {
        self.root.join(format!(
            "{}_{}_{}",
            pod.namespace().unwrap_or_default(),
            pod.name_any(),
            pod.uid().unwrap_or_default()
        ))
    }

    pub fn path(&self, pod: &Pod, container: &str, attempt: u32) -> PathBuf {
        self.pod_directory(pod)
            .join(container)
            .join(format!("{attempt}.log"))
    }

    pub fn register(&self, path: PathBuf, progress: Progress) {
        let mut growing = self.growing.lock();
        // Writers that are gone have closed their end.
        growing.retain(|_, progress| progress.has_changed().is_ok());
        growing.insert(path, progress);
    }

    /// Removes the logs of runs before `attempt`.
    pub fn forget_before(&self, pod: &Pod, container: &str, attempt: u32) {
        let directory = self.pod_directory(pod).join(container);
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let number = entry
                .file_name()
                .to_str()
                .and_then(|name| name.split('.').next())
                .and_then(|number| number.parse::<u32>().ok());
            if number.is_some_and(|number| number < attempt) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The file of the newest run of a container, or of the one before.
    pub fn find(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        previous: bool,
    ) -> Result<PathBuf, LogError> {
        let prefix = format!("{namespace}_{pod}_");
        let none = || LogError::NoRun {
            pod: pod.to_owned(),
            container: container.to_owned(),
        };
        if container.contains('/') || container.starts_with('.') {
            return Err(none());
        }
        // Names of namespaces and pods have no underscore, so the prefix is one pod's; of several with the same name the youngest counts.
        let directories = std::fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        let youngest = directories
            .max_by_key(|entry| {
                entry
                    .metadata()
                    .and_then(|metadata| metadata.modified())
                    .ok()
            })
            .ok_or_else(none)?;
        let directory = youngest.path().join(container);
        let mut attempts: Vec<u32> = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_suffix(".log")?
                    .parse()
                    .ok()
            })
            .collect();
        attempts.sort_unstable_by(|one, other| other.cmp(one));
        let attempt = match (attempts.as_slice(), previous) {
            ([], _) => return Err(none()),
            ([newest, ..], false) => *newest,
            ([_, before, ..], true) => *before,
            ([_], true) => {
                return Err(LogError::NoPrevious {
                    pod: pod.to_owned(),
                    container: container.to_owned(),
                });
            }
        };
        Ok(directory.join(format!("{attempt}.log")))
    }

    /// Sends the asked lines to `output`, in pieces; ends when there are no more, or when nobody takes them.
    pub async fn read(
        &self,
        path: PathBuf,
        query: LogQuery,
        output: mpsc::Sender<Result<Bytes, io::Error>>,
    ) {
        let progress = self.growing.lock().get(&path).cloned();
        let mut reader = match Reader::open(path, query) {
            Ok(reader) => reader,
            Err(error) => return drop(output.send(Err(error)).await),
        };
        let follow = reader.query.follow;
        let mut progress = progress.filter(|_| follow);
        loop {
            // Marked as seen before reading: what is written meanwhile wakes us again.
            let over = progress.as_mut().is_none_or(|progress| {
                progress.mark_unchanged();
                progress.has_changed().is_err()
            });
            loop {
                match reader.next() {
                    Ok(Some(text)) => {
                        if output.send(Ok(text)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return drop(output.send(Err(error)).await),
                }
            }
            if over || reader.is_satisfied() {
                return;
            }
            if let Some(progress) = &mut progress {
                // An error is the writer's end: one more turn reads its last words.
                tokio::select! {
                    _ = progress.changed() => {}
                    () = output.closed() => return,
                }
            }
        }
    }
}

/// Reads a run's files from the oldest to the newest and goes on in the newest, also when it is rotated.
struct Reader {
    path: PathBuf,
    query: LogQuery,
    file: BufReader<File>,
    inode: u64,
    /// Older files still to be read after `file`, oldest last.
    queue: Vec<PathBuf>,
    skip_lines: usize,
    sent_bytes: usize,
    partial: Vec<u8>,
    in_line: bool,
}

impl Reader {
    fn open(path: PathBuf, query: LogQuery) -> io::Result<Self> {
        let mut files: Vec<PathBuf> = (1..LOG_FILES)
            .rev()
            .map(|age| rotated(&path, age))
            .filter(|path| path.exists())
            .collect();
        files.push(path.clone());
        let skip_lines = match query.tail_lines {
            Some(tail) => count_lines(&files, &query)?.saturating_sub(tail),
            None => 0,
        };
        files.reverse();
        let first = files.pop().unwrap_or_else(|| path.clone());
        let (file, inode) = open(&first)?;
        Ok(Self {
            path,
            query,
            file,
            inode,
            queue: files,
            skip_lines,
            sent_bytes: 0,
            partial: Vec::new(),
            in_line: false,
        })
    }

    fn is_satisfied(&self) -> bool {
        self.query
            .limit_bytes
            .is_some_and(|limit| self.sent_bytes >= limit)
    }

    /// The next piece of text, or `None` when there is nothing more for now.
    fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut text = Vec::new();
        while text.len() < CHUNK_BYTES && !self.is_satisfied() {
            if self.file.read_until(b'\n', &mut self.partial)? == 0
                || self.partial.last() != Some(&b'\n')
            {
                if !self.partial.is_empty() || !self.advance()? {
                    break;
                }
                continue;
            }
            let record = std::mem::take(&mut self.partial);
            self.take(&record, &mut text);
        }
        Ok((!text.is_empty()).then(|| Bytes::from(text)))
    }

    /// To the next file, if this one is over.
    fn advance(&mut self) -> io::Result<bool> {
        if let Some(next) = self.queue.pop() {
            (self.file, self.inode) = open(&next)?;
            return Ok(true);
        }
        let current = std::fs::metadata(&self.path)?;
        if current.ino() == self.inode {
            return Ok(false);
        }
        // It was rotated under us, perhaps more than once while we slept: go on with the file after ours.
        let ages: Vec<PathBuf> = (1..LOG_FILES)
            .map(|age| rotated(&self.path, age))
            .take_while(|path| {
                path.metadata()
                    .is_ok_and(|metadata| metadata.ino() != self.inode)
            })
            .collect();
        self.queue = std::iter::once(self.path.clone()).chain(ages).collect();
        let next = self.queue.pop().unwrap_or_else(|| self.path.clone());
        (self.file, self.inode) = open(&next)?;
        Ok(true)
    }

    fn take(&mut self, record: &[u8], text: &mut Vec<u8>) {
        let Some(record) = Record::parse(record) else {
            return;
        };
        if !record.is_after(self.query.since) {
            return;
        }
        if self.skip_lines > 0 {
            self.skip_lines -= usize::from(record.full);
            return;
        }
        let before = text.len();
        if self.query.timestamps && !self.in_line {
            text.extend_from_slice(record.time);
            text.push(b' ');
        }
        text.extend_from_slice(record.text);
        if record.full {
            text.push(b'\n');
        }
        self.in_line = !record.full;
        if let Some(limit) = self.query.limit_bytes {
            text.truncate(
                before
                    + limit
                        .saturating_sub(self.sent_bytes)
                        .min(text.len() - before),
            );
        }
        self.sent_bytes += text.len() - before;
    }
}

fn open(path: &Path) -> io::Result<(BufReader<File>, u64)> {
    let file = File::open(path)?;
    let inode = file.metadata()?.ino();
    Ok((BufReader::new(file), inode))
}

fn count_lines(files: &[PathBuf], query: &LogQuery) -> io::Result<usize> {
    let mut count = 0;
    for path in files {
        for record in BufReader::new(File::open(path)?).split(b'\n') {
            let record = record?;
            count += usize::from(
                Record::parse(&record)
                    .is_some_and(|record| record.full && record.is_after(query.since)),
            );
        }
    }
    Ok(count)
}

struct Record<'a> {
    time: &'a [u8],
    full: bool,
    text: &'a [u8],
}

impl<'a> Record<'a> {
    fn parse(record: &'a [u8]) -> Option<Self> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        let mut parts = record.splitn(4, |byte| *byte == b' ');
        let (time, _stream, tag, text) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            time,
            full: tag == b"F",
            text,
        })
    }

    fn is_after(&self, since: Option<Timestamp>) -> bool {
        let Some(since) = since else { return true };
        let time = std::str::from_utf8(self.time)
            .ok()
            .and_then(|time| time.parse::<Timestamp>().ok());
        time.is_none_or(|time| time >= since)
    }
}

#[cfg(test)]
#[path = "logread_tests.rs"]
mod tests;
