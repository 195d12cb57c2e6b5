//! Reading everything to see whether it can be read.

use fjall::Readable;

use super::{FileStates, RESERVED, long_key, place, unseal};
use crate::storage::StorageError;

impl FileStates {
    /// Reads all records of a group; tells each that is damaged. Ends early where the engine cannot go on. Returns the number of records.
    pub(in crate::storage) fn check(&self, group: u16, found: &mut dyn FnMut(StorageError)) -> u64 {
        let shared = &self.shared;
        let engine = match shared.engine() {
            Ok(engine) => engine,
            Err(error) => {
                found(error);
                return 0;
            }
        };
        let Some(generation) = engine.groups.get(usize::from(group)) else { return 0 };
        let (mut records, mut last) = (0, Vec::new());
        for record in engine.db.snapshot().iter(&generation.keyspace) {
            let (key, stored) = match record.into_inner() {
                Ok(record) => record,
                Err(error) => {
                    found(shared.engine_error(&place(group, &format!("after key {}", last.escape_ascii())), error));
                    return records;
                }
            };
            let is_readable = match unseal(&key, &stored) {
                Ok(value) if key.starts_with(RESERVED) || long_key::original(&key, value).is_some() => Ok(()),
                Ok(_) => Err("its long key does not fit".to_owned()),
                Err(what) => Err(what),
            };
            match is_readable {
                Ok(()) => records += u64::from(!key.starts_with(RESERVED)),
                Err(what) => found(shared.damaged_record(group, &key, what)),
            }
            last = key.get(..super::KEY_LEN_SHOWN).unwrap_or(&key).to_vec();
        }
        records
    }
}
