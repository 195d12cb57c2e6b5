//! The flow of spec/hivemq.md 7.4, row by row.

use std::collections::HashMap;
use std::num::NonZeroU32;

use bytes::Bytes;

use super::*;
use crate::auth::certificate::ClientCertificate;
use crate::auth::{CertificateNames, Chain};
use crate::config::rbac::{Hash, PasswordType, Role, User};
use crate::config::settings::CertificateName;
use crate::mqtt::QoS;

const SALT: &[u8] = b"salt";

fn settings() -> FileRbacSettings {
    FileRbacSettings {
        folder: "f".into(),
        credentials: "f/credentials.xml".into(),
        reload_interval_s: 60,
        password_type: PasswordType::Hashed,
        listener_names: None,
        next_instead_of_fail: false,
        passwords_optional: true,
    }
}

fn hashed(password: &str) -> Password {
    let text = password::hash(password.as_bytes(), "salt", NonZeroU32::new(3).unwrap());
    let hash = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.rsplit(':').next().unwrap()).unwrap();
    Password::Hashed(Hash { salt: SALT.into(), iterations: 3, hash: hash.into() })
}

/// `alice` with a hash, `bob` with a plain password, `never`, `carol` by SCRAM only.
fn credentials() -> Credentials {
    let scram = password::scram_verifier(Mechanism::Sha256, b"pw-carol", SALT, NonZeroU32::new(2).unwrap());
    let user = |password, scram_sha_256| User { password, scram_sha_256, scram_sha_512: None, roles: [role()].into() };
    Credentials {
        users: HashMap::from([
            ("alice".into(), user(Some(hashed("pw-alice")), None)),
            ("bob".into(), user(Some(Password::Plain(b"pw-bob"[..].into())), None)),
            ("never".into(), user(Some(Password::Never), None)),
            ("carol".into(), user(None, Some(scram))),
        ]),
        roles: HashMap::new(),
    }
}

/// Allows nothing: what matters here is who comes in.
fn role() -> Arc<Role> {
    Arc::new(Role { id: "r".into(), permissions: Vec::new() })
}

fn rbac(settings: FileRbacSettings) -> FileRbac {
    FileRbac::new(settings, Some(credentials()), &[7; 32])
}

fn request(user: Option<&str>, password: Option<&str>) -> Request {
    Request {
        client_id: "client".into(),
        user_name: user.map(Into::into),
        password: password.map(|text| Bytes::copy_from_slice(text.as_bytes())),
        listener: "tcp-listener-1883".into(),
        ..Request::default()
    }
}

fn outcome(authenticator: &dyn Authenticator, request: &Request) -> Result<Option<String>, ReasonCode> {
    let mut answer = authenticator.begin(request, &|| "nonce".to_owned());
    while let Answer::Compute(computation) = answer {
        answer = computation();
    }
    match answer {
        Answer::Decided(Verdict::Accept { principal, .. }) => Ok(principal.user_name().map(ToString::to_string)),
        Answer::Decided(Verdict::Refuse(refusal)) => Err(refusal.code),
        Answer::Pass => Ok(Some("(passed)".to_owned())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn user_names_and_passwords() {
    use ReasonCode::{BadUserNameOrPassword, ClientIdentifierNotValid, NotAuthorized};
    let ok = |name: &str| Ok(Some(name.to_owned()));
    let table = [
        (request(Some("alice"), Some("pw-alice")), ok("alice")),
        (request(Some("bob"), Some("pw-bob")), ok("bob")),
        (request(Some("alice"), Some("pw-bob")), Err(NotAuthorized)),
        (request(Some("alice"), Some("")), Err(NotAuthorized)),
        (request(Some("nobody"), Some("pw-alice")), Err(NotAuthorized)),
        (request(Some(""), Some("")), Err(NotAuthorized)),
        (request(Some("never"), Some("")), Err(NotAuthorized)),
        (request(Some("carol"), Some("pw-carol")), Err(NotAuthorized)),
        (request(Some("alice"), None), Err(BadUserNameOrPassword)),
        (request(None, Some("pw-alice")), Err(BadUserNameOrPassword)),
        (request(None, None), Err(BadUserNameOrPassword)),
        (request(Some("al+ce"), Some("pw-alice")), Err(BadUserNameOrPassword)),
        (request(Some("al#"), Some("x")), Err(BadUserNameOrPassword)),
        (Request { client_id: "a#".into(), ..request(Some("alice"), Some("pw-alice")) }, Err(ClientIdentifierNotValid)),
        (Request { client_id: "+".into(), ..request(Some("alice"), Some("x")) }, Err(ClientIdentifierNotValid)),
    ];
    for (request, expected) in table {
        let shown = format!("{request:?}");
        assert!(!shown.contains("pw-"), "{shown}");
        assert_eq!(outcome(&rbac(settings()), &request), expected, "{shown}");
        // Whatever fails is passed on where the file says so.
        let passed = rbac(FileRbacSettings { next_instead_of_fail: true, ..settings() });
        let expected = expected.or(ok("(passed)"));
        assert_eq!(outcome(&passed, &request), expected, "{shown}");
        // And everything from a listener that is not named.
        let other = rbac(FileRbacSettings { listener_names: Some(vec!["tls".to_owned()]), ..settings() });
        assert_eq!(outcome(&other, &request), ok("(passed)"), "{shown}");
    }
}

#[test]
fn a_file_of_no_use_denies_everybody_until_another_takes_its_place() {
    let rbac = FileRbac::new(settings(), None, &[7; 32]);
    let alice = request(Some("alice"), Some("pw-alice"));
    assert_eq!(outcome(&rbac, &alice), Err(ReasonCode::NotAuthorized));
    rbac.replace(credentials());
    assert_eq!(outcome(&rbac, &alice), Ok(Some("alice".to_owned())));
    rbac.replace(Credentials::default());
    assert_eq!(outcome(&rbac, &alice), Err(ReasonCode::NotAuthorized));
}

#[test]
fn scram_is_served_where_a_user_has_keys_and_its_users_keep_to_their_roles() {
    let rbac = rbac(settings());
    assert!(rbac.serves("SCRAM-SHA-256") && !rbac.serves("SCRAM-SHA-512") && !rbac.serves("PLAIN"));
    let first = |method: &str, user: &str| Request {
        method: Some(method.into()),
        data: Some(format!("n,,n={user},r=abc").into()),
        ..request(None, None)
    };
    for user in ["carol", "alice", "nobody"] {
        let answer = rbac.begin(&first("SCRAM-SHA-256", user), &|| "nonce".to_owned());
        assert!(matches!(answer, Answer::Challenge { data: Some(_), .. }), "{user}: {answer:?}");
    }
    assert!(matches!(rbac.begin(&first("SCRAM-SHA-512", "carol"), &String::new), Answer::Pass));
    let chain = Arc::new(Chain::new(vec![Box::new(rbac.clone())], true));
    let answer = chain.begin(&Arc::new(first("SCRAM-SHA-512", "carol")), String::new);
    assert!(matches!(answer, Answer::Decided(Verdict::Refuse(Refusal::METHOD))), "{answer:?}");
    let carol = ScramUsers { rbac: rbac.clone(), client_id: "client".into() }.admit(&"carol".into()).unwrap();
    assert!(!carol.may_publish("t", QoS::AtMostOnce, false));
    let odd = ScramUsers { rbac, client_id: "a#".into() };
    assert_eq!(odd.admit(&"carol".into()).unwrap_err().code, ReasonCode::ClientIdentifierNotValid);
}

#[test]
fn a_certificate_stands_for_the_user_it_names() {
    let names = |common: Option<&str>, alternative: Option<&str>| CertificateNames {
        common_name: common.map(Into::into),
        subject_alternative_name: alternative.map(Into::into),
    };
    let with = |request: Request, names| Request { certificate: Some(names), ..request };
    let ok = |name: &str| Ok(Some(name.to_owned()));
    let bare = || request(None, None);
    let table = [
        (bare(), ok("(passed)"), ok("(passed)")),
        (with(bare(), names(Some("alice"), Some("bob"))), ok("alice"), ok("bob")),
        (with(bare(), names(None, Some("bob"))), ok("(passed)"), ok("bob")),
        (with(bare(), names(Some("nobody"), None)), Err(ReasonCode::NotAuthorized), ok("(passed)")),
        (with(bare(), names(Some("al+ce"), None)), Err(ReasonCode::BadUserNameOrPassword), ok("(passed)")),
        (
            with(Request { client_id: "x#".into(), ..bare() }, names(Some("alice"), None)),
            Err(ReasonCode::ClientIdentifierNotValid),
            ok("(passed)"),
        ),
        (with(request(Some("alice"), None), names(Some("alice"), None)), ok("alice"), ok("(passed)")),
        (with(request(Some("bob"), None), names(Some("alice"), None)), Err(ReasonCode::BadUserNameOrPassword), ok("(passed)")),
        (with(request(Some("bob"), Some("pw-bob")), names(Some("alice"), None)), ok("(passed)"), ok("(passed)")),
    ];
    // On a listener that File RBAC asks about passwords, and on one that it does not.
    let elsewhere = FileRbacSettings { listener_names: Some(vec!["other".to_owned()]), ..settings() };
    for settings in [settings(), elsewhere] {
        for (request, by_common_name, by_alternative_name) in &table {
            let by = |name| outcome(&ClientCertificate::new(name, Some(rbac(settings.clone()))), request);
            assert_eq!(by(CertificateName::CommonName), *by_common_name, "{request:?}");
            assert_eq!(by(CertificateName::SubjectAlternativeName), *by_alternative_name, "{request:?}");
        }
    }
    let alone = ClientCertificate::new(CertificateName::CommonName, None);
    assert_eq!(outcome(&alone, &with(bare(), names(Some("anybody"), None))), ok("anybody"));
    assert_eq!(outcome(&alone, &with(request(None, Some("x")), names(Some("anybody"), None))), ok("anybody"));
}
