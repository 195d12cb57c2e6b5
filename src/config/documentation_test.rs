//! Every configuration in `docs/authentication.md` is one, and all that it has to say.

use std::fs;
use std::path::Path;

use super::rbac;
use super::tls::fixture::{Ca, put};

const TEXT: &str = include_str!("../../docs/authentication.md");

/// The blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    TEXT.split(&format!("```{language}\n")).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn block(start: &str) -> &'static str {
    blocks("xml").into_iter().find(|block| block.starts_with(start)).unwrap()
}

#[test]
fn each_configuration_of_the_documentation_starts_a_node_without_a_word() {
    let home = tempfile::tempdir().unwrap();
    let conf = home.path().join("conf");
    let rbac = conf.join("file-rbac/conf");
    fs::create_dir_all(&rbac).unwrap();
    put(&rbac, "credentials.xml", block("<file-rbac>"));
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures");
    for (name, key) in [("issuer.pem", "rsa.pem"), ("ed25519.pem", "ed25519.pem"), ("jwks.json", "jwks.json")] {
        fs::copy(keys.join(key), conf.join(name)).unwrap();
    }
    put(&conf, "jwt-secret", "a secret of the tests, long enough for everybody\n");
    let ca = Ca::new("ca");
    let server = ca.server();
    put(&conf, "server.pem", server.certificate.pem() + &server.key.serialize_pem());
    put(&conf, "ca.pem", ca.certificate.pem());
    let env = |name: &str| (name == "JWT_SECRET").then(|| "another secret, and long enough, too".to_owned());
    let all: Vec<&str> = blocks("xml").into_iter().filter(|block| block.starts_with("<hivemq>")).collect();
    assert_eq!(all.len(), 3);
    for text in all {
        let file = put(&conf, "config.xml", text);
        let loaded = super::load(&file, env).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        assert!(loaded.warnings.is_empty(), "{:?}\n{text}", loaded.warnings);
        assert!(!loaded.settings.security.authentication.is_off());
    }
}

#[test]
fn the_tables_of_the_documentation_name_every_element_of_jwt() {
    let known = super::check::jwt_elements();
    assert!(known.len() > 15, "{known:?}");
    let full = blocks("xml").into_iter().find(|block| block.contains("<verify-claim>")).unwrap();
    for name in known {
        assert!(TEXT.contains(&format!("| `{name}` |")), "{name} is in no table");
        assert!(full.contains(&format!("<{name}>")), "{name} is in no example");
    }
}

#[test]
fn the_extension_and_the_permissions_of_the_documentation_are_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("conf")).unwrap();
    put(&folder.path().join("conf"), "config.xml", block("<extension-configuration>"));
    put(&folder.path().join("conf"), "credentials.xml", block("<file-rbac>"));
    let mut found = Vec::new();
    let settings = rbac::settings(folder.path(), false, &mut found);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(settings.listener_names.as_deref(), Some(&["tcp-listener-1883".to_owned()][..]));
    let loaded = rbac::load(&settings).unwrap();
    assert!(loaded.warnings.is_empty() && loaded.credentials.users.contains_key("ann"));
    let claims: serde_json::Value = serde_json::from_str(blocks("json")[0]).unwrap();
    assert_eq!(rbac::claim::permissions(&claims["permissions"]).unwrap().len(), 3);
}
