//! Who the data directory belongs to, and the file that says so.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StorageError;

/// Format of the directory as a whole. A directory of a newer one is refused.
pub(super) const FORMAT_VERSION: u32 = 1;

pub(super) const FILE_NAME: &str = "identity";
const MAGIC: &str = "troupemq-data";

/// Written once, checked at every start (the incarnation grows with each start).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub node_name: String,
    /// `None` until the node founded or joined a cluster.
    pub cluster_id: Option<String>,
    pub shards: u16,
    /// The incarnation of this start: `max(stored + 1, wall clock ms)`.
    pub incarnation: u64,
    /// The founder this node promised itself to, before there is a cluster.
    pub promised_to: Option<String>,
}

/// What the file holds: the identity and two facts that keep a loss from going unnoticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// Both databases were once complete: from then on a missing part is damage, not a first start.
    pub(super) initialised: bool,
    /// The node joined a cluster without data and has no vote until that is made good (`cluster::membership`). Kept, since a crash on the way
    /// must not give it one.
    #[serde(default)]
    pub(super) voteless: bool,
    /// The groups in which that is made good while it is not in others.
    #[serde(default)]
    pub(super) voting: Vec<u16>,
    /// The names of the other members, as the node knew them last; `None` where a release before wrote this. Those fill it again.
    #[serde(default)]
    pub(super) others: Option<Vec<String>>,
    /// The node left its cluster for good: the data are of no use any more.
    #[serde(default)]
    pub(super) left: bool,
    /// How far both databases were at a clean close; `None` while open and after a crash. With it even a neatly cut tail is found.
    pub(super) closed_at: Option<ClosedAt>,
    /// There is a file `flushed`, and it must be there. (Not in directories of the first versions.)
    #[serde(default)]
    pub(super) marked: bool,
}

/// Numbers of what was written last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClosedAt {
    /// Batch of the log.
    pub(super) log: u64,
    /// Flush of the state.
    pub(super) state: u64,
}

/// The file `identity`: one line `troupemq-data <format version> <crc32 hex>`, then JSON.
#[derive(Debug)]
pub(super) struct IdentityFile {
    path: PathBuf,
}

impl IdentityFile {
    pub(super) fn in_directory(dir: &Path) -> Self {
        Self { path: dir.join(FILE_NAME) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// `None` if there is no such file.
    pub(super) fn read(&self) -> Result<Option<Stored>, StorageError> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StorageError::io(&self.path, error)),
        };
        self.parse(&text).map(Some)
    }

    /// Durable on return: written beside, flushed, renamed over the old one, directory flushed.
    pub(super) fn write(&self, stored: &Stored) -> Result<(), StorageError> {
        let json = serde_json::to_vec_pretty(stored).map_err(|error| StorageError::Engine(error.to_string()))?;
        let mut text = format!("{MAGIC} {FORMAT_VERSION} {:08x}\n", crc32fast::hash(&json)).into_bytes();
        text.extend_from_slice(&json);
        let temporary = self.path.with_extension("new");
        self.replace(&temporary, &text).map_err(|error| StorageError::io(&self.path, error))
    }

    fn replace(&self, temporary: &Path, text: &[u8]) -> std::io::Result<()> {
        let mut file = File::create(temporary)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        match self.path.parent() {
            Some(dir) => File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    }

    fn parse(&self, text: &[u8]) -> Result<Stored, StorageError> {
        let damaged = |what: &str| StorageError::damaged(&self.path, "byte 0", what);
        let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("no header line"))?;
        let (header, json) = (&text[..end], &text[end + 1..]);
        let header = std::str::from_utf8(header).map_err(|_| damaged("header line is not text"))?;
        let mut words = header.split(' ');
        let (Some(MAGIC), Some(version), Some(crc), None) = (words.next(), words.next(), words.next(), words.next()) else {
            return Err(damaged("not an identity file"));
        };
        let found: u32 = version.parse().map_err(|_| damaged("format version is not a number"))?;
        if found > FORMAT_VERSION {
            return Err(StorageError::NewerFormat { path: self.path.clone(), found, known: FORMAT_VERSION });
        }
        if crc != format!("{:08x}", crc32fast::hash(json)) {
            return Err(damaged("checksum does not match"));
        }
        serde_json::from_slice(json).map_err(|error| damaged(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        let identity = Identity {
            node_name: "node-1".into(),
            cluster_id: Some("c".into()),
            shards: 16,
            incarnation: 1_700_000_000_000,
            promised_to: None,
        };
        Stored {
            identity,
            initialised: true,
            voteless: true,
            voting: vec![0, 3],
            others: Some(vec!["node-2".into()]),
            left: false,
            closed_at: Some(ClosedAt { log: 7, state: 3 }),
            marked: true,
        }
    }

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = IdentityFile::in_directory(dir.path());
        assert_eq!(file.read().unwrap(), None);
        file.write(&stored()).unwrap();
        assert_eq!(file.read().unwrap(), Some(stored()));
    }

    #[test]
    fn any_flipped_byte_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = IdentityFile::in_directory(dir.path());
        file.write(&stored()).unwrap();
        let good = fs::read(file.path()).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x04;
            fs::write(file.path(), &bad).unwrap();
            assert!(file.read().is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_newer_format_is_refused_before_its_content_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let file = IdentityFile::in_directory(dir.path());
        fs::write(file.path(), "troupemq-data 9 00000000\nwhatever").unwrap();
        assert!(matches!(file.read(), Err(StorageError::NewerFormat { found: 9, known: FORMAT_VERSION, .. })));
    }
}
