//! File RBAC and certificates that stand for users.

use std::path::{Path, PathBuf};

use super::*;
use crate::config::render;
use crate::config::settings::CertificateName;

/// The folder of the extension beside a configuration, with a file of credentials.
fn extension(home: &Path, credentials: &str) -> PathBuf {
    let folder = home.join("extensions").join(crate::config::rbac::FOLDER);
    std::fs::create_dir_all(folder.join("conf")).unwrap();
    std::fs::write(folder.join("conf/credentials.xml"), credentials).unwrap();
    folder
}

const CREDENTIALS: &str = "<file-rbac><users><user><name>u</name><password>c2FsdA==:1:aGFzaA==</password><roles><id>r</id></roles>\
    </user></users><roles><role><id>r</id><permissions><permission><topic>#</topic></permission></permissions></role></roles></file-rbac>";

fn load_in(home: &Path, xml: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<crate::config::Loaded, Vec<String>> {
    let file = home.join("conf/config.xml");
    std::fs::create_dir_all(home.join("conf")).unwrap();
    std::fs::write(&file, xml).unwrap();
    crate::config::load(&file, env).map_err(|errors| errors.errors.iter().map(ToString::to_string).collect())
}

#[test]
fn file_rbac_is_on_where_its_folder_lies_or_its_element_stands() {
    let home = tempfile::tempdir().unwrap();
    let element = |inside: &str| file(&nest("security/authentication/file-rbac", inside));
    let is_on = |xml: &str, env: &dyn Fn(&str) -> Option<String>| {
        let loaded = load_in(home.path(), xml, env).unwrap();
        loaded.settings.security.authentication.file_rbac.map(|rbac| rbac.folder)
    };
    assert_eq!(is_on(&file(""), &|_| None), None);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = extension(elsewhere.path(), CREDENTIALS);
    let variable = elsewhere.path().join("extensions").display().to_string();
    let env = |name: &str| (name == "HIVEMQ_EXTENSION_FOLDER").then(|| variable.clone());
    assert_eq!(is_on(&file(""), &env), Some(other.clone()));
    assert_eq!(is_on(&element(&format!("<folder>{}</folder>", other.display())), &|_| None), Some(other));
    let folder = extension(home.path(), CREDENTIALS);
    let default = home.path().join("conf/../extensions").join(crate::config::rbac::FOLDER);
    assert_eq!(is_on(&file(""), &|_| None), Some(default.clone()));
    assert_eq!(is_on(&element("<enabled>false</enabled>"), &|_| None), None);
    std::fs::write(folder.join("DISABLED"), "").unwrap();
    assert_eq!(is_on(&file(""), &|_| None), None);
    assert_eq!(is_on(&element(""), &|_| None), Some(default));
}

#[test]
fn credentials_of_no_use_are_told_and_leave_the_start_alone() {
    let home = tempfile::tempdir().unwrap();
    extension(home.path(), "<file-rbac>\n<users/></file-rbac>");
    let loaded = load_in(home.path(), &file(""), &|_| None).unwrap();
    let told: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("credentials.xml:1: there is no role") || told[1].contains("credentials.xml:1: there is no role"),
        "{told:?}"
    );
    assert!(told.iter().all(|line| line.contains("every client is refused")), "{told:?}");
}

#[test]
fn an_authenticator_makes_a_listener_that_others_reach_a_safe_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = extension(home.path(), CREDENTIALS);
    let open = |security: &str| {
        format!(
            "<hivemq>\n<listeners><tcp-listener><port>1883</port><bind-address>0.0.0.0</bind-address></tcp-listener></listeners>\n\
             <security>{security}</security></hivemq>"
        )
    };
    let anonymous = nest("allow-anonymous/enabled", "true");
    let off = nest("authentication/file-rbac/enabled", "false");
    let warnings = |xml: &str| load_in(home.path(), xml, &|_| None).map(|loaded| loaded.warnings.len());
    assert_eq!(warnings(&open("")), Ok(0));
    assert_eq!(warnings(&open(&anonymous)), Ok(0), "nobody comes past it");
    assert!(warnings(&open(&off)).unwrap_err()[0].contains("no authenticator"));
    assert_eq!(warnings(&open(&(off + &anonymous))), Ok(1));
    let names = "<extension-configuration><listener-names><listener-name>tcp-listener-1883</listener-name></listener-names>\
        </extension-configuration>";
    std::fs::write(folder.join("conf/config.xml"), names).unwrap();
    assert_eq!(warnings(&open("")), Ok(0), "who is not judged is refused");
    assert_eq!(warnings(&open(&anonymous)), Ok(1), "who is not judged is let in");
    std::fs::write(folder.join("conf/config.xml"), names.replace("1883", "1884")).unwrap();
    assert_eq!(warnings(&open("")), Ok(1), "there is no such listener");
}

#[test]
fn certificates_stand_for_users_where_the_file_says_so() {
    let outcome = |inside: &str| check_text(&file(&nest("security/authentication/client-certificate", inside)));
    let name = |inside: &str| outcome(inside).settings.unwrap().security.authentication.client_certificate;
    assert_eq!(name(""), Some(CertificateName::CommonName));
    assert_eq!(name("<user-name>COMMON_NAME</user-name>"), Some(CertificateName::CommonName));
    assert_eq!(name("<user-name>SUBJECT_ALTERNATIVE_NAME</user-name>"), Some(CertificateName::SubjectAlternativeName));
    assert_eq!(name("<enabled>false</enabled>"), None);
    assert_eq!(settings("").security.authentication.client_certificate, None);
    let warnings: Vec<_> = outcome("").warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("no listener asks for certificates"), "{warnings:?}");
    assert_eq!(outcome("<user-name>SERIAL</user-name>").errors.len(), 1);
    let rendered = render(&settings(&nest("security/authentication/client-certificate", "")));
    assert!(rendered.contains("authentication/client-certificate/user-name"), "{rendered}");
}
