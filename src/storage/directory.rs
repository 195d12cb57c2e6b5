//! The data directory on the file system: created, writable, and used by one process at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{StorageError, file_log, flushed_mark, identity};

const LOCK_FILE: &str = "lock";

/// A directory held by this process. The lock belongs to the open file: it is gone when the process dies, however it dies.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Creates the directory if needed and takes its lock.
    pub(super) fn claim(path: &Path) -> Result<Self, StorageError> {
        let io = |error| StorageError::io(path, error);
        if !path.exists() {
            fs::create_dir_all(path).map_err(io)?;
            // Else a power cut could take the new directory with all in it. A parent that may not be opened is not ours to flush.
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if let Ok(parent) = File::open(parent) {
                parent.sync_all().map_err(io)?;
            }
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&lock_path).map_err(io)?;
        let mut claimed = Self::lock(path, lock_path, lock)?;
        write_pid(&mut claimed.lock).map_err(io)?;
        Ok(claimed)
    }

    /// Takes the lock of a directory that is there, and writes nothing.
    pub(super) fn inspect(path: &Path) -> Result<Self, StorageError> {
        let io = |error| StorageError::io(path, error);
        fs::read_dir(path).map_err(io)?;
        let lock_path = path.join(LOCK_FILE);
        let lock = match File::open(&lock_path) {
            Ok(lock) => lock,
            // Nobody ever ran with it: there is nobody to keep out either.
            Err(error) if error.kind() == ErrorKind::NotFound => File::open(path).map_err(io)?,
            Err(error) => return Err(io(error)),
        };
        Self::lock(path, lock_path, lock)
    }

    /// Takes the lock of a node's directory that is there, and writes nothing.
    pub(super) fn inspect_node(path: &Path) -> Result<Self, StorageError> {
        let directory = Self::inspect(path)?;
        let parts = [identity::FILE_NAME, file_log::DIRECTORY, "state", flushed_mark::FILE_NAME];
        if parts.iter().any(|part| path.join(part).exists()) {
            return Ok(directory);
        }
        Err(StorageError::NotANode { path: path.to_owned() })
    }

    fn lock(path: &Path, lock_path: PathBuf, mut lock: File) -> Result<Self, StorageError> {
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), lock }),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let pid = lock.read_to_string(&mut pid).ok().map(|_| pid.trim().to_owned());
                let pid = pid.filter(|pid| !pid.is_empty()).unwrap_or_else(|| "unknown".into());
                Err(StorageError::Locked { path: path.to_owned(), lock: lock_path, pid })
            }
            Err(TryLockError::Error(error)) => Err(StorageError::io(path, error)),
        }
    }

    pub(super) fn raft(&self) -> PathBuf {
        self.path.join("raft")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.path.join("state")
    }
}

impl Drop for Directory {
    /// Given back in so many words: a child process that is between its fork and its exec has the open file too, and closing ours alone would leave
    /// the directory locked until it is through.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "the lock of the data directory is given back only when the process ends");
        }
    }
}

/// Writing the pid also shows that the directory can be written.
fn write_pid(lock: &mut File) -> std::io::Result<()> {
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    writeln!(lock, "{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_is_refused_with_the_pid_of_its_user_and_free_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::claim(dir.path()).unwrap();
        let error = Directory::claim(dir.path()).unwrap_err();
        let StorageError::Locked { pid, .. } = &error else { panic!("{error}") };
        assert_eq!(*pid, std::process::id().to_string());
        assert!(error.to_string().contains("--data"), "{error}");
        drop(first);
        Directory::claim(dir.path()).unwrap();
    }

    /// As a child process does that was forked and has not yet executed its program.
    #[test]
    fn a_copy_of_the_open_file_in_another_process_does_not_keep_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::claim(dir.path()).unwrap();
        let copy = first.lock.try_clone().unwrap();
        drop(first);
        Directory::claim(dir.path()).unwrap();
        drop(copy);
    }

    #[test]
    fn a_path_that_cannot_be_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = Directory::claim(&file.join("data")).unwrap_err();
        assert!(error.to_string().contains("file/data"), "{error}");
    }
}
