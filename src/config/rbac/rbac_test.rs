//! What the extension's files may say, and what makes them invalid.

use std::fs;

use super::*;
use crate::mqtt::QoS;

const ROLES: &str =
    "<roles><role><id>r1</id><permissions><permission><topic>a/#</topic></permission></permissions></role></roles>";
/// `client` with 32 zero bytes as salt would do; this is what HiveMQ's tool prints for some password.
const HASHED: &str = "c2FsdA==:100:aGFzaA==";

fn user(name: &str, more: &str) -> String {
    format!("<user><name>{name}</name>{more}<roles><id>r1</id></roles></user>")
}

fn file(users: &str, roles: &str) -> String {
    format!("<file-rbac><users>{users}</users>{roles}</file-rbac>")
}

fn write(xml: &str, extension: &str) -> (tempfile::TempDir, FileRbacSettings, Vec<Diagnostic>) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf")).unwrap();
    fs::write(folder.path().join("conf/credentials.xml"), xml).unwrap();
    if !extension.is_empty() {
        let text = format!("<extension-configuration>{extension}</extension-configuration>");
        fs::write(folder.path().join("conf/config.xml"), text).unwrap();
    }
    let mut found = Vec::new();
    let settings = settings(folder.path(), false, &mut found);
    (folder, settings, found)
}

fn load_text(xml: &str, extension: &str) -> Result<Loaded, Vec<String>> {
    let (_folder, settings, _) = write(xml, extension);
    load(&settings).map_err(|errors| errors.iter().map(|e| e.message.clone()).collect())
}

#[test]
fn a_file_of_all_that_there_is_is_read() {
    let permission = "<permission><topic>dev/${{clientid}}/#</topic><activity>publish</activity><qos>ZERO_TWO</qos>\
        <retain>NOT_RETAINED</retain><shared-subscription>SHARED</shared-subscription><shared-group>g</shared-group></permission>";
    let roles = format!(
        "<roles><role><id>r1</id><permissions>{permission}<permission><topic>b</topic></permission></permissions></role></roles>"
    );
    let scram = "<scram-sha-256>4096:W22ZaJ0SNY7soEsUEjb6gQ==:WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=</scram-sha-256>";
    let users = user("u1", &format!("<password>{HASHED}</password>")) + &user("u2", scram);
    let loaded = load_text(&file(&users, &roles), "").unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let u1 = &loaded.credentials.users["u1"];
    let Some(Password::Hashed(hash)) = &u1.password else { panic!("{:?}", u1.password) };
    assert_eq!((&*hash.salt, hash.iterations, &*hash.hash), (&b"salt"[..], 100, &b"hash"[..]));
    let first = &u1.roles[0].permissions[0];
    assert_eq!((first.activity, first.retain, first.share), (Activity::Publish, Retain::NotRetained, Share::Shared));
    assert_eq!(first.group.as_deref(), Some("g"));
    let covered = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].map(|qos| first.covers_qos(qos));
    assert_eq!(covered, [true, false, true]);
    let second = &u1.roles[0].permissions[1];
    assert_eq!((second.activity, second.retain, second.share), (Activity::All, Retain::All, Share::All));
    assert_eq!((second.qos, &second.group), ([true; 3], &None));
    let u2 = &loaded.credentials.users["u2"];
    assert!(u2.password.is_none() && u2.scram_sha_512.is_none());
    assert_eq!(u2.scram_sha_256.as_ref().map(|scram| (scram.iterations, scram.salt.len())), Some((4096, 16)));
    let debug = format!("{loaded:?}", loaded = loaded.credentials);
    assert!(!debug.contains("hash: [") && debug.contains("***"), "{debug}");
}

#[test]
fn any_mistake_makes_the_whole_file_invalid() {
    let good = user("u1", &format!("<password>{HASHED}</password>"));
    let role = |permissions: &str| format!("<roles><role><id>r1</id><permissions>{permissions}</permissions></role></roles>");
    let table: Vec<(String, &str)> = vec![
        (String::new(), "no root element; the file holds one <file-rbac>"),
        ("<other/>".to_owned(), "found root element"),
        (file("", ROLES), "there is no user"),
        (file(&good, ""), "there is no role"),
        (file(&good, "<roles/>"), "there is no role"),
        (file(&user("", "<password>a:1</password>"), ROLES), "<name> is missing"),
        (file(&user("u1", ""), ROLES), "<password> is missing"),
        (file(&user("u1", "<password/>"), ROLES), "<password> is missing"),
        (file(&user("u1", "<password>secret</password>"), ROLES), "allowed: base64(salt)"),
        (file(&user("u1", "<password>:1:a</password>"), ROLES), "allowed: base64(salt)"),
        (file(&(good.clone() + &good), ROLES), "a second user \"u1\""),
        (file("<user><name>u</name><password>a:b</password></user>", ROLES), "the user has no role"),
        (file("<user><name>u</name><password>a:b</password><roles><id>x</id></roles></user>", ROLES), "the id of a role"),
        (file(&user("u1", "<scram-sha-256>1:a:b:c</scram-sha-256>"), ROLES), "keys of 32 bytes"),
        (file(&good, &role("")), "has no permission"),
        (file(&good, &role("<permission><qos>ALL</qos></permission>")), "<topic> is missing"),
        (file(&good, &role("<permission><topic>a#</topic></permission>")), "allowed: a topic filter"),
        (file(&good, &role("<permission><topic>a</topic><qos>THREE</qos></permission>")), "found \"THREE\""),
        (file(&good, &role("<permission><topic>a</topic><activity>READ</activity></permission>")), "found \"READ\""),
        (file(&good, "<roles><role><permissions/></role></roles>"), "<id> is missing"),
        (
            file(
                &good,
                &(role("<permission><topic>a</topic></permission>").replace("</roles>", "<role><id>r1</id></role></roles>")),
            ),
            "a second role",
        ),
    ];
    for (xml, expected) in table {
        let errors = load_text(&xml, "").expect_err(&xml);
        assert!(errors.iter().any(|error| error.contains(expected)), "{xml}: {errors:?}");
        assert!(errors.iter().all(|error| !error.contains("secret")), "{errors:?}");
    }
    let (_folder, mut settings, _) = write("", "");
    settings.credentials = "/nowhere/credentials.xml".into();
    assert!(load(&settings).unwrap_err()[0].message.contains("cannot be read"));
}

#[test]
fn a_hash_no_password_fits_is_valid_and_warned_of() {
    for text in ["c2FsdA==:100", "a:b:c", "c2FsdA==:0:aGFzaA==", "c2FsdA==:100:aGFzaA==:x"] {
        let loaded = load_text(&file(&user("u1", &format!("<password>{text}</password>")), ROLES), "").unwrap();
        assert_eq!(loaded.credentials.users["u1"].password, Some(Password::Never), "{text}");
        assert_eq!(loaded.warnings.len(), 1, "{text}");
    }
}

#[test]
fn what_is_valid_and_never_applies_is_warned_of() {
    let role = |permission: &str| {
        let permissions = format!("<permissions><permission>{permission}</permission></permissions>");
        file(
            &user("u1", &format!("<password>{HASHED}</password>")),
            &format!("<roles><role><id>r1</id>{permissions}</role></roles>"),
        )
    };
    for (xml, told) in [
        (role("<topic>$share/g/a</topic>"), Some("begins with $share/")),
        (
            role("<topic>dev/${ClientId}/#</topic>"),
            Some("found ${clientid}, which stands for itself; a placeholder has two braces"),
        ),
        (role("<topic>a</topic><shared-group>a/b</shared-group>"), Some("found shared group \"a/b\"")),
        (file(&user("u+", &format!("<password>{HASHED}</password>")), ROLES), Some("found user name \"u+\"")),
        (role("<topic>dev/${{clientid}}/${{username}}</topic><shared-group>#</shared-group>"), None),
    ] {
        let warnings: Vec<_> = load_text(&xml, "").unwrap().warnings.into_iter().map(|warning| warning.message).collect();
        assert_eq!(warnings.len(), usize::from(told.is_some()), "{warnings:?}");
        assert!(told.is_none_or(|told| warnings[0].contains(told)), "{warnings:?}");
    }
}

#[test]
fn a_plain_password_is_taken_as_it_is() {
    let padded =
        load_text(&file(&user("u1", "<password> p w\t</password>"), ROLES), "<password-type>PLAIN</password-type>").unwrap();
    assert_eq!(padded.credentials.users["u1"].password, Some(Password::Plain(b" p w\t"[..].into())));
    assert_eq!(padded.warnings.len(), 1);
    let xml = file(&user("u1", "<password>pass:word</password>"), ROLES);
    let loaded = load_text(&xml, "<password-type>PLAIN</password-type>").unwrap();
    assert_eq!(loaded.credentials.users["u1"].password, Some(Password::Plain(b"pass:word"[..].into())));
}

#[test]
fn the_extensions_own_settings_have_defaults_and_mistakes_cost_a_warning() {
    let table = [
        ("", (60, PasswordType::Hashed, None, false), 0),
        ("<credentials-reload-interval>5</credentials-reload-interval>", (5, PasswordType::Hashed, None, false), 0),
        ("<credentials-reload-interval>0</credentials-reload-interval>", (60, PasswordType::Hashed, None, false), 1),
        ("<credentials-reload-interval>-1</credentials-reload-interval>", (60, PasswordType::Hashed, None, false), 1),
        ("<password-type>PLAIN</password-type>", (60, PasswordType::Plain, None, false), 0),
        ("<password-type>MD5</password-type>", (60, PasswordType::Hashed, None, false), 1),
        ("<next-extension-instead-of-fail>true</next-extension-instead-of-fail>", (60, PasswordType::Hashed, None, true), 0),
        (
            "<listener-names><listener-name>a</listener-name><listener-name>b</listener-name></listener-names>",
            (60, PasswordType::Hashed, Some(vec!["a".to_owned(), "b".to_owned()]), false),
            0,
        ),
        ("<listener-names/>", (60, PasswordType::Hashed, None, false), 1),
        ("<unknown/>", (60, PasswordType::Hashed, None, false), 1),
        ("<broken", (60, PasswordType::Hashed, None, false), 1),
    ];
    for (extension, (interval, password_type, listener_names, next), warnings) in table {
        let (_folder, settings, found) = write("", extension);
        assert_eq!(found.len(), warnings, "{extension}: {found:?}");
        assert!(found.iter().all(|d| d.level == Level::Warning), "{found:?}");
        let outcome =
            (settings.reload_interval_s, settings.password_type, settings.listener_names, settings.next_instead_of_fail);
        assert_eq!(outcome, (interval, password_type, listener_names, next), "{extension}");
    }
}

#[test]
fn files_in_the_legacy_place_win() {
    let (folder, _, _) = write("", "<password-type>HASHED</password-type>");
    let legacy = "<extension-configuration><password-type>PLAIN</password-type></extension-configuration>";
    fs::write(folder.path().join("extension-config.xml"), legacy).unwrap();
    fs::write(folder.path().join("credentials.xml"), "x").unwrap();
    let found = settings(folder.path(), false, &mut Vec::new());
    assert_eq!((found.password_type, found.credentials), (PasswordType::Plain, folder.path().join("credentials.xml")));
}
