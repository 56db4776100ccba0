//! Between `core` and storage: changes become durable, then watches hear of them, then the response goes out.
//!
//! Writers queue up while one transaction is being synced, and the next transaction takes all of them: one sync for many writes. Reads
//! wait too, for whatever they have seen to be durable, so that nobody ever observes what a crash could take back.

use std::sync::Arc;
use std::sync::mpsc as queue;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::hub::Hub;
use super::storage::Storage;
use crate::core::Change;

/// Changes written in one transaction at most, so that the first of them does not wait for ever behind a stream of others.
const BATCH_CHANGES: usize = 2048;

/// How far storage has come.
#[derive(Clone, Debug)]
enum Progress {
    Durable(u64),
    /// Nothing is accepted any more: memory is ahead of storage, and only a restart brings them together.
    Failed(Arc<str>),
}

pub(super) struct Journal {
    progress: watch::Receiver<Progress>,
    sink: Sink,
}

enum Sink {
    /// Nothing to sync: durable means in memory.
    Memory {
        hub: Arc<Hub>,
        progress: watch::Sender<Progress>,
    },
    Storage(Mutex<Option<Writer>>),
}

struct Writer {
    queue: queue::Sender<Vec<Change>>,
    thread: thread::JoinHandle<()>,
}

impl Journal {
    pub(super) fn memory(hub: Arc<Hub>, revision: u64) -> Self {
        let (progress, receiver) = watch::channel(Progress::Durable(revision));
        Self {
            progress: receiver,
            sink: Sink::Memory { hub, progress },
        }
    }

    pub(super) fn storage(
        hub: Arc<Hub>,
        revision: u64,
        storage: Box<dyn Storage>,
    ) -> std::io::Result<Self> {
        let (progress, receiver) = watch::channel(Progress::Durable(revision));
        let (sender, queue) = queue::channel();
        let thread = thread::Builder::new()
            .name("geodb-journal".to_owned())
            .spawn(move || write(&queue, &progress, &hub, storage))?;
        let writer = Writer {
            queue: sender,
            thread,
        };
        Ok(Self {
            progress: receiver,
            sink: Sink::Storage(Mutex::new(Some(writer))),
        })
    }

    /// Takes changes in order of revision: the caller holds the state's lock. The queue's length is bounded by the requests in flight.
    pub(super) fn append(&self, changes: Vec<Change>) {
        let Some(last) = changes.last().map(|change| change.revision) else {
            return;
        };
        match &self.sink {
            Sink::Memory { hub, progress } => {
                hub.publish(&changes);
                progress.send_replace(Progress::Durable(last));
            }
            Sink::Storage(writer) => {
                if let Some(writer) = writer.lock().as_ref() {
                    // It fails only when the writer ended, and then `durable` says so to everybody who waits.
                    let _ = writer.queue.send(changes);
                }
            }
        }
    }

    /// Returns when everything up to `revision` is durable, or the reason why it never will be.
    pub(super) async fn durable(&self, revision: u64) -> Result<(), Arc<str>> {
        let mut progress = self.progress.clone();
        let reached = progress.wait_for(|progress| match progress {
            Progress::Durable(durable) => *durable >= revision,
            Progress::Failed(_) => true,
        });
        match reached.await.as_deref() {
            Ok(Progress::Durable(_)) => Ok(()),
            Ok(Progress::Failed(reason)) => Err(Arc::clone(reason)),
            Err(_) => Err("the server has been stopped".into()),
        }
    }

    /// Why nothing is accepted any more, if so.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        match &*self.progress.borrow() {
            Progress::Durable(_) => None,
            Progress::Failed(reason) => Some(Arc::clone(reason)),
        }
    }

    /// Writes what is queued and closes the file. Later changes are not taken.
    pub(super) fn close(&self) {
        let Sink::Storage(writer) = &self.sink else {
            return;
        };
        let Some(Writer { queue, thread }) = writer.lock().take() else {
            return;
        };
        drop(queue);
        if thread.join().is_err() {
            tracing::error!(
                "the journal's thread panicked; the next start loads what was acknowledged"
            );
        }
    }
}

fn write(
    queue: &queue::Receiver<Vec<Change>>,
    progress: &watch::Sender<Progress>,
    hub: &Hub,
    mut storage: Box<dyn Storage>,
) {
    while let Ok(mut batch) = queue.recv() {
        while batch.len() < BATCH_CHANGES {
            match queue.try_recv() {
                Ok(more) => batch.extend(more),
                Err(_) => break,
            }
        }
        let Some(last) = batch.last().map(|change| change.revision) else {
            continue;
        };
        if let Err(error) = storage.commit(&batch) {
            tracing::error!(%error, "the API server stops accepting requests: its storage failed");
            progress.send_replace(Progress::Failed(error.to_string().into()));
            hub.close();
            return;
        }
        hub.publish(&batch);
        progress.send_replace(Progress::Durable(last));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::serve::storage::StorageError;

    struct Full;

    impl Storage for Full {
        fn commit(&mut self, _: &[Change]) -> Result<(), StorageError> {
            Err(StorageError::Write {
                path: "state.redb".into(),
                detail: "no space".to_owned(),
            })
        }
    }

    fn change(revision: u64) -> Change {
        let new = Some(Arc::new(json!({})));
        Change {
            revision,
            resource: "configmaps".into(),
            namespace: "harbour".into(),
            name: "buoy".into(),
            old: None,
            new,
        }
    }

    #[tokio::test]
    async fn a_write_that_cannot_be_stored_is_never_acknowledged() {
        let hub = Arc::new(Hub::new(1));
        let mut feed = hub.subscribe(&"configmaps".into(), None, 0);
        let journal = Journal::storage(Arc::clone(&hub), 1, Box::new(Full)).unwrap();
        assert!(journal.durable(1).await.is_ok());
        journal.append(vec![change(2)]);
        let reason = journal.durable(2).await.unwrap_err();
        assert!(reason.contains("no space"), "{reason}");
        assert!(journal.failure().is_some());
        assert!(feed.recv().await.is_none(), "no watch hears of it");
        journal.close();
    }
}
