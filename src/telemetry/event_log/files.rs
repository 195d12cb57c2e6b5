//! The files of the event log: one that grows, and a bounded number put aside before it, `event-1.log` the newest.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use super::EventLogFiles;

pub(super) struct Files {
    settings: EventLogFiles,
    current: Option<Current>,
}

struct Current {
    file: File,
    len: u64,
    /// Tells whether the file at the path is still this one.
    id: (u64, u64),
}

impl Files {
    pub(super) fn new(settings: EventLogFiles) -> Self {
        Self { settings, current: None }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.settings.folder.join("event.log")
    }

    fn aside(&self, number: usize) -> PathBuf {
        self.settings.folder.join(format!("event-{number}.log"))
    }

    /// Writes whole lines. A file that was removed or moved away meanwhile is made anew.
    ///
    /// # Errors
    /// They are not written, or in part; what is written next begins a line of its own.
    pub(super) fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let appended = self.try_append(text);
        if appended.is_err() {
            // Opened again the next time, and looked at for half a line.
            self.current = None;
        }
        appended
    }

    fn try_append(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let at_path = fs::metadata(self.path()).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let mut current = match self.current.take() {
            Some(current) if at_path == Some(current.id) => current,
            _ => self.open()?,
        };
        let added = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if current.len > 0 && current.len.saturating_add(added) > self.settings.file_bytes_max {
            drop(current);
            self.put_aside()?;
            current = self.open()?;
        }
        current.file.write_all(text)?;
        current.len += added;
        self.current = Some(current);
        Ok(())
    }

    fn open(&self) -> io::Result<Current> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.settings.folder)?;
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(self.path())?;
        let metadata = file.metadata()?;
        let mut len = metadata.len();
        if len > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                len += 1;
            }
        }
        Ok(Current { file, len, id: (metadata.dev(), metadata.ino()) })
    }

    /// Makes room: the oldest file goes, the others move on by one.
    fn put_aside(&self) -> io::Result<()> {
        for number in (1..self.settings.kept_max).rev() {
            rename_if_there(&self.aside(number), &self.aside(number + 1))?;
        }
        rename_if_there(&self.path(), &self.aside(1))
    }
}

fn rename_if_there(from: &PathBuf, to: &PathBuf) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}
