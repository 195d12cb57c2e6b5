//! A state that is being received: a generation of its own beside the group's current one.
//!
//! Handles of the engine are not kept between calls: one that outlived the storage would keep the database open.

use std::sync::Arc;

use fjall::PersistMode;

use super::{APPLIED_KEY, Engine, Generation, Shared, check_record, keyspace_name, place, put};
use crate::storage::StorageError;
use crate::storage::committer::closed;
use crate::storage::engine;
use crate::storage::state::{Incoming, Reads};

pub(super) struct FileIncoming {
    shared: Arc<Shared>,
    group: u16,
    number: u64,
    /// The generation to be deleted at the end: this one, until it has become the current one.
    obsolete: String,
}

impl FileIncoming {
    pub(super) fn begin(shared: Arc<Shared>, group: u16) -> Result<Self, StorageError> {
        let engine = shared.engine()?;
        let mut number = current(&engine, group)?.number + 1;
        {
            // One at a time, so that no two take the same number.
            let _held = shared.receiving.lock();
            while engine.db.keyspace_exists(&keyspace_name(group, number)) {
                number += 1;
            }
            engine::keyspace(&engine.db, &shared.dir, &keyspace_name(group, number), shared.sizes, true)?;
        }
        Ok(Self { shared, group, number, obsolete: keyspace_name(group, number) })
    }

    fn engine(&self) -> Result<(Engine, fjall::Keyspace), StorageError> {
        generation(&self.shared, self.group, self.number)
    }
}

/// The records of one generation.
struct FileReads {
    shared: Arc<Shared>,
    group: u16,
    number: u64,
}

impl Reads for FileReads {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let (_, keyspace) = generation(&self.shared, self.group, self.number)?;
        self.shared.get(self.group, &keyspace, key)
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        let (_, keyspace) = generation(&self.shared, self.group, self.number)?;
        self.shared.range(self.group, &keyspace, (first, last), visit)
    }
}

fn generation(shared: &Shared, group: u16, number: u64) -> Result<(Engine, fjall::Keyspace), StorageError> {
    let engine = shared.engine()?;
    let name = keyspace_name(group, number);
    let keyspace = engine::keyspace(&engine.db, &shared.dir, &name, shared.sizes, false)?;
    Ok((engine, keyspace))
}

impl Incoming for FileIncoming {
    fn write(&mut self, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), StorageError> {
        let (engine, keyspace) = self.engine()?;
        let mut batch = engine.db.batch();
        for (key, value) in records {
            check_record(&key, &value)?;
            put(&mut batch, &keyspace, &key, &value);
        }
        self.shared.commit(batch, &place(self.group, "snapshot"))
    }

    fn reads(&self) -> Arc<dyn Reads> {
        Arc::new(FileReads { shared: Arc::clone(&self.shared), group: self.group, number: self.number })
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        let (engine, keyspace) = self.engine()?;
        self.shared.load(self.group, &engine.db, &keyspace, visit)
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.shared.flush()
    }

    fn make_current(&mut self, applied: Vec<u8>) -> Result<(), StorageError> {
        let (engine, keyspace) = self.engine()?;
        let old = current(&engine, self.group)?.keyspace.name().to_string();
        // The records are written before this batch and flushed with it.
        let mut batch = engine.db.batch().durability(Some(PersistMode::SyncAll));
        put(&mut batch, &keyspace, APPLIED_KEY, &applied);
        put(&mut batch, &engine.control, &self.group.to_be_bytes(), &self.number.to_be_bytes());
        self.shared.commit(batch, &place(self.group, "change of generation"))?;
        let mut engine = self.shared.engine.write();
        let groups = Arc::make_mut(&mut engine.as_mut().ok_or_else(closed)?.groups);
        *groups.get_mut(usize::from(self.group)).ok_or_else(closed)? = Generation::new(self.number, keyspace);
        self.obsolete = old;
        Ok(())
    }
}

impl Drop for FileIncoming {
    fn drop(&mut self) {
        // Where it cannot be deleted now, the next start does.
        let deleted =
            self.shared.engine().and_then(|engine| self.shared.delete_all(&engine, &[std::mem::take(&mut self.obsolete)]));
        if let Err(error) = deleted {
            tracing::debug!(group = self.group, %error, "an obsolete generation is left to the next start");
        }
    }
}

fn current(engine: &Engine, group: u16) -> Result<&Generation, StorageError> {
    engine.groups.get(usize::from(group)).ok_or_else(closed)
}
