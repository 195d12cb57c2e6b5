//! Tokens of other programs, forged ones, and what their claims lead to. The keys and tokens of `fixtures/` are OpenSSL's and Python's
//! (`make.py`), the one of RFC 7515 its own.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytestring::ByteString;
use ring::hmac;
use serde_json::json;

use super::*;
use crate::config::jwt::{Algorithm, KeySources, VerifyClaim, load};
use crate::config::rbac::{Credentials, FileRbacSettings, PasswordType, Template, User};
use crate::config::settings::Secret;
use crate::mqtt::{QoS, SubscriptionFilter};

const SECRET: &str = "a secret of the tests, with 48 bytes or even more";
const TOKENS: &str = include_str!("fixtures/tokens.txt");
const NOW_MS: u64 = 1_800_000_000_000;
const NOW_S: u64 = NOW_MS / 1000;

fn sources() -> KeySources {
    KeySources { secret: None, secret_file: None, secret_base64: false, public_keys: Vec::new(), jwks: None }
}

fn fixtures(files: &[&str]) -> Vec<Key> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures");
    let (sets, pem): (Vec<_>, Vec<_>) = files.iter().map(|name| folder.join(name)).partition(|path| path.ends_with("jwks.json"));
    load(&KeySources { public_keys: pem, jwks: sets.first().cloned(), ..sources() }).unwrap().keys
}

fn secret() -> Vec<Key> {
    load(&KeySources { secret: Some(Secret::new(SECRET)), ..sources() }).unwrap().keys
}

fn settings() -> JwtSettings {
    JwtSettings::of(sources())
}

/// A token of `fixtures/tokens.txt`.
fn kept(name: &str) -> &'static str {
    TOKENS.lines().find_map(|line| line.split_once(' ').filter(|(found, _)| *found == name)).unwrap().1
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Signed by HMAC-SHA-256 with any key.
fn signed(header: &Value, claims: &Value, key: &[u8]) -> String {
    let text = format!("{}.{}", part(header), part(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn token(claims: &Value) -> String {
    signed(&json!({"alg": "HS256", "typ": "JWT"}), claims, SECRET.as_bytes())
}

/// In force for an hour.
fn hour(mut claims: Value) -> String {
    claims.as_object_mut().unwrap().insert("exp".to_owned(), json!(NOW_S + 3600));
    token(&claims)
}

fn request(token: &str) -> Request {
    Request {
        client_id: "c1".into(),
        user_name: Some("claimed".into()),
        password: Some(Bytes::copy_from_slice(token.as_bytes())),
        wall_ms: NOW_MS,
        ..Request::default()
    }
}

fn finish(answer: Answer) -> Result<Arc<Principal>, Refusal> {
    match answer {
        Answer::Decided(Verdict::Accept { principal, .. }) => Ok(principal),
        Answer::Decided(Verdict::Refuse(refusal)) => Err(refusal),
        Answer::Compute(computation) => finish(computation()),
        other => panic!("{other:?}"),
    }
}

fn ask(settings: JwtSettings, keys: Vec<Key>, request: &Request) -> Result<Arc<Principal>, Refusal> {
    finish(Jwt::new(settings, keys, None).begin(request, &String::new))
}

fn judged(settings: JwtSettings, claims: &Value) -> Result<Arc<Principal>, Refusal> {
    ask(settings, secret(), &request(&token(claims)))
}

const INVALID: Result<(), Refusal> = Err(Refusal::CREDENTIALS);

fn outcome(keys: &[Key], token: &str) -> Result<(), Refusal> {
    ask(settings(), keys.to_vec(), &request(token)).map(drop)
}

#[test]
fn tokens_of_openssl_and_python_fit_their_keys_and_no_others() {
    let all = [
        ("HS256 HS384 HS512", secret()),
        ("RS256 RS384 RS512 PS256 PS384 PS512 RS256/rsa-1", fixtures(&["rsa.pem"])),
        ("RS256/rsa-2 RS384/rsa-2 RS512/rsa-2", fixtures(&["rsa-other.pem"])),
        ("ES256", fixtures(&["p256.pem"])),
        ("ES384", fixtures(&["p384.pem"])),
        ("EdDSA", fixtures(&["ed25519.pem"])),
    ];
    for (names, keys) in &all {
        for name in names.split(' ') {
            let principal = ask(settings(), keys.clone(), &request(kept(name))).unwrap();
            assert_eq!(principal.user_name().map(|name| &**name), Some("ann"), "{name}");
            for (others, keys) in all.iter().filter(|(others, _)| others != names) {
                assert_eq!(outcome(keys, kept(name)), INVALID, "{name} with the key of {others}");
            }
        }
    }
    let rfc_7515_a_1 = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxl\
        LmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let keys = load(&KeySources { secret: Some(Secret::new(key)), secret_base64: true, ..sources() }).unwrap().keys;
    let then = Request { wall_ms: 1_300_819_379_000, ..request(rfc_7515_a_1) };
    let settings = JwtSettings { issuers: vec!["joe".to_owned()], ..settings() };
    assert_eq!(ask(settings, keys.clone(), &then).unwrap().expires_at_ms(), Some(1_300_819_390_000));
    assert_eq!(outcome(&keys, rfc_7515_a_1), Err(claims::EXPIRED));
}

#[test]
fn a_set_is_searched_by_the_name_of_the_key_and_as_a_whole_without_one() {
    let keys = fixtures(&["jwks.json"]);
    for name in ["RS256/rsa-1", "RS256/rsa-2", "RS256", "ES256", "ES384", "EdDSA", "HS256", "HS512"] {
        assert_eq!(outcome(&keys, kept(name)), Ok(()), "{name}");
    }
    // The set has RSA for RS256 only.
    for name in ["RS384/rsa-1", "RS512", "PS256"] {
        assert_eq!(outcome(&keys, kept(name)), INVALID, "{name}");
    }
    let claims = json!({"sub": "ann", "exp": NOW_S + 5});
    let header = |kid: Value| json!({"alg": "HS256", "kid": kid});
    for (kid, expected) in [(json!("shared"), Ok(())), (json!("rsa-1"), INVALID), (json!("x"), INVALID), (json!(7), INVALID)] {
        assert_eq!(outcome(&keys, &signed(&header(kid.clone()), &claims, SECRET.as_bytes())), expected, "{kid}");
    }
    // A key without a name takes any.
    assert_eq!(outcome(&secret(), &signed(&header(json!("x")), &claims, SECRET.as_bytes())), Ok(()));
}

#[test]
fn nobody_signs_with_nothing_or_with_a_public_key() {
    let claims = json!({"sub": "root", "exp": NOW_S + 3600});
    let everything: Vec<Key> = [secret(), fixtures(&["rsa.pem", "p256.pem", "ed25519.pem"])].concat();
    for alg in ["none", "None", "NONE", "", "HS1", "hs256"] {
        let unsigned = format!("{}.{}.", part(&json!({"alg": alg})), part(&claims));
        assert_eq!(outcome(&everything, &unsigned), INVALID, "{alg}");
        assert_eq!(outcome(&everything, &signed(&json!({"alg": alg}), &claims, b"")), INVALID, "{alg}");
    }
    // Algorithm confusion: the public key, in each form in which it is around, as a secret of HS256.
    for file in ["rsa.pem", "p256.pem", "ed25519.pem"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures").join(file);
        let pem = std::fs::read(path).unwrap();
        let keys = fixtures(&[file]);
        let raw: Vec<u8> = match &keys[0].material {
            Material::Rsa { n, .. } => n.to_vec(),
            Material::P256(key) | Material::P384(key) | Material::Ed25519(key) | Material::Secret(key) => key.to_vec(),
        };
        for secret in [&pem[..], pem.trim_ascii_end(), &raw, b""] {
            assert_eq!(outcome(&keys, &signed(&json!({"alg": "HS256"}), &claims, secret)), INVALID, "{file}");
        }
    }
    // Whatever changes, the signature does not fit any more.
    let good = hour(json!({"sub": "ann"}));
    assert_eq!(outcome(&secret(), &good), Ok(()));
    let parts: Vec<&str> = good.split('.').collect();
    let other = part(&json!({"sub": "root", "exp": NOW_S + 3600}));
    for forged in [
        format!("{}.{other}.{}", parts[0], parts[2]),
        format!("{}.{}.{}", part(&json!({"alg": "HS384"})), parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], &parts[2][..40]),
        format!("{}.{}.", parts[0], parts[1]),
        signed(&json!({"alg": "HS256"}), &claims, b"another secret"),
        signed(&json!({"alg": "HS256", "crit": ["exp"]}), &claims, SECRET.as_bytes()),
        signed(&json!({"typ": "JWT"}), &claims, SECRET.as_bytes()),
    ] {
        assert_eq!(outcome(&secret(), &forged), INVALID, "{forged}");
    }
    // Not an algorithm that is allowed, though there is a key.
    let narrow = JwtSettings { algorithms: vec![Algorithm::Hs512], ..settings() };
    assert_eq!(ask(narrow.clone(), secret(), &request(&good)).map(drop), INVALID);
    assert_eq!(ask(narrow, secret(), &request(kept("HS512"))).map(drop), Ok(()));
}

#[test]
fn what_is_no_token_is_somebody_elses_or_refused_as_such() {
    let jwt = Jwt::new(JwtSettings { method: Some("JWT".to_owned()), ..settings() }, secret(), None);
    let good = hour(json!({"sub": "ann"}));
    let long = format!("{good}{}", "A".repeat(token::TOKEN_LEN_MAX));
    let header = part(&json!({"alg": "HS256"}));
    let no_tokens = [
        "",
        "toor",
        "a.b",
        "a.b.c",
        "..",
        "...",
        &good[1..],
        &format!("{good}."),
        &format!("{good}="),
        &format!(" {good}"),
        &long,
        &format!("{header}.!.x"),
        &format!("{header}..{header}"),
        &format!("{}.e30.AA", part(&json!([]))),
    ];
    for text in no_tokens {
        let missing_or_malformed = if text.is_empty() { MISSING } else { MALFORMED };
        assert!(matches!(jwt.begin(&request(text), &String::new), Answer::Pass), "{text}");
        assert_eq!(finish(jwt.last_word().begin(&request(text), &String::new)).map(drop), Err(missing_or_malformed), "{text}");
        let enhanced = Request { method: Some("JWT".into()), data: request(text).password, ..Request::default() };
        assert_eq!(finish(jwt.begin(&enhanced, &String::new)).map(drop), Err(missing_or_malformed), "{text}");
    }
    let nothing = Request { password: None, ..request("") };
    assert_eq!(finish(jwt.last_word().begin(&nothing, &String::new)).map(drop), Err(MISSING));
    // By the method it is the data that counts.
    assert!(jwt.serves("JWT") && !jwt.serves("SCRAM-SHA-256") && !Jwt::new(settings(), secret(), None).serves("JWT"));
    let enhanced = Request { method: Some("JWT".into()), data: request(&good).password, ..request("toor") };
    assert!(finish(jwt.begin(&enhanced, &String::new)).is_ok());
    let other = Request { method: Some("X".into()), ..request(&good) };
    assert!(matches!(jwt.begin(&other, &String::new), Answer::Pass));
    // In the user name, which nobody is to see then.
    let in_name = Jwt::new(JwtSettings { token_from: TokenFrom::UserName, ..settings() }, secret(), None);
    let principal =
        finish(in_name.begin(&Request { user_name: Some(good.as_str().into()), ..request("") }, &String::new)).unwrap();
    assert!(principal.hides_claimed_name() && in_name.user_name_is_secret() && !jwt.user_name_is_secret());
    assert!(matches!(in_name.begin(&request(&good), &String::new), Answer::Pass));
    assert!(is_token(&good) && !is_token("ann"));
}

#[test]
fn dates_are_numbers_and_clocks_may_differ_by_the_leeway() {
    let table = [
        (json!({"exp": NOW_S + 1}), Ok(())),
        (json!({"exp": NOW_S}), Ok(())),
        (json!({"exp": NOW_S - 9}), Ok(())),
        (json!({"exp": NOW_S - 10}), Err(claims::EXPIRED)),
        (json!({"exp": 0}), Err(claims::EXPIRED)),
        (json!({"exp": -5}), Err(claims::EXPIRED)),
        (json!({"exp": -1e300}), Err(claims::EXPIRED)),
        (json!({"exp": 1_800_000_000.5}), Ok(())),
        (json!({"exp": 1e300}), Ok(())),
        (json!({"exp": u64::MAX}), Ok(())),
        (json!({}), Err(claims::NO_EXPIRY)),
        // What is no number is not absent.
        (json!({"exp": (NOW_S + 1).to_string()}), Err(claims::DATES)),
        (json!({"exp": null}), Err(claims::DATES)),
        (json!({"exp": [NOW_S + 1]}), Err(claims::DATES)),
        (json!({"exp": NOW_S + 1, "nbf": "99999999999"}), Err(claims::DATES)),
        (json!({"exp": NOW_S + 1, "iat": true}), Err(claims::DATES)),
        (json!({"exp": NOW_S + 1, "nbf": NOW_S + 10, "iat": NOW_S + 10}), Ok(())),
        (json!({"exp": NOW_S + 99, "nbf": NOW_S + 11}), Err(claims::NOT_YET)),
        (json!({"exp": NOW_S + 99, "iat": NOW_S + 11}), Err(claims::NOT_YET)),
        (json!({"exp": NOW_S + 99, "nbf": 1e300}), Err(claims::NOT_YET)),
    ];
    for (claims, expected) in table {
        assert_eq!(judged(settings(), &claims).map(drop), expected, "{claims}");
    }
    let expiry = |settings, claims: &Value| judged(settings, claims).unwrap().expires_at_ms();
    assert_eq!(expiry(settings(), &json!({"exp": NOW_S + 60})), Some(NOW_MS + 70_000));
    assert_eq!(expiry(settings(), &json!({"exp": 1e300})), Some(u64::MAX));
    let lenient = JwtSettings { expiry_required: false, leeway_s: 0, ..settings() };
    assert_eq!(expiry(lenient.clone(), &json!({})), None);
    assert_eq!(judged(lenient, &json!({"exp": NOW_S})).map(drop), Err(claims::EXPIRED));
}

#[test]
fn issuer_audience_and_other_claims_are_what_is_configured() {
    let verify = |claim: &str, value: &str| {
        let value = match value {
            "client" => Template::Pieces(vec![crate::config::rbac::Piece::ClientId]),
            "user" => Template::Pieces(vec![crate::config::rbac::Piece::UserName]),
            text => Template::Fixed(text.into()),
        };
        JwtSettings { verify: vec![VerifyClaim { claim: claim.to_owned(), value }], ..settings() }
    };
    let issuers = || JwtSettings { issuers: vec!["a".to_owned(), "b".to_owned()], ..settings() };
    let audiences = || JwtSettings { audiences: vec!["mqtt".to_owned()], ..settings() };
    let table = [
        (settings(), json!({"iss": 5, "aud": {}}), Ok(())),
        (issuers(), json!({"iss": "b"}), Ok(())),
        (issuers(), json!({"iss": "c"}), Err(claims::ISSUER)),
        (issuers(), json!({"iss": ["a"]}), Err(claims::ISSUER)),
        (issuers(), json!({}), Err(claims::ISSUER)),
        (audiences(), json!({"aud": "mqtt"}), Ok(())),
        (audiences(), json!({"aud": ["web", "mqtt"]}), Ok(())),
        (audiences(), json!({"aud": ["web", 7]}), Err(claims::AUDIENCE)),
        (audiences(), json!({"aud": []}), Err(claims::AUDIENCE)),
        (audiences(), json!({}), Err(claims::AUDIENCE)),
        (verify("device", "client"), json!({"device": "c1"}), Ok(())),
        (verify("device", "client"), json!({"device": "c2"}), Err(claims::CLIENT)),
        (verify("device", "client"), json!({"device": ["c1"]}), Err(claims::CLIENT)),
        (verify("device", "client"), json!({}), Err(claims::CLIENT)),
        (verify("device", "user"), json!({"device": "claimed"}), Ok(())),
        (verify("device", "user"), json!({"device": "other"}), Err(claims::CLIENT)),
        (verify("/a/b", "x"), json!({"a": {"b": "x"}}), Ok(())),
        (verify("/a/b", "x"), json!({"a": {"c": "x"}, "/a/b": "x"}), Err(claims::CLIENT)),
        (verify("a/b", "x"), json!({"a/b": "x"}), Ok(())),
    ];
    for (settings, claims, expected) in table {
        assert_eq!(ask(settings, secret(), &request(&hour(claims.clone()))).map(drop), expected, "{claims}");
    }
    let nameless = Request { user_name: None, ..request(&hour(json!({"device": ""}))) };
    assert_eq!(ask(verify("device", "user"), secret(), &nameless).map(drop), Err(claims::CLIENT));
}

#[test]
fn the_user_is_who_the_token_names_and_a_name_nobody_vouches_for_is_none() {
    let user = |settings: JwtSettings, claims: Value| {
        let judged = ask(settings, secret(), &request(&hour(claims)));
        judged.map(|principal| principal.user_name().map(ByteString::to_string))
    };
    let verified = || JwtSettings {
        verify: vec![VerifyClaim { claim: "u".to_owned(), value: Template::Pieces(vec![crate::config::rbac::Piece::UserName]) }],
        ..settings()
    };
    let named = |name: &str| Ok(Some(name.to_owned()));
    let by = |claim: &str| JwtSettings { user_name_claim: claim.to_owned(), ..settings() };
    assert_eq!(user(settings(), json!({"sub": "ann"})), named("ann"));
    assert_eq!(user(settings(), json!({})), Ok(None));
    assert_eq!(user(verified(), json!({"u": "claimed"})), named("claimed"));
    assert_eq!(user(verified(), json!({"u": "claimed", "sub": "ann"})), named("ann"));
    assert_eq!(user(by("preferred_username"), json!({"sub": "1", "preferred_username": "bob"})), named("bob"));
    assert_eq!(user(by("/who/name"), json!({"who": {"name": "eve"}})), named("eve"));
    for wrong in [json!(""), json!(5), json!(null), json!("a\nb"), json!("\u{0}")] {
        assert_eq!(user(settings(), json!({"sub": wrong})), Err(claims::USER_NAME), "{wrong}");
    }
}

/// A user `ann` with role `reader`; a role `writer` nobody has.
fn files() -> FileRbac {
    let role = |id: &str, permission: Value| {
        let permissions = claim::permissions(&json!([permission])).unwrap();
        (ByteString::from(id), Arc::new(Role { id: id.into(), permissions }))
    };
    let reader = role("reader", json!({"topic": "read/#", "activity": "SUBSCRIBE"}));
    let user = User { password: None, scram_sha_256: None, scram_sha_512: None, roles: [Arc::clone(&reader.1)].into() };
    let roles = [reader, role("writer", json!({"topic": "write/${{username}}", "activity": "PUBLISH"}))].into();
    let settings = FileRbacSettings {
        folder: "x".into(),
        credentials: "x".into(),
        reload_interval_s: 60,
        password_type: PasswordType::Hashed,
        listener_names: None,
        next_instead_of_fail: false,
        passwords_optional: false,
    };
    FileRbac::new(settings, Some(Credentials { users: [("ann".into(), user)].into(), roles }), &[0; 32])
}

#[test]
fn what_a_client_may_do_stands_in_its_token_or_in_the_roles_that_it_names() {
    let may = |without: WithoutPermissions, rbac: Option<FileRbac>, mut claims: Value| {
        let settings = JwtSettings { without_permissions: without, ..settings() };
        claims.as_object_mut().unwrap().entry("sub").or_insert(json!("ann"));
        finish(Jwt::new(settings, secret(), rbac).begin(&request(&hour(claims)), &String::new)).map(|principal| {
            let publish = ["dev/c1/x", "dev/c2/x", "write/ann", "write/bob", "any"]
                .map(|topic| principal.may_publish(topic, QoS::AtLeastOnce, false));
            let filter = |text: &str| SubscriptionFilter::parse(&text.into()).unwrap();
            let subscribe = ["read/#", "dev/c1/#", "#"].map(|text| principal.may_subscribe(&filter(text), QoS::AtMostOnce));
            let text = |all: &[bool]| all.iter().map(|one| if *one { 'y' } else { 'n' }).collect::<String>();
            format!("{} {}", text(&publish), text(&subscribe))
        })
    };
    use WithoutPermissions as W;
    let permissions = json!([{"topic": "dev/${{clientid}}/#"}, {"topic": "write/${{username}}", "activity": "PUBLISH"}]);
    let ok = |text: &str| Ok(text.to_owned());
    let refuse = |reason: &'static str| Err(Refusal { code: ReasonCode::NotAuthorized, reason });
    let table = [
        (W::Nothing, None, json!({}), ok("nnnnn nnn")),
        (W::All, None, json!({}), ok("yyyyy yyy")),
        (W::FileRbac, Some(files()), json!({}), ok("nnnnn ynn")),
        (W::FileRbac, Some(files()), json!({"sub": "bob"}), Err(Refusal::CREDENTIALS)),
        (W::All, None, json!({"permissions": permissions}), ok("ynynn nyn")),
        (W::All, None, json!({"permissions": []}), ok("nnnnn nnn")),
        (W::Nothing, Some(files()), json!({"roles": ["writer", "offline_access"]}), ok("nnynn nnn")),
        (W::Nothing, Some(files()), json!({"roles": "reader"}), ok("nnnnn ynn")),
        // A role nobody knows is not the same as no claim.
        (W::All, Some(files()), json!({"roles": ["unknown"]}), ok("nnnnn nnn")),
        (W::All, None, json!({"roles": ["writer"]}), ok("yyyyy yyy")),
        (W::Nothing, Some(files()), json!({"roles": ["reader"], "permissions": permissions}), ok("ynynn yyn")),
        (W::All, None, json!({"permissions": "#"}), refuse("the permissions in the token are no array of objects")),
        (
            W::All,
            None,
            json!({"permissions": [{"topic": "#", "qos": 0}]}),
            refuse("a permission in the token has a word that is not known"),
        ),
        (W::All, Some(files()), json!({"roles": [1]}), Err(ROLES)),
        (W::All, Some(files()), json!({"roles": {}}), Err(ROLES)),
        (W::All, Some(files()), json!({"roles": vec!["r"; ROLES_MAX + 1]}), Err(ROLES)),
    ];
    for (without, rbac, claims, expected) in table {
        assert_eq!(may(without, rbac, claims.clone()), expected, "{claims}");
    }
}

#[test]
fn other_keys_judge_from_then_on_and_public_ones_beside_the_arbiter() {
    let jwt = Jwt::new(settings(), fixtures(&["rsa.pem"]), None);
    let asked = |name: &str| jwt.begin(&request(kept(name)), &String::new);
    assert!(matches!(asked("RS256"), Answer::Compute(_)));
    jwt.replace(secret());
    assert_eq!(finish(asked("RS256")).map(drop), INVALID);
    assert!(matches!(asked("HS256"), Answer::Decided(Verdict::Accept { .. })));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_fail(text in "\\PC{0,40}", header in "\\PC{0,30}", payload in "\\PC{0,30}") {
        let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part));
        let keys = [secret(), fixtures(&["p256.pem"])].concat();
        for shown in [text.clone(), format!("{header}.{payload}.{header}"), signed(&json!(text), &json!(payload), SECRET.as_bytes())] {
            let jwt = Jwt::new(settings(), keys.clone(), None);
            if let Answer::Compute(computation) = jwt.begin(&request(&shown), &String::new) {
                computation();
            }
        }
    }
}
