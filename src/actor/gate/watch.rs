//! Looks at the file of credentials now and then (spec/hivemq.md 7.4): a changed one takes the place of the old, which is archived; one
//! that is of no use is said, and the old state stays.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::clock;
use crate::auth::FileRbac;
use crate::config::rbac::{self, Credentials};
use crate::telemetry::utc::Utc;

/// Below the extension's folder.
const ARCHIVE: &str = "credentials-archive";
/// Archived files that are kept; the oldest goes.
const ARCHIVED_MAX: usize = 100;

/// The credentials as they were last seen.
pub struct Watch {
    rbac: FileRbac,
    seen: Option<Seen>,
    /// The file that is in force, to be archived when it is replaced.
    in_force: Option<Vec<u8>>,
}

/// What tells that a file is another one, or that it may be read now; links are followed, so that a swapped Kubernetes secret is seen.
#[derive(PartialEq, Eq)]
pub(super) struct Seen {
    modified: (i64, i64),
    changed: (i64, i64),
    len: u64,
    inode: u64,
}

/// What a look at the file came to.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// It is the one that was seen last.
    Same,
    Taken,
    /// Another file with the same text.
    Touched,
    /// Of no use: said once, until it changes again.
    Refused,
}

impl Watch {
    /// Reads the file for the start; where it is of no use, everybody is refused. Blocks. `secret` is random.
    pub fn start(settings: rbac::FileRbacSettings, secret: &[u8; 32]) -> Self {
        let seen = Seen::at(&settings.credentials);
        let (credentials, in_force) = match rbac::load(&settings) {
            Ok(loaded) => (Some(loaded.credentials), Some(loaded.raw)),
            // Said by the check of the configuration, which read it a moment ago.
            Err(_) => (None, None),
        };
        Self { rbac: FileRbac::new(settings, credentials, secret), seen, in_force }
    }

    pub fn rbac(&self) -> &FileRbac {
        &self.rbac
    }

    /// Takes over a changed file. Blocks.
    fn check(&mut self) -> Looked {
        let settings = self.rbac.settings();
        let seen = Seen::at(&settings.credentials);
        if seen == self.seen {
            return Looked::Same;
        }
        self.seen = seen;
        match rbac::load(settings) {
            Ok(loaded) if self.in_force.as_ref() == Some(&loaded.raw) => Looked::Touched,
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!("{warning}");
                }
                self.take(loaded.credentials, loaded.raw);
                Looked::Taken
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!("changed credentials are of no use, those from before stay in force: {error}");
                }
                Looked::Refused
            }
        }
    }

    fn take(&mut self, credentials: Credentials, raw: Vec<u8>) {
        let users = credentials.users.len();
        self.rbac.replace(credentials);
        tracing::info!(users, "credentials have changed; clients that connect from now on are judged by them");
        let replaced = self.in_force.replace(raw);
        let archive = self.rbac.settings().folder.join(ARCHIVE);
        if let Some(replaced) = replaced
            && let Err(error) = keep(&archive, &replaced, clock::wall_ms() / 1000)
        {
            tracing::warn!(archive = %archive.display(), %error, "the replaced credentials cannot be archived");
        }
    }
}

impl Seen {
    pub(super) fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Some(Self { modified, changed, len: metadata.len(), inode: metadata.ino() })
    }
}

/// Checks at each interval, for as long as it is polled.
pub async fn run(mut watch: Watch) {
    let period = Duration::from_secs(watch.rbac.settings().reload_interval_s.into());
    loop {
        actix_rt::time::sleep(period).await;
        let checked = actix_rt::task::spawn_blocking(move || {
            _ = watch.check();
            watch
        });
        let Ok(back) = checked.await else { return };
        watch = back;
    }
}

/// Writes a replaced file, readable to its owner alone, and never over one that is there: of several in one second the later ones have a
/// number in their names.
fn keep(archive: &Path, replaced: &[u8], seconds: u64) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(archive)?;
    let stamp = Utc::of(seconds).for_file_name();
    let name = |number: usize| match number {
        1 => format!("{stamp}-credentials.xml"),
        number => format!("{stamp}-{number:02}-credentials.xml"),
    };
    let create = |name: String| OpenOptions::new().write(true).create_new(true).mode(0o600).open(archive.join(name));
    let mut tries = (1..ARCHIVED_MAX).map(|number| create(name(number)));
    let taken = |tried: &io::Result<_>| tried.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    let mut file = tries.find(|tried| !taken(tried)).unwrap_or(Err(io::ErrorKind::AlreadyExists.into()))?;
    file.write_all(replaced)?;
    let mut archived: Vec<PathBuf> =
        fs::read_dir(archive)?.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_archived(path)).collect();
    // By name, which is by time.
    archived.sort();
    let too_many = archived.len().saturating_sub(ARCHIVED_MAX);
    archived.iter().take(too_many).try_for_each(fs::remove_file)
}

fn is_archived(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-credentials.xml"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::rbac::{FileRbacSettings, PasswordType};

    #[test]
    fn a_changed_file_is_taken_and_archived_and_a_bad_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = folder.path().join("credentials.xml");
        let file = |user: &str| {
            format!(
                "<file-rbac><users><user><name>{user}</name><password>pw</password><roles><id>r</id></roles></user></users>\
                 <roles><role><id>r</id><permissions><permission><topic>#</topic></permission></permissions></role></roles></file-rbac>"
            )
        };
        // Another inode each time: nothing depends on the clock of the file system.
        let put = |text: &str| {
            let new = folder.path().join(format!("new-{}", text.len()));
            fs::write(&new, text).unwrap();
            fs::rename(&new, &credentials).unwrap();
        };
        let settings = FileRbacSettings {
            folder: folder.path().to_owned(),
            credentials: credentials.clone(),
            reload_interval_s: 1,
            password_type: PasswordType::Plain,
            listener_names: None,
            next_instead_of_fail: false,
            passwords_optional: false,
        };
        let archived = || -> Vec<String> {
            let Ok(entries) = fs::read_dir(folder.path().join(ARCHIVE)) else { return Vec::new() };
            entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
        };
        let mut watch = Watch::start(settings, &[1; 32]);
        let permit = |mode: u32| fs::set_permissions(&credentials, PermissionsExt::from_mode(mode)).unwrap();
        let request = crate::auth::Request::default();
        let knows = |watch: &Watch, user: &str| watch.rbac.principal(&user.into(), &request).is_some();
        assert!(!knows(&watch, "a"), "there is no file");
        put(&file("a"));
        assert_eq!(watch.check(), Looked::Taken);
        assert!(knows(&watch, "a") && archived().is_empty());
        put("<file-rbac><users>");
        assert_eq!((watch.check(), watch.check()), (Looked::Refused, Looked::Same), "told once");
        assert!(knows(&watch, "a") && archived().is_empty());
        fs::remove_file(&credentials).unwrap();
        assert_eq!((watch.check(), watch.check()), (Looked::Refused, Looked::Same));
        assert!(knows(&watch, "a"));
        put(&file("another"));
        assert_eq!(watch.check(), Looked::Taken);
        assert!(!knows(&watch, "a") && knows(&watch, "another"));
        assert_eq!(archived(), [file("a")]);
        assert_eq!(watch.check(), Looked::Same);
        // Neither a file with the same text nor other rights to read it replace anything.
        put(&file("another"));
        assert_eq!(watch.check(), Looked::Touched);
        permit(0o600);
        assert_eq!(watch.check(), Looked::Touched);
        assert_eq!(archived().len(), 1);
    }

    #[test]
    fn archived_files_are_bounded_and_none_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join(ARCHIVE);
        let names = || {
            let mut names: Vec<String> =
                fs::read_dir(&archive).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        for text in ["1", "2", "3"] {
            keep(&archive, text.as_bytes(), 1_700_000_000).unwrap();
        }
        let expected =
            ["20231114-22-13-20-02-credentials.xml", "20231114-22-13-20-03-credentials.xml", "20231114-22-13-20-credentials.xml"];
        assert_eq!(names(), expected);
        assert_eq!(fs::read_to_string(archive.join(expected[2])).unwrap(), "1");
        assert_eq!(fs::metadata(archive.join(expected[0])).unwrap().permissions().mode() & 0o777, 0o600);
        for later in 1..=ARCHIVED_MAX as u64 {
            keep(&archive, b"x", 1_700_000_000 + later).unwrap();
        }
        assert_eq!(names().len(), ARCHIVED_MAX);
        assert_eq!(names()[0], "20231114-22-13-21-credentials.xml", "the oldest went");
    }
}
