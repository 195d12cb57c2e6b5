//! Tokens.

use std::path::Path;

use super::*;
use crate::config::jwt::{Algorithm, TokenFrom, WithoutPermissions};
use crate::config::render;

/// `<jwt>` with the fixtures of `auth::jwt` as files.
fn jwt(inside: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures");
    file(&nest("security/authentication/jwt", &inside.replace("FIXTURES", &folder.display().to_string())))
}

#[test]
fn tokens_are_checked_as_the_file_says() {
    let read = |inside: &str| check_text(&jwt(inside)).settings.map(|settings| settings.security.authentication.jwt.unwrap());
    let default = read("<jwks-file>FIXTURES/jwks.json</jwks-file>").unwrap();
    assert_eq!((default.token_from, default.method.as_deref()), (TokenFrom::Password, None));
    assert_eq!((default.reload_interval_s, default.leeway_s, default.expiry_required), (60, 10, true));
    assert_eq!(default.algorithms, Algorithm::ALL);
    assert!(default.issuers.is_empty() && default.audiences.is_empty() && default.verify.is_empty());
    assert_eq!([&*default.user_name_claim, &*default.permissions_claim, &*default.roles_claim], ["sub", "permissions", "roles"]);
    assert_eq!(default.without_permissions, WithoutPermissions::Nothing);
    let all = "<enabled>true</enabled><token-from>USER_NAME</token-from><authentication-method>JWT</authentication-method>\
        <secret>a secret of the tests, never to be seen</secret><secret-base64>false</secret-base64>\
        <public-key-file>FIXTURES/rsa.pem</public-key-file><public-key-file>FIXTURES/p256.pem</public-key-file>\
        <jwks-file>FIXTURES/jwks.json</jwks-file><keys-reload-interval>5</keys-reload-interval>\
        <algorithm>RS256</algorithm><algorithm>ES256</algorithm><leeway>0</leeway><expiry-required>false</expiry-required>\
        <issuer>i</issuer><issuer>j</issuer><audience>a</audience><user-name-claim>name</user-name-claim>\
        <verify-claim><claim>device</claim><value>${{clientid}}</value></verify-claim>\
        <verify-claim><claim>tier</claim><value>gold</value></verify-claim>\
        <permissions-claim>acl</permissions-claim><without-permissions>ALL</without-permissions>";
    let outcome = check_text(&jwt(all));
    let settings = outcome.settings.unwrap();
    let read = settings.security.authentication.jwt.as_ref().unwrap();
    assert_eq!((read.token_from, read.method.as_deref()), (TokenFrom::UserName, Some("JWT")));
    assert_eq!(read.sources.files().len(), 3);
    assert_eq!((read.reload_interval_s, read.leeway_s, read.expiry_required), (5, 0, false));
    assert_eq!(read.algorithms, [Algorithm::Rs256, Algorithm::Es256]);
    assert_eq!((read.issuers.len(), read.audiences.len(), read.verify.len()), (2, 1, 2));
    assert_eq!((&*read.user_name_claim, &*read.permissions_claim), ("name", "acl"));
    assert_eq!(read.without_permissions, WithoutPermissions::All);
    let shown = format!("{}{settings:?}{:?}", render(&settings), outcome.warnings);
    assert!(shown.contains("authentication/jwt/token-from") && shown.contains("RS256, ES256"), "{shown}");
    assert!(!shown.contains("never to be seen"), "{shown}");
    let off = check_text(&jwt("<enabled>false</enabled><jwks-file>nowhere</jwks-file>")).settings.unwrap();
    assert!(off.security.authentication.is_off());
}

#[test]
fn what_is_wrong_with_tokens_keys_is_told_at_its_line_before_the_start() {
    let keys = "<public-key-file>FIXTURES/rsa.pem</public-key-file>";
    let table = [
        (String::new(), "jwt>: there is no key; add <secret>"),
        ("<jwks-file>no.json</jwks-file>".to_owned(), "jwt/jwks-file>: no.json cannot be read: No such file"),
        ("<secret-file>hunter2</secret-file>".to_owned(), "jwt/secret-file>: names no file (it is not shown"),
        ("<secret></secret>".to_owned(), "jwt/secret>: is empty, or the variable in it is; allowed: a secret"),
        (format!("{keys}<secret/>"), "jwt/secret>: is empty, or the variable in it is; allowed: a secret"),
        (
            format!("{keys}<secret-base64>hunter2</secret-base64>"),
            "jwt/secret-base64>: found a value that is not shown, since it may be a secret; allowed: true or false",
        ),
        (format!("{keys}<public-key-file>FIXTURES/rsa-weak.pem</public-key-file>"), "RSA key of 1024 bits; allowed: 2048"),
        ("<secret>hunter2</secret><secret-base64>true</secret-base64>".to_owned(), "jwt/secret>: is not base64"),
        ("<secret>-----BEGIN PUBLIC KEY-----</secret>".to_owned(), "jwt/secret>: is PEM, which is no secret"),
        (format!("{keys}<algorithm>RS257</algorithm>"), "jwt/algorithm>: found \"RS257\"; allowed: HS256 or HS384"),
        (format!("{keys}<algorithm>none</algorithm>"), "jwt/algorithm>: found \"none\"; allowed: "),
        (format!("{keys}<algorithm>HS256</algorithm>"), "no key is for this algorithm; allowed with these keys: RS256 or RS384"),
        (format!("{keys}<authentication-method>SCRAM-SHA-256</authentication-method>"), "allowed: a name that is not SCRAM's"),
        (format!("{keys}<verify-claim><claim>sub</claim></verify-claim>"), "<claim> or <value> is missing; add"),
        (
            format!("{keys}<verify-claim><claim>sub</claim><value>${{{{topic}}}}</value></verify-claim>"),
            "found placeholder \"topic\"; allowed: ${{clientid}} and ${{username}}",
        ),
        (format!("{keys}<without-permissions>FILE_RBAC</without-permissions>"), "File RBAC is off; allowed: NONE or ALL"),
    ];
    for (inside, told) in table {
        let error = error(&jwt(&inside));
        assert!(error.starts_with("c.xml:3: <security/authentication/jwt") && error.contains(told), "{told}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let warnings = |inside: &str| -> Vec<String> { check_text(&jwt(inside)).warnings.iter().map(ToString::to_string).collect() };
    let short = warnings("<secret>hunter2</secret>");
    assert!(short.len() == 1 && short[0].contains("jwt/secret>: has 7 bytes") && !short[0].contains("hunter2"), "{short:?}");
    let roles = warnings(&format!("{keys}<roles-claim>groups</roles-claim>"));
    assert!(roles.len() == 1 && roles[0].contains("has no effect: File RBAC"), "{roles:?}");
}

#[test]
fn tokens_alone_make_a_listener_that_others_reach_a_safe_one() {
    let open = |more: &str| jwt(&format!("<jwks-file>FIXTURES/jwks.json</jwks-file>{more}")).replace("127.0.0.1", "0.0.0.0");
    let outcome = check_text(&open(""));
    assert!(outcome.errors.is_empty() && outcome.warnings.is_empty(), "{:?} {:?}", outcome.errors, outcome.warnings);
    let anonymous = open("").replace("<security>", &format!("<security>{}", nest("allow-anonymous/enabled", "true")));
    assert!(check_text(&anonymous).warnings.is_empty(), "nobody comes past it");
    assert!(!check_text(&open("<enabled>false</enabled>")).errors.is_empty());
}
