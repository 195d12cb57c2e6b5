//! Clients that come in by a token: what lets them in, what they may do, when it ends; and that no secret gets out of the node, whatever it is
//! of.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};
use tempfile::TempDir;
use troupemq::mqtt::packet::{Auth, AuthProperties};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::jwt::{Issuer, hs256, in_s};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, User};
use crate::harness::script::{interop_skipped, run};
use crate::harness::{SOON, http, repository, wait};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
const SECRET: &str = "a secret that the issuer shares with the broker";
const METHOD: &str = "JWT";

/// The files of keys, and the element that names them.
struct Keys {
    folder: TempDir,
}

impl Keys {
    fn new(keys: &[Value]) -> Self {
        let all = Self { folder: TempDir::new().expect("a directory") };
        fs::write(all.folder.path().join("secret"), format!("{SECRET}\n")).expect("a file");
        all.set(keys);
        all
    }

    /// Puts another set of keys in the place of the one there is.
    fn set(&self, keys: &[Value]) {
        self.write(&json!({"keys": keys}).to_string());
    }

    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("a file");
        fs::rename(&new, self.folder.path().join("jwks.json")).expect("a file");
    }

    fn element(&self, more: &str) -> String {
        let folder = self.folder.path().display();
        format!(
            "<jwt><secret-file>{folder}/secret</secret-file><jwks-file>{folder}/jwks.json</jwks-file>\
             <keys-reload-interval>1</keys-reload-interval><authentication-method>{METHOD}</authentication-method>\
             <leeway>0</leeway>{more}</jwt>"
        )
    }
}

fn start(authentication: &str) -> Node {
    let more = format!("<security><authentication>{authentication}</authentication></security>");
    Node::ready(Config { more, ..Config::default() })
}

fn file_rbac(files: &Rbac) -> String {
    format!("<file-rbac><folder>{}</folder></file-rbac>", files.path().display())
}

/// A token for an hour that lets its client watch everything.
fn watcher() -> Options {
    let all = json!([{"topic": "#"}, {"topic": "$client-events/#"}]);
    let token = hs256(SECRET, &json!({"sub": "watcher", "exp": in_s(3600), "permissions": all}));
    Options::v5("watcher").password(&token)
}

async fn refusal(node: &Node, options: &Options) -> (ReasonCode, Option<String>) {
    refusal_at(node.mqtt(), options).await
}

/// All at once, since the more fail at one address, the longer each waits for its answer.
async fn refusals(node: &Node, all: Vec<Options>) -> Vec<(ReasonCode, Option<String>)> {
    let address = node.mqtt();
    let asked: Vec<_> = all.into_iter().map(|options| tokio::spawn(async move { refusal_at(address, &options).await })).collect();
    let mut told = Vec::new();
    for one in asked {
        told.push(one.await.expect("it is refused"));
    }
    told
}

async fn refusal_at(address: SocketAddr, options: &Options) -> (ReasonCode, Option<String>) {
    match Client::try_connect(address, options).await {
        Err(ConnectError::Refused(connack)) => {
            (connack.reason_code, connack.properties.reason_string.map(|text| text.to_string()))
        }
        Err(error) => panic!("{} is not told why: {error:?}", options.client_id()),
        Ok(_) => panic!("{} is let in", options.client_id()),
    }
}

#[tokio::test]
async fn a_token_lets_in_for_what_its_permissions_and_roles_say_and_passwords_go_on() {
    let _permit = acquire(Weight::Node);
    let issuer = Issuer::new("one");
    let keys = Keys::new(&[issuer.jwk()]);
    let files = Rbac::new(&[User::password("root", "toor", "all")], &[("all", &["#"]), ("reader", &["read/#"])], "");
    let verify = "<verify-claim><claim>device</claim><value>${{clientid}}</value></verify-claim>";
    let node = start(&format!("{}{}", file_rbac(&files), keys.element(verify)));
    let claims = json!({"sub": "ann", "device": "c1", "exp": in_s(600), "roles": ["reader", "offline_access"],
        "permissions": [{"topic": "dev/${{username}}/#", "activity": "PUBLISH", "qos": "ONE"}]});
    for version in VERSIONS {
        for token in [hs256(SECRET, &claims), issuer.token(&claims)] {
            let options = Options::of(version, "c1").username("whoever").password(&token);
            let mut client = Client::connect(node.mqtt(), &options).await;
            client.publish("dev/ann/x", b"", QoS::AtLeastOnce).await;
            assert_eq!(client.subscribe("read/x", QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
            if version == ProtocolVersion::V5 {
                assert_eq!(client.subscribe("dev/ann/x", QoS::AtLeastOnce).await, ReasonCode::NotAuthorized);
                let denied = client.publish("dev/ann/x", b"", QoS::AtMostOnce).await;
                assert_eq!((denied, client.closed().await), (ReasonCode::Success, Some(ReasonCode::NotAuthorized)));
            }
        }
        let options = Options::of(version, "c1").username("whoever").password(&issuer.token(&claims));
        let (code, _) = refusal(&node, &options.clone().named("c2")).await;
        assert_eq!(code, ReasonCode::NotAuthorized, "the token is another client's");
        let (code, _) = refusal(&node, &options.will("dev/bob/x", "", 0)).await;
        assert_eq!(code, ReasonCode::NotAuthorized, "the will may not be published");
        // What is no token is a password.
        let mut root = Client::connect(node.mqtt(), &Options::of(version, "r").username("root").password("toor")).await;
        root.ping().await;
        let (code, _) = refusal(&node, &Options::of(version, "r").username("root").password("wrong")).await;
        assert_eq!(code, ReasonCode::NotAuthorized);
    }
}

#[tokio::test]
async fn who_is_refused_learns_why_where_that_helps_nobody_else() {
    let _permit = acquire(Weight::Node);
    let (issuer, stranger) = (Issuer::new("one"), Issuer::new("one"));
    let keys = Keys::new(&[issuer.jwk()]);
    let node = start(&keys.element("<issuer>us</issuer>"));
    let claims = |more: Value| {
        let mut claims = json!({"sub": "ann", "iss": "us", "exp": in_s(600)});
        let all = claims.as_object_mut().expect("an object");
        more.as_object().expect("an object").iter().for_each(|(name, value)| _ = all.insert(name.clone(), value.clone()));
        claims
    };
    let signed = |more: Value| issuer.token(&claims(more));
    let good = signed(json!({}));
    let unsigned = good.rsplit_once('.').expect("parts").0.to_owned() + ".";
    let (denied, bad) = (ReasonCode::NotAuthorized, ReasonCode::BadUserNameOrPassword);
    let invalid = "Authentication failed because of invalid credentials";
    let table = [
        (String::new(), bad, "Authentication failed because the token is missing"),
        ("secret".to_owned(), bad, "Authentication failed because the token is malformed"),
        (unsigned, denied, invalid),
        (stranger.token(&claims(json!({}))), denied, invalid),
        (hs256("another secret", &claims(json!({}))), denied, invalid),
        (signed(json!({"exp": in_s(-1)})), denied, "Authentication failed because the token has expired"),
        (signed(json!({"nbf": in_s(60)})), denied, "Authentication failed because the token is not valid yet"),
        (signed(json!({"iss": "them"})), denied, "Authentication failed because the token is of another issuer"),
        (signed(json!({"permissions": [{"topic": ""}]})), denied, "a permission in the token has no valid topic filter"),
    ];
    let mut expected = Vec::new();
    for (token, code, reason) in table {
        for version in VERSIONS {
            // The fifth failure of a client is the last that is looked at for a while.
            let options = Options::of(version, "c").username(&format!("u{}", expected.len())).password(&token);
            expected.push((options, code, version.is_v5().then(|| reason.to_owned())));
        }
    }
    let missing = || Some("Authentication failed because the token is missing".to_owned());
    expected.push((Options::v5("none"), bad, missing()));
    let malformed = || Some("Authentication failed because the token is malformed".to_owned());
    expected.push((Options::v5("x").authentication(METHOD, "x"), bad, malformed()));
    let forged = hs256("another", &claims(json!({})));
    expected.push((Options::v5("forged").authentication(METHOD, &forged), denied, Some(invalid.to_owned())));
    let failures = expected.len();
    let method = Some("authentication method is not supported".to_owned());
    expected.push((Options::v5("other").authentication("OTHER", &good), ReasonCode::BadAuthenticationMethod, method));
    let all = expected.iter().map(|(options, ..)| options.clone()).collect();
    for ((options, code, reason), refused) in expected.iter().zip(refusals(&node, all).await) {
        assert_eq!(refused, (*code, reason.clone()), "{options:?}");
    }
    let counted = |cause: &str| node.metric(&format!("troupemq_login_failures_total{{cause=\"{cause}\"}}"));
    assert_eq!(counted("bad-user-name-or-password") + counted("not-authorized"), failures as f64);
    let log = node.stderr();
    assert!(log.contains("a client is refused") && log.contains("127.0.0.1"), "{log}");
}

fn again(token: &str) -> Packet {
    let properties = AuthProperties {
        authentication_method: Some(METHOD.into()),
        authentication_data: Some(token.as_bytes().to_vec().into()),
        ..AuthProperties::default()
    };
    Packet::Auth(Box::new(Auth { reason_code: ReasonCode::ReAuthenticate, properties }))
}

/// The broker's answer to a re-authentication.
async fn answer(client: &mut Client) -> ReasonCode {
    match client.next_packet(SOON).await {
        Ok(Packet::Auth(auth)) => auth.reason_code,
        Ok(Packet::Disconnect(disconnect)) => disconnect.reason_code,
        other => panic!("no answer to AUTH: {other:?}"),
    }
}

#[tokio::test]
async fn a_connection_ends_when_its_token_expires_unless_another_one_comes_in_time() {
    let _permit = acquire(Weight::Node);
    let keys = Keys::new(&[Issuer::new("one").jwk()]);
    let node = start(&keys.element("<without-permissions>ALL</without-permissions>"));
    let token = |user: &str, exp: i64| hs256(SECRET, &json!({"sub": user, "exp": exp}));
    let mut watcher = Client::connect(node.mqtt(), &watcher()).await;
    watcher.subscribe("will/#", QoS::AtLeastOnce).await;
    let mut lifecycle = Client::connect(node.mqtt(), &self::watcher().named("lifecycle")).await;
    lifecycle.subscribe(events::FILTER, QoS::AtLeastOnce).await;

    let soon = in_s(4);
    let options = Options::v5("five").password(&token("five", soon)).will("will/five", "gone", 0).keep_alive(60);
    let mut five = Client::connect(node.mqtt(), &options).await;
    let options = Options::v3("three").username("any").password(&token("three", soon)).will("will/three", "gone", 0);
    let mut three = Client::connect(node.mqtt(), &options).await;
    let enhanced = |id: &str, exp: i64| Options::v5(id).authentication(METHOD, &token("ann", exp));
    let mut renewed = Client::connect(node.mqtt(), &enhanced("renewed", soon)).await;
    let connack = renewed.connack.clone().expect("it is connected");
    assert_eq!(connack.properties.authentication_method.as_deref(), Some(METHOD));
    renewed.send(&again(&token("ann", in_s(3600)))).await.expect("sent");
    assert_eq!(answer(&mut renewed).await, ReasonCode::Success);
    // The date may be as far as it wants.
    let far = hs256(SECRET, &json!({"sub": "far", "exp": 1e300}));
    let mut far = Client::connect(node.mqtt(), &Options::v5("far").password(&far)).await;
    // A new token must be one, of the same user.
    for (bad, code) in [
        (token("ann", in_s(-1)), ReasonCode::NotAuthorized),
        (token("bob", in_s(60)), ReasonCode::NotAuthorized),
        (hs256("other", &json!({"sub": "ann", "exp": in_s(60)})), ReasonCode::NotAuthorized),
        ("no token".to_owned(), ReasonCode::NotAuthorized),
    ] {
        let mut client = Client::connect(node.mqtt(), &enhanced("again", in_s(60))).await;
        client.send(&again(&bad)).await.expect("sent");
        assert_eq!(answer(&mut client).await, code, "{bad}");
    }

    assert_eq!(five.closed().await, Some(ReasonCode::MaximumConnectTime));
    assert!(in_s(0) >= soon, "closed before it expired");
    three.closed().await;
    let mut wills = [watcher.message().await.topic.to_string(), watcher.message().await.topic.to_string()];
    wills.sort();
    assert_eq!(wills, ["will/five", "will/three"]);
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let event = Event::of(&lifecycle.message().await);
        if !event.connected && (event.client_id == "five" || event.client_id == "three") {
            ended.push(event.short());
        }
    }
    assert_eq!(ended, ["-SERVER/160", "-SERVER/160"]);
    renewed.ping().await;
    far.ping().await;
}

/// What waits for a client behind a full window when its rights get fewer: its own messages are dropped and told, those of a shared subscription
/// go to another member, of QoS 2 too, which were assigned to it already. What is allowed again is delivered again.
#[tokio::test]
async fn what_waits_for_a_client_goes_with_the_rights_that_a_new_token_takes_away() {
    let _permit = acquire(Weight::Node);
    let keys = Keys::new(&[Issuer::new("one").jwk()]);
    let node = start(&keys.element(""));
    let token = |topics: &[&str]| {
        let permissions: Vec<_> = topics.iter().map(|topic| json!({"topic": topic})).collect();
        hs256(SECRET, &json!({"sub": "ann", "exp": in_s(3600), "permissions": permissions}))
    };
    let all = token(&["#", "$dropped/#"]);
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher").password(&all)).await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher").password(&all)).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let options = |id: &str| Options::v5(id).authentication(METHOD, &all).receive_maximum(1).manual_ack();
    for (id, expiry_s) in [("own", 0), ("own for long", 300)] {
        let mut client = Client::connect(node.mqtt(), &options(id).expiry(expiry_s)).await;
        for filter in ["z/+", "z/both"] {
            client.subscribe(filter, QoS::AtLeastOnce).await;
        }
        for topic in ["z/1", "z/2", "z/3", "z/both"] {
            publisher.publish(topic, topic.as_bytes(), QoS::AtLeastOnce).await;
        }
        let first = client.message().await;
        client.send(&again(&token(&["z/both"]))).await.expect("sent");
        assert_eq!(answer(&mut client).await, ReasonCode::Success);
        client.puback(&first).await;
        let next = client.message().await;
        assert_eq!(next.topic, "z/both", "{id}");
        client.puback(&next).await;
        for topic in ["$dropped/z/2", "$dropped/z/3"] {
            assert_eq!(watcher.message().await.topic, topic, "{id}");
        }
        client.send(&again(&all)).await.expect("sent");
        assert_eq!(answer(&mut client).await, ReasonCode::Success);
        assert!(!client.subscribe("z/+", QoS::AtLeastOnce).await.is_error());
        publisher.publish("z/4", b"", QoS::AtLeastOnce).await;
        assert_eq!(client.message().await.topic, "z/4", "{id}");
        client.disconnect().await;
    }
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let id = format!("member {qos:?}");
        let (filter, topic) = (format!("$share/g/s/{qos:?}"), format!("s/{qos:?}"));
        let mut client = Client::connect(node.mqtt(), &options(&id).expiry(300)).await;
        client.subscribe(&filter, qos).await;
        for text in ["0", "1", "2"] {
            publisher.publish(&topic, text.as_bytes(), qos).await;
        }
        assert_eq!(client.text().await, "0");
        let mut other = Client::connect(node.mqtt(), &options("other").receive_maximum(10)).await;
        other.subscribe(&filter, qos).await;
        client.send(&again(&token(&["z/both"]))).await.expect("sent");
        // It is sent off where it was chosen for QoS 2 messages already.
        let code = answer(&mut client).await;
        assert!(code == ReasonCode::Success || (code, qos) == (ReasonCode::ServerBusy, QoS::ExactlyOnce), "{code:?} {qos:?}");
        let mut came = [other.text().await, other.text().await];
        came.sort();
        assert_eq!(came, ["1", "2"], "{qos:?}");
    }
    watcher.nothing().await;
}

#[tokio::test]
async fn a_set_of_keys_that_changes_is_taken_and_one_that_is_broken_is_not() {
    let _permit = acquire(Weight::Node);
    let (old, new) = (Issuer::new("old"), Issuer::new("new"));
    let keys = Keys::new(&[old.jwk()]);
    let node = start(&keys.element(""));
    let claims = json!({"sub": "ann", "exp": in_s(600)});
    let options = |issuer: &Issuer, id: &str| Options::v5(id).password(&issuer.token(&claims));
    let mut before = Client::connect(node.mqtt(), &options(&old, "before")).await;
    assert_eq!(refusal(&node, &options(&new, "early")).await.0, ReasonCode::NotAuthorized);
    keys.write("{\"keys\": [{\"kty\": \"RSA\", \"n\": \"AQAB\", \"e\": \"AQAB\"}]}");
    wait::until("the broken set is said", SOON, || node.stderr().contains("those from before stay in force").then_some(()));
    Client::connect(node.mqtt(), &options(&old, "meanwhile")).await.ping().await;
    keys.set(&[new.jwk()]);
    wait::until("the set is taken", SOON, || node.stderr().contains("the keys of tokens have changed").then_some(()));
    Client::connect(node.mqtt(), &options(&new, "after")).await.ping().await;
    assert_eq!(refusal(&node, &options(&old, "late")).await.0, ReasonCode::NotAuthorized);
    before.ping().await;
}

/// What must never be seen, in every way in which it could be written.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let numbers: Vec<String> = bytes.iter().map(u8::to_string).collect();
    // In the middle of other bytes base64 has three forms; without its ends each of them is found.
    let shifted = (0..3).map(|shift| {
        let text = STANDARD.encode([&b"xx"[..shift], bytes].concat());
        text[4..text.len() - 4].to_owned()
    });
    let mut all = vec![secret.to_owned(), hex, numbers.join(", "), URL_SAFE_NO_PAD.encode(bytes)];
    all.extend(shifted);
    // A token may be cut short; its header is no secret.
    all.extend(secret.split('.').skip(1).filter(|part| part.len() > 20).map(|part| part[..20].to_owned()));
    all.into_iter().map(String::into_bytes).collect()
}

/// Every file below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else {
            found.push(path);
        }
    }
    found
}

/// Everything that the node has printed, serves, stores or tells.
async fn seen(node: &Node, lifecycle: &mut Client) -> Vec<(String, Vec<u8>)> {
    let mut seen = vec![("stdout".to_owned(), node.stdout().into_bytes()), ("the log".to_owned(), node.stderr().into_bytes())];
    for path in ["/", "/metrics", "/api/v1/health", "/api/v1/health/readiness", "/api/v1/health/cluster", "/api/v1/health/mqtt"] {
        for accept in ["*/*", "text/html"] {
            let (_, body) = http::get_as(node.http(), path, accept).expect("the node serves it");
            seen.push((format!("{path} as {accept}"), body.into_bytes()));
        }
    }
    for arguments in [&["status"][..], &["status", "--json"]] {
        let finished = node.admin(arguments);
        seen.push((format!("cluster {arguments:?}"), (finished.stdout + &finished.stderr).into_bytes()));
    }
    let checked = node.config_check();
    assert_eq!(checked.code, Some(0), "{checked:?}");
    seen.push(("config check".to_owned(), (checked.stdout + &checked.stderr).into_bytes()));
    while let Ok(event) = lifecycle.try_message(Duration::from_millis(300)).await {
        seen.push((format!("event {}", event.topic), [&event.topic.as_bytes()[..], &event.payload[..]].concat()));
        for (name, value) in &event.properties.user_properties {
            seen.push((format!("event {}", event.topic), format!("{name}={value}").into_bytes()));
        }
    }
    for file in files_below(&node.data()) {
        if let Ok(mut bytes) = fs::read(&file) {
            // Most of a file that is written piece by piece.
            const CHUNK: usize = 4096;
            let used = bytes.chunks(CHUNK).rposition(|chunk| chunk != &[0; CHUNK][..chunk.len()]);
            bytes.truncate(used.map_or(0, |last| (last + 1) * CHUNK));
            seen.push((file.display().to_string(), bytes));
        }
    }
    seen
}

#[tokio::test]
async fn no_password_no_token_and_no_key_is_ever_printed_served_told_or_stored() {
    let _permit = acquire(Weight::Node);
    secrets_stay_inside("PASSWORD").await;
}

#[tokio::test]
async fn nor_is_a_token_that_stands_in_place_of_the_user_name() {
    let _permit = acquire(Weight::Node);
    secrets_stay_inside("USER_NAME").await;
}

/// Recognisable secrets go in by every way there is, and are looked for in everything that comes out.
async fn secrets_stay_inside(token_from: &str) {
    const CONFIGURED: &str = "Configured-Secret-Of-The-Environment-4711";
    const IN_SET: &str = "Shared-Secret-In-The-Set-Of-Keys-4711";
    const RIGHT: &str = "Right-Password-4711";
    let mut secrets: Vec<String> = [CONFIGURED, IN_SET, SECRET, RIGHT].map(str::to_owned).to_vec();
    let mut secret = |text: String| {
        secrets.push(text.clone());
        text
    };
    let issuer = Issuer::new("one");
    let shared = |kid: &str| {
        use base64::Engine;
        let k = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(IN_SET);
        json!({"kty": "oct", "kid": kid, "k": k})
    };
    let keys = Keys::new(&[issuer.jwk(), shared("shared")]);
    let plain = "<password-type>PLAIN</password-type>";
    let users = || vec![User::hashed("root", RIGHT, "all"), User::scram("carol", "Scram-Password-4711", "all")];
    let roles: &[(&str, &[&str])] = &[("all", &["#", "$client-events/#"])];
    let files = Rbac::new(&users(), roles, plain);
    let jwt = keys.element(&format!(
        "<secret>${{JWT_SECRET}}</secret><token-from>{token_from}</token-from><without-permissions>ALL</without-permissions>"
    ));
    let authentication = format!("<authentication>{}{jwt}</authentication>", file_rbac(&files));
    let mut node = Node::new(Config { more: format!("<security>{authentication}</security>"), ..Config::default() });
    node.env.push(("JWT_SECRET".to_owned(), CONFIGURED.to_owned()));
    node.log = Some("trace");
    node.start();
    let root = Options::v5("root").username("root").password(RIGHT);
    let mut lifecycle = Client::connect(node.mqtt(), &root).await;
    lifecycle.subscribe(events::FILTER, QoS::AtLeastOnce).await;

    let put = |options: Options, token: &str| match token_from {
        "USER_NAME" => options.username(token).password("unused"),
        _ => options.username("named").password(token),
    };
    let claims = |exp: i64| json!({"sub": "ann", "exp": in_s(exp)});
    // The first refusal is the one that is logged for sure.
    refusal(&node, &put(Options::v5("first"), &secret("Cut.Token-4711".to_owned()))).await;
    // Tokens that are let in, with sessions that stay, and as Authentication Data.
    for (n, token) in
        [hs256(SECRET, &claims(600)), hs256(CONFIGURED, &claims(600)), issuer.token(&claims(600))].iter().enumerate()
    {
        let token = secret(token.clone());
        for version in VERSIONS {
            let options = put(Options::of(version, &format!("good-{n}-{version:?}")).clean_start(false), &token);
            let options = if version.is_v5() { options.expiry(600) } else { options };
            let mut client = Client::connect(node.mqtt(), &options.will("will", "x", 0)).await;
            client.publish("t", b"x", QoS::ExactlyOnce).await;
        }
        let mut client = Client::connect(node.mqtt(), &Options::v5("enhanced").authentication(METHOD, &token)).await;
        let renewed = secret(hs256(SECRET, &claims(700 + i64::try_from(n).expect("small"))));
        client.send(&again(&renewed)).await.expect("sent");
        assert_eq!(answer(&mut client).await, ReasonCode::Success);
        let broken = secret(format!("Broken-Data-4711-{n}"));
        client.send(&again(&broken)).await.expect("sent");
        assert_eq!(answer(&mut client).await, ReasonCode::NotAuthorized);
    }
    // One that names nobody.
    let nameless = secret(hs256(SECRET, &json!({"exp": in_s(600)})));
    Client::connect(node.mqtt(), &put(Options::v5("good-nameless").expiry(600), &nameless)).await.ping().await;
    // What is refused: expired, forged, cut, no token at all, a password for a password, in either place.
    let good = hs256(SECRET, &claims(600));
    let mut refused = Vec::new();
    for (n, wrong) in [
        hs256(SECRET, &claims(-600)),
        hs256("Another-Secret-4711", &claims(600)),
        good[..good.len() - 3].to_owned(),
        format!("{good}.x"),
        "Wrong-Password-4711".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let wrong = secret(wrong);
        for version in VERSIONS {
            let options = Options::of(version, &format!("bad-{n}-{version:?}"));
            refused.extend([put(options.clone(), &wrong), options.username("root").password(&wrong)]);
        }
        let enhanced = |method| Options::v5("enhanced").authentication(method, &wrong);
        refused.extend([enhanced(METHOD), enhanced("SCRAM-SHA-256")]);
    }
    refusals(&node, refused).await;
    // Bytes that break off, and ones that break the rules, behind a CONNECT with a password.
    for version in VERSIONS {
        let mut client = Client::raw(node.mqtt(), version).await.expect("a socket");
        let password = secret(format!("Password-Of-A-Broken-One-{version:?}"));
        client.send(&Options::of(version, "broken").username("root").password(&password).packet()).await.expect("sent");
        _ = client.send_bytes(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).await;
    }
    // Files that change for the worse, with secrets in them.
    keys.write(&format!("{{\"keys\": [{{\"kty\": \"oct\", \"k\": \"{}!\"}}]}}", secret("Broken-K-4711".to_owned())));
    wait::until("the broken set is said", SOON, || node.stderr().contains("those from before stay in force").then_some(()));
    keys.set(&[shared("shared")]);
    files.write(
        &[User::new("x", &format!("<password>a&{};z</password>", secret("Broken-File-4711".to_owned())), "no role")],
        roles,
    );
    wait::until("broken credentials are said", SOON, || {
        node.stderr().contains("changed credentials are of no use").then_some(())
    });
    files.write(&users(), roles);

    let logged = || fs::read_to_string(node.data().join("log/event.log")).unwrap_or_default();
    wait::until("failures are in the event log", SOON, || logged().contains("bad-0").then_some(()));
    let seen = seen(&node, &mut lifecycle).await;
    assert!(seen.len() > 30, "{}", seen.len());
    assert!(seen.iter().any(|(name, _)| name.starts_with("event $client-events/all/")), "no event");
    assert!(node.stderr().contains("TRACE"), "not at the level of trace");
    // It can be found: what may be seen is.
    assert!(seen.iter().any(|(_, bytes)| memmem::find(bytes, b"good-0").is_some()), "nothing at all is seen");
    for secret in &secrets {
        for form in forms(secret) {
            for (place, bytes) in &seen {
                let Some(at) = memmem::find(bytes, &form) else { continue };
                let around = &bytes[at.saturating_sub(200)..(at + 100).min(bytes.len())];
                panic!("{token_from}: {secret} is in {place}: {}", String::from_utf8_lossy(around));
            }
        }
    }
}

/// Runs what `docs/authentication.md` says, as it stands there.
#[tokio::test]
async fn the_tokens_of_the_documentation_let_in() {
    if interop_skipped("openssl and python3") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let folder = TempDir::new().expect("a directory");
    let text = fs::read_to_string(repository().join("docs/authentication.md")).expect("the documentation");
    let scripts: Vec<&str> = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let finished = run(Command::new("sh").args(["-ec", &scripts.join("\n")]).current_dir(folder.path()), SOON * 3);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let path = folder.path().display();
    let node = start(&format!(
        "<jwt><secret-file>{path}/jwt-secret</secret-file><public-key-file>{path}/issuer.pem</public-key-file>\
         <public-key-file>{path}/ed25519.pem</public-key-file></jwt>"
    ));
    for file in ["hs256.jwt", "rs256.jwt", "eddsa.jwt"] {
        let token = fs::read_to_string(folder.path().join(file)).expect("a token");
        let mut client = Client::connect(node.mqtt(), &Options::v5(file).password(token.trim())).await;
        assert_eq!(client.subscribe("dev/ann/#", QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1, "{file}");
        assert_eq!(client.subscribe("dev/#", QoS::AtLeastOnce).await, ReasonCode::NotAuthorized, "{file}");
    }
}
