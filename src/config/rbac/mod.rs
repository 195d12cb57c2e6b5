//! The files of HiveMQ's File RBAC extension (spec/hivemq.md 7.1 to 7.3): users, roles and permissions as plain data. The check of a
//! configuration reads them as the start and each reload do, so that `troupemq config check` finds whatever would be refused later.

pub mod claim;
pub mod credentials;
mod elements;
mod extension;
mod reader;
mod template;

use std::path::{Path, PathBuf};

pub use credentials::{Activity, Credentials, Hash, Password, Permission, Retain, Role, ScramVerifier, Share, User};
pub(super) use elements::{CREDENTIALS, EXTENSION};
pub use extension::PasswordType;
pub use template::{Piece, Substitutes, Template};

use super::diagnostic::{Diagnostic, Level, Report};
use super::limits::CREDENTIALS_SIZE_MAX;
use super::read_bounded;

/// Name of the extension's folder, below the folder of extensions.
pub const FOLDER: &str = "hivemq-file-rbac-extension";

/// Root elements of the files.
pub(super) const ROOTS: [&str; 2] = [extension::ROOT, credentials::ROOT];

/// What the extension's own `config.xml` and the place of its files say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRbacSettings {
    /// The extension's folder; replaced files are archived below it.
    pub folder: PathBuf,
    pub credentials: PathBuf,
    /// Seconds, at least 1.
    pub reload_interval_s: u32,
    pub password_type: PasswordType,
    /// `None`: all listeners.
    pub listener_names: Option<Vec<String>>,
    /// Whether what is refused here goes to the next authenticator.
    pub next_instead_of_fail: bool,
    /// Whether a user may have no password, since certificates log in too.
    pub passwords_optional: bool,
}

/// Credentials, and the file as it was.
#[derive(Debug)]
pub struct Loaded {
    pub credentials: Credentials,
    /// To be archived when another file takes its place.
    pub raw: Vec<u8>,
    pub warnings: Vec<Diagnostic>,
}

/// Finds the extension's files in its folder and reads its `config.xml`, if there is one. What is wrong there is said, and the default
/// used, as HiveMQ does.
pub(super) fn settings(folder: &Path, passwords_optional: bool, found: &mut Vec<Diagnostic>) -> FileRbacSettings {
    // The legacy place wins.
    let at = |legacy: &str, name: &str| {
        let legacy = folder.join(legacy);
        if legacy.exists() { legacy } else { folder.join("conf").join(name) }
    };
    let extension = extension::read(&at("extension-config.xml", "config.xml"), found);
    FileRbacSettings {
        folder: folder.to_owned(),
        credentials: at("credentials.xml", "credentials.xml"),
        reload_interval_s: extension.reload_interval_s,
        password_type: extension.password_type,
        listener_names: extension.listener_names,
        next_instead_of_fail: extension.next_instead_of_fail,
        passwords_optional,
    }
}

/// Reads the credentials. Blocks on the disk.
///
/// # Errors
/// Why the file is of no use: any mistake makes the whole of it invalid (spec/hivemq.md 7.2).
pub fn load(settings: &FileRbacSettings) -> Result<Loaded, Vec<Diagnostic>> {
    let file = settings.credentials.display().to_string();
    let raw = read_bounded(&settings.credentials, CREDENTIALS_SIZE_MAX)
        .map_err(|error| vec![whole_file(&file, format!("cannot be read: {error}"))])?;
    if raw.len() > CREDENTIALS_SIZE_MAX {
        return Err(vec![whole_file(&file, format!("larger than {CREDENTIALS_SIZE_MAX} bytes"))]);
    }
    let report = Report::new(&file);
    let credentials = credentials::parse(&raw, settings, &report);
    let (errors, warnings) = report.into_parts();
    match credentials {
        Some(credentials) if errors.is_empty() => Ok(Loaded { credentials, raw, warnings }),
        _ => Err(errors),
    }
}

fn whole_file(file: &str, message: String) -> Diagnostic {
    Diagnostic { level: Level::Error, file: file.to_owned(), line: 0, path: String::new(), message }
}

#[cfg(test)]
#[path = "rbac_test.rs"]
mod tests;
