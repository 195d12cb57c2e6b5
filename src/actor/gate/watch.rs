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

/// What tells that a file is another one; links are followed, so that a swapped Kubernetes secret is seen.
#[derive(PartialEq, Eq)]
pub(super) struct Seen {
    modified: (i64, i64),
    len: u64,
    inode: u64,
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
    fn check(&mut self) {
        let settings = self.rbac.settings();
        let seen = Seen::at(&settings.credentials);
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        match rbac::load(settings) {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    tracing::warn!("{warning}");
                }
                self.take(loaded.credentials, loaded.raw);
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!("changed credentials are of no use, those from before stay in force: {error}");
                }
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
            && let Err(error) = keep(&archive, &replaced)
        {
            tracing::warn!(archive = %archive.display(), %error, "the replaced credentials cannot be archived");
        }
    }
}

impl Seen {
    pub(super) fn at(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Some(Self { modified, len: metadata.len(), inode: metadata.ino() })
    }
}

/// Checks at each interval, for as long as it is polled.
pub async fn run(mut watch: Watch) {
    let period = Duration::from_secs(watch.rbac.settings().reload_interval_s.into());
    loop {
        actix_rt::time::sleep(period).await;
        let checked = actix_rt::task::spawn_blocking(move || {
            watch.check();
            watch
        });
        let Ok(back) = checked.await else { return };
        watch = back;
    }
}

/// Writes a replaced file, readable to its owner alone.
fn keep(archive: &Path, replaced: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(archive)?;
    let path = archive.join(format!("{}-credentials.xml", stamp(clock::wall_ms() / 1000)));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
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

/// `yyyyMMdd-hh-mm-ss`, UTC.
fn stamp(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March, in eras of 400 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}-{:02}-{:02}", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::rbac::{FileRbacSettings, PasswordType};

    #[test]
    fn a_moment_is_written_as_a_date() {
        let table = [
            (0, "19700101-00-00-00"),
            (951_782_399, "20000228-23-59-59"),
            (951_782_400, "20000229-00-00-00"),
            (951_868_800, "20000301-00-00-00"),
            (1_700_000_000, "20231114-22-13-20"),
            (4_107_542_400, "21000301-00-00-00"),
        ];
        for (seconds, expected) in table {
            assert_eq!(stamp(seconds), expected);
        }
    }

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
        let request = crate::auth::Request::default();
        let knows = |watch: &Watch, user: &str| watch.rbac.principal(&user.into(), &request).is_some();
        assert!(!knows(&watch, "a"), "there is no file");
        put(&file("a"));
        watch.check();
        assert!(knows(&watch, "a") && archived().is_empty());
        put("<file-rbac><users>");
        watch.check();
        assert!(knows(&watch, "a") && archived().is_empty());
        fs::remove_file(&credentials).unwrap();
        watch.check();
        assert!(knows(&watch, "a"));
        put(&file("another"));
        watch.check();
        assert!(!knows(&watch, "a") && knows(&watch, "another"));
        assert_eq!(archived(), [file("a")]);
        watch.check();
        assert_eq!(archived().len(), 1);
    }
}
