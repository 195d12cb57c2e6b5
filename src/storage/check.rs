//! Reads all of a stopped node's data and tells what is damaged. The data itself is not touched.
//!
//! The engine writes wherever it opens, so it opens a second directory: tables, which never change, are there as hard links where the
//! file system can, everything else as copies.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::Directory;
use super::error::WAY_OUT;
use super::file_log::{self, FileLogs};
use super::file_state::FileStates;
use super::identity::{FILE_NAME, IdentityFile};
use super::stats::Health;
use super::store::read_mark;
use super::{Identity, StorageError};

/// Damaged places told of one part; of more their number alone.
const FINDINGS_MAX: usize = 20;
/// Entries read at a time.
const ENTRIES: u64 = 64;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Who the directory belongs to, where that can be read.
    pub identity: Option<Identity>,
    /// The names of the other members, where the node wrote them down.
    pub others: Option<Vec<String>>,
    /// Closed cleanly; else the end of the data is held against the file `flushed`.
    pub closed: bool,
    /// By group: `meta`, then the shards.
    pub groups: Vec<GroupReport>,
    /// What is damaged, file and place first.
    pub damage: Vec<String>,
}

/// What one group has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupReport {
    /// Readable entries of its log.
    pub entries: u64,
    /// Readable records of its state.
    pub records: u64,
}

/// Checks the directory; an error is one of looking, damage is in the report. `scratch` is where the second directory may be: the first place
/// that can be written to is taken.
pub fn run(path: &Path, scratch: &[PathBuf]) -> Result<Report, StorageError> {
    let _directory = Directory::inspect_node(path)?;
    let mut report = Report::default();
    let stored = match IdentityFile::in_directory(path).read() {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            report.damage.push(format!("{} is damaged at byte 0: it is missing", path.join(FILE_NAME).display()));
            return Ok(report);
        }
        Err(error @ StorageError::Damaged { .. }) => {
            report.damage.push(error.to_string().replace(WAY_OUT, ""));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    report.identity = Some(stored.identity.clone());
    report.others.clone_from(&stored.others);
    report.closed = stored.closed_at.is_some();
    if !stored.initialised {
        // Nothing was ever written.
        return Ok(report);
    }
    let copy = Copy::make(path, scratch)?;
    let groups = stored.identity.shards + 1;
    report.groups = vec![GroupReport::default(); usize::from(groups)];
    let mut found = Findings { report: &mut report, copy: &copy, original: path };
    let marked = match stored.marked.then(|| read_mark(path)).transpose() {
        Ok(marked) => marked.flatten(),
        Err(error) => {
            found.add(&error);
            None
        }
    };
    let health = Arc::<Health>::default();
    match FileLogs::open(&copy.path, groups, true, stored.closed_at.map(|at| at.log), marked, Arc::clone(&health)) {
        Ok(logs) => (0..groups).for_each(|group| check_log(&logs, group, &mut found)),
        Err(error) => found.add(&error),
    }
    match FileStates::open(copy.path.join("state"), groups, true, stored.closed_at.map(|at| at.state), health) {
        Ok(states) => (0..groups).for_each(|group| check_state(&states, group, &mut found)),
        Err(error) => found.add(&error),
    }
    Ok(report)
}

fn check_log(logs: &FileLogs, group: u16, found: &mut Findings<'_>) {
    let Some(log) = logs.group(group) else { return };
    let Some((first, last)) = logs.bounds(group) else { return };
    let (mut entries, mut faults) = (0, Faults::default());
    let mut next = first;
    while next <= last {
        let to = last.min(next + ENTRIES - 1);
        match log.read(next..=to) {
            Ok(read) => entries += read.len() as u64,
            // One by one, for each that is damaged to be named.
            Err(_) => {
                for index in next..=to {
                    match log.read(index..=index) {
                        Ok(read) => entries += read.len() as u64,
                        Err(error) => faults.add(error),
                    }
                }
            }
        }
        next = to + 1;
    }
    found.add_all(&format!("log of {}", group_name(group)), faults);
    found.report.groups[usize::from(group)].entries = entries;
}

fn check_state(states: &FileStates, group: u16, found: &mut Findings<'_>) {
    let mut faults = Faults::default();
    let records = states.check(group, &mut |error| faults.add(error));
    found.add_all(&format!("state of {}", group_name(group)), faults);
    found.report.groups[usize::from(group)].records = records;
}

/// As the rest of the report has it.
fn group_name(group: u16) -> String {
    group.checked_sub(1).map_or_else(|| "meta".to_owned(), |shard| format!("shard {shard}"))
}

#[derive(Default)]
struct Faults {
    first: Vec<StorageError>,
    more: u64,
}

impl Faults {
    fn add(&mut self, error: StorageError) {
        if self.first.len() < FINDINGS_MAX { self.first.push(error) } else { self.more += 1 }
    }
}

struct Findings<'a> {
    report: &'a mut Report,
    copy: &'a Copy,
    original: &'a Path,
}

impl Findings<'_> {
    fn add(&mut self, error: &StorageError) {
        let text = error.to_string();
        let text = text.replace(&*self.copy.path.to_string_lossy(), &self.original.to_string_lossy());
        self.report.damage.push(text.replace(WAY_OUT, ""));
    }

    fn add_all(&mut self, what: &str, faults: Faults) {
        faults.first.iter().for_each(|error| self.add(error));
        if faults.more > 0 {
            self.report.damage.push(format!("{what}: {} more places", faults.more));
        }
    }
}

/// The second directory; removed when dropped.
struct Copy {
    path: PathBuf,
}

impl Copy {
    fn make(of: &Path, places: &[PathBuf]) -> Result<Self, StorageError> {
        let name = format!(".troupemq-check-{}", std::process::id());
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for place in places {
            let path = place.join(&name);
            match fs::create_dir(&path) {
                Ok(()) => {
                    let copy = Self { path };
                    for part in [file_log::DIRECTORY, "state"] {
                        let to = copy.path.join(part);
                        copy_folder(&of.join(part), &to).map_err(|error| StorageError::io(&to, error))?;
                    }
                    return Ok(copy);
                }
                Err(error) => failed = error,
            }
        }
        Err(StorageError::io(places.last().map_or(of, PathBuf::as_path), failed))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the copy that was checked is not removed");
        }
    }
}

/// What is not there is for the check to tell.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let are_tables = from.file_name().is_some_and(|name| name == "tables");
    for entry in entries {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to)?;
        } else if !are_tables || fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "check_test.rs"]
mod tests;
