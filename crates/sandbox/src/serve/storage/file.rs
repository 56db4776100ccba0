//! `state.redb`: one ACID file. A batch of changes and the revision they lead to are one transaction, synced before it returns.
//!
//! The file is made beside its place and renamed, so a `state.redb` that is empty or unreadable is never ours to overwrite.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError as RedbError,
    TableDefinition,
};

use super::{Loaded, Storage, StorageError, StoredObject};
use crate::core::Change;
use crate::serve::files;

const STATE_FILE: &str = "state.redb";
/// Counts up when the layout below changes; a program refuses a larger one than its own.
const FORMAT: u64 = 1;
/// Objects live in memory anyway; the file's cache only serves commits.
const CACHE_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// Key: resource, namespace, name, joined by NUL (no Kubernetes name contains one). Value: the object as JSON.
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
const NUMBER_FORMAT: &str = "format";
const NUMBER_REVISION: &str = "revision";

pub struct FileStorage {
    path: PathBuf,
    database: Database,
}

impl FileStorage {
    /// Opens the state in `directory`, or makes it if there is none, and reads everything.
    pub fn open(directory: &Path) -> Result<(Self, Loaded), StorageError> {
        let path = directory.join(STATE_FILE);
        if !path.try_exists().map_err(|source| StorageError::File {
            path: path.clone(),
            source,
        })? {
            create(&path)?;
        }
        // redb checks what it reads, but answers some damage with an assertion of its own; to the user both are a damaged file.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let database = redb::Builder::new()
                .set_cache_size(CACHE_LIMIT_BYTES)
                .open(&path)
                .map_err(|error| open_error(&path, error))?;
            let loaded = load(&path, &database)?;
            Ok((
                Self {
                    path: path.clone(),
                    database,
                },
                loaded,
            ))
        }));
        opened.unwrap_or_else(|_| {
            Err(StorageError::Damaged {
                path,
                detail: "an inner page is inconsistent".to_owned(),
            })
        })
    }

    fn write(&self, changes: &[Change]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for change in changes {
                let key = key(&change.resource, &change.namespace, &change.name);
                match &change.new {
                    Some(object) => {
                        let text = serde_json::to_vec(object.as_ref())
                            .map_err(|error| redb::Error::Io(std::io::Error::other(error)))?;
                        objects.insert(key.as_str(), text.as_slice())?;
                    }
                    None => {
                        objects.remove(key.as_str())?;
                    }
                }
            }
            if let Some(revision) = changes.iter().map(|change| change.revision).max() {
                transaction
                    .open_table(NUMBERS)?
                    .insert(NUMBER_REVISION, revision)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Storage for FileStorage {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StorageError> {
        self.write(changes).map_err(|error| StorageError::Write {
            path: self.path.clone(),
            detail: error.to_string(),
        })
    }
}

fn key(resource: &str, namespace: &str, name: &str) -> String {
    format!("{resource}\0{namespace}\0{name}")
}

fn create(path: &Path) -> Result<(), StorageError> {
    let unfinished = path.with_extension("redb.new");
    let fail = |detail: String| StorageError::Write {
        path: unfinished.clone(),
        detail,
    };
    // Ours and unfinished by its name: a crash between making and renaming it.
    if unfinished.exists() {
        fs::remove_file(&unfinished).map_err(|source| StorageError::File {
            path: unfinished.clone(),
            source,
        })?;
    }
    // Objects include Secrets: private from the first byte.
    files::write_private(&unfinished, b"").map_err(|source| StorageError::File {
        path: unfinished.clone(),
        source,
    })?;
    let made = || -> Result<(), redb::Error> {
        let database = Database::create(&unfinished)?;
        let transaction = database.begin_write()?;
        transaction.open_table(OBJECTS)?;
        transaction
            .open_table(NUMBERS)?
            .insert(NUMBER_FORMAT, FORMAT)?;
        transaction.commit()?;
        Ok(())
    };
    made().map_err(|error| fail(error.to_string()))?;
    fs::rename(&unfinished, path).map_err(|source| StorageError::File {
        path: path.to_owned(),
        source,
    })?;
    files::sync_parent(path).map_err(|source| StorageError::File {
        path: path.to_owned(),
        source,
    })
}

fn open_error(path: &Path, error: DatabaseError) -> StorageError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen => StorageError::Locked { path },
        DatabaseError::Storage(RedbError::Io(source))
            if source.kind() == std::io::ErrorKind::InvalidData =>
        {
            StorageError::Foreign {
                path,
                detail: source.to_string(),
            }
        }
        DatabaseError::Storage(RedbError::Io(source))
            if source.kind() == std::io::ErrorKind::UnexpectedEof =>
        {
            StorageError::Damaged {
                path,
                detail: "it ends too early".to_owned(),
            }
        }
        DatabaseError::Storage(RedbError::Io(source)) => StorageError::File { path, source },
        DatabaseError::UpgradeRequired(version) => StorageError::Foreign {
            path,
            detail: format!("file format {version} of the storage library"),
        },
        other => StorageError::Damaged {
            path,
            detail: other.to_string(),
        },
    }
}

/// Format, revision, and the entries as they are in the file.
type Raw = (Option<u64>, u64, Vec<(String, Vec<u8>)>);

fn load(path: &Path, database: &Database) -> Result<Loaded, StorageError> {
    let damaged = |detail: String| StorageError::Damaged {
        path: path.to_owned(),
        detail,
    };
    let read = || -> Result<Raw, redb::Error> {
        let transaction = database.begin_read()?;
        let numbers = transaction.open_table(NUMBERS)?;
        let format = numbers.get(NUMBER_FORMAT)?.map(|guard| guard.value());
        let revision = numbers
            .get(NUMBER_REVISION)?
            .map_or(0, |guard| guard.value());
        let mut objects = Vec::new();
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            objects.push((key.value().to_owned(), value.value().to_owned()));
        }
        Ok((format, revision, objects))
    };
    let (format, revision, objects) = read().map_err(|error| match error {
        redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } => {
            StorageError::Foreign {
                path: path.to_owned(),
                detail: error.to_string(),
            }
        }
        other => damaged(other.to_string()),
    })?;
    match format {
        Some(found) if found > FORMAT => {
            return Err(StorageError::Newer {
                path: path.to_owned(),
                found,
                known: FORMAT,
            });
        }
        Some(_) => {}
        None => {
            return Err(StorageError::Foreign {
                path: path.to_owned(),
                detail: "no format number".to_owned(),
            });
        }
    }
    let objects = objects
        .into_iter()
        .map(|(key, text)| {
            decode(&key, &text)
                .ok_or_else(|| damaged(format!("the entry {key:?} is not an object")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Loaded { revision, objects })
}

fn decode(key: &str, text: &[u8]) -> Option<StoredObject> {
    let mut parts = key.split('\0');
    let (resource, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    value.is_object().then(|| StoredObject {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn put(revision: u64, name: &str) -> Change {
        Change {
            revision,
            resource: "configmaps".into(),
            namespace: "harbour".into(),
            name: name.into(),
            old: None,
            new: Some(Arc::new(
                json!({"metadata": {"name": name}, "z": 1, "a": {"y": 2, "b": 3}}),
            )),
        }
    }

    fn remove(revision: u64, name: &str) -> Change {
        Change {
            old: put(revision, name).new,
            new: None,
            ..put(revision, name)
        }
    }

    #[test]
    fn what_was_committed_is_there_after_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let (mut storage, loaded) = FileStorage::open(directory.path()).unwrap();
        assert_eq!(loaded.revision, 0);
        storage.commit(&[put(3, "crane"), put(4, "buoy")]).unwrap();
        storage.commit(&[remove(5, "crane")]).unwrap();
        drop(storage);
        let (_, loaded) = FileStorage::open(directory.path()).unwrap();
        assert_eq!(loaded.revision, 5);
        assert_eq!(loaded.objects.len(), 1);
        assert_eq!(loaded.objects[0].name, "buoy");
        // The order of fields is part of what a client sees.
        assert_eq!(
            loaded.objects[0].value.to_string(),
            put(4, "buoy").new.unwrap().to_string()
        );
    }

    #[test]
    fn a_foreign_file_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(STATE_FILE);
        for foreign in [
            &b""[..],
            b"hello",
            &[0_u8; 8192],
            b"SQLite format 3\0 and so on",
        ] {
            fs::write(&path, foreign).unwrap();
            let error = FileStorage::open(directory.path())
                .err()
                .expect("refused")
                .to_string();
            assert!(error.contains("left as it is"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), foreign, "{error}");
        }
    }

    #[test]
    fn a_torn_file_is_an_error_and_never_a_panic() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(STATE_FILE);
        let (mut storage, _) = FileStorage::open(directory.path()).unwrap();
        for revision in 1..200 {
            storage
                .commit(&[put(revision, &format!("crane-{revision}"))])
                .unwrap();
        }
        drop(storage);
        let whole = fs::read(&path).unwrap();
        for keep in [100, 4096, whole.len() / 2] {
            fs::write(&path, &whole[..keep]).unwrap();
            let error = FileStorage::open(directory.path())
                .err()
                .expect("refused")
                .to_string();
            assert!(error.contains("left as it is"), "{keep}: {error}");
            assert_eq!(fs::read(&path).unwrap(), &whole[..keep], "{error}");
        }
    }

    #[test]
    fn a_newer_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        drop(FileStorage::open(directory.path()).unwrap());
        let database = Database::open(directory.path().join(STATE_FILE)).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction
            .open_table(NUMBERS)
            .unwrap()
            .insert(NUMBER_FORMAT, FORMAT + 1)
            .unwrap();
        transaction.commit().unwrap();
        drop(database);
        assert!(matches!(
            FileStorage::open(directory.path()),
            Err(StorageError::Newer { found: 2, .. })
        ));
    }
}
