//! Who decides which clients come in: `<security><authentication>`, an element of our own, and HiveMQ's File RBAC extension where its
//! folder lies (spec/hivemq.md 7.1). Its files are read too, so that a mistake is found before the start.

use std::path::PathBuf;

use super::jwt;
use super::view::View;
use crate::config::EMBEDDED_NAME;
use crate::config::diagnostic::{Diagnostic, Level};
use crate::config::rbac::{self, FOLDER, FileRbacSettings};
use crate::config::settings::{AuthenticationSettings, CertificateName, ClientAuthentication, ListenerSettings};

/// Environment variable of HiveMQ's image: the folder of all extensions.
pub(in crate::config) const EXTENSIONS_VARIABLE: &str = "HIVEMQ_EXTENSION_FOLDER";
/// Beside the folder of `config.xml`, as in HiveMQ's home.
pub(in crate::config) const EXTENSIONS: &str = "../extensions";
/// A file of this name in its folder switches an extension off.
const DISABLED: &str = "DISABLED";

pub(super) fn read(
    root: &View<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    listeners: &[ListenerSettings],
) -> AuthenticationSettings {
    let authentication = root.at("security/authentication");
    let certificate = authentication.at("client-certificate");
    let client_certificate = (certificate.exists() && certificate.flag("enabled")).then(|| {
        let asks = |listener: &ListenerSettings| {
            listener.tls.as_ref().is_some_and(|tls| tls.client_authentication != ClientAuthentication::None)
        };
        if !listeners.iter().any(asks) {
            certificate.warning("no listener asks for certificates, so nobody is let in by one");
        }
        match certificate.choice("user-name") {
            "SUBJECT_ALTERNATIVE_NAME" => CertificateName::SubjectAlternativeName,
            _ => CertificateName::CommonName,
        }
    });
    let file_rbac = folder(root, env).map(|folder| file_rbac(root, folder, client_certificate.is_some(), listeners));
    let jwt = jwt::read(&authentication.at("jwt"), file_rbac.is_some());
    AuthenticationSettings { file_rbac, client_certificate, jwt }
}

/// The extension's folder, where it is switched on: by its element, or by being there.
fn folder(root: &View<'_>, env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let element = root.at("security/authentication/file-rbac");
    if element.exists() && !element.flag("enabled") {
        return None;
    }
    if let Some(folder) = element.at("folder").file() {
        return Some(folder);
    }
    if root.report().file() == EMBEDDED_NAME {
        return None;
    }
    let extensions = env(EXTENSIONS_VARIABLE).map_or_else(|| root.report().directory().join(EXTENSIONS), PathBuf::from);
    let folder = extensions.join(FOLDER);
    (element.exists() || (folder.is_dir() && !folder.join(DISABLED).exists())).then_some(folder)
}

fn file_rbac(root: &View<'_>, folder: PathBuf, certificates: bool, listeners: &[ListenerSettings]) -> FileRbacSettings {
    let report = root.report();
    let mut found = Vec::new();
    let settings = rbac::settings(&folder, certificates, &mut found);
    for name in settings.listener_names.iter().flatten() {
        if !listeners.iter().any(|listener| listener.name == *name) {
            let message = format!("File RBAC names listener {name}, which there is not");
            root.at("security/authentication/file-rbac").warning(message);
        }
    }
    match rbac::load(&settings) {
        Ok(loaded) => found.extend(loaded.warnings),
        Err(errors) => found.extend(errors.into_iter().map(denied)),
    }
    let element = root.at("security/authentication/file-rbac/folder");
    for diagnostic in found {
        report.adopt(Diagnostic { file: element.without_path(&diagnostic.file), ..diagnostic });
    }
    settings
}

/// The node starts all the same and waits for a better file (spec/hivemq.md 7.2).
fn denied(error: Diagnostic) -> Diagnostic {
    let message = format!("{}; until that is corrected, every client is refused", error.message);
    Diagnostic { level: Level::Warning, message, ..error }
}
