//! Who comes in: user names and passwords, certificates, SCRAM; and what those who come in may do.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use troupemq::mqtt::packet::{Auth, AuthProperties, Connack};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, Scram, User};
use crate::harness::script::{interop_skipped, python, run};
use crate::harness::{SOON, program, wait};
use crate::transports::pki::Pki;
use crate::transports::relay::Way;

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
/// The whole of an authentication may take this long.
const AUTHENTICATION_MAX: Duration = Duration::from_secs(30);
/// `all` may do everything; `device` only what its own name stands in.
const ROLES: &[(&str, &[&str])] =
    &[("all", &["#", "$client-events/#"]), ("device", &["dev/${{username}}/#", "id/${{clientid}}", "one/+"])];

fn start(files: &Rbac) -> Node {
    Node::ready(Config { more: format!("<security>{}</security>", files.element()), ..Config::default() })
}

/// `root` may do everything, `ann` is a device, `carol` logs in by SCRAM.
fn users() -> Vec<User> {
    vec![
        User::password("root", "toor", "all"),
        User::password("ann", "secret", "device"),
        User::scram("carol", "pencil", "device"),
    ]
}

fn root(client_id: &str) -> Options {
    Options::v5(client_id).username("root").password("toor")
}

async fn refusal(node: &Node, options: &Options) -> (ReasonCode, Option<String>) {
    match Client::try_connect(node.mqtt(), options).await {
        Err(ConnectError::Refused(connack)) => {
            (connack.reason_code, connack.properties.reason_string.map(|text| text.to_string()))
        }
        Err(error) => panic!("{} is not told why: {error:?}", options.client_id()),
        Ok(_) => panic!("{} is let in", options.client_id()),
    }
}

#[tokio::test]
async fn who_has_the_password_comes_in_and_nobody_else_in_every_version() {
    let _permit = acquire(Weight::Node);
    // As an operator does it.
    let mut hash = Command::new(program())
        .args(["password", "hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    hash.stdin.take().expect("piped").write_all("pässword\n".as_bytes()).expect("it reads");
    let output = hash.wait_with_output().expect("it ends");
    let hash = String::from_utf8(output.stdout).expect("text");
    let mut users = users();
    users.push(User::hashed("hans", hash.trim(), "device"));
    let files = Rbac::new(&users, ROLES, "");
    let node = start(&files);
    for version in VERSIONS {
        let options = |user: &str, password: &str| Options::of(version, "c").username(user).password(password);
        for (user, password) in [("root", "toor"), ("ann", "secret"), ("hans", "pässword")] {
            let mut client = Client::connect(node.mqtt(), &options(user, password)).await;
            client.ping().await;
            client.disconnect().await;
        }
        let v5 = version.is_v5();
        let said = |reason: &str| v5.then(|| reason.to_owned());
        let invalid = || (ReasonCode::NotAuthorized, said("Authentication failed because of invalid credentials"));
        for (user, password) in [("ann", "Secret"), ("ann", ""), ("nobody", "secret"), ("carol", "pencil")] {
            assert_eq!(refusal(&node, &options(user, password)).await, invalid(), "{user} {password}");
        }
        let missing = || {
            let reason = "Authentication failed because username or password are missing";
            (ReasonCode::BadUserNameOrPassword, said(reason))
        };
        assert_eq!(refusal(&node, &Options::of(version, "c")).await, missing());
        assert_eq!(refusal(&node, &Options::of(version, "c").username("ann")).await, missing());
        let (code, _) = refusal(&node, &options("ann", "secret").named("c#")).await;
        assert_eq!(code, ReasonCode::ClientIdentifierNotValid);
        let (code, _) = refusal(&node, &options("an+", "secret")).await;
        assert_eq!(code, ReasonCode::BadUserNameOrPassword);
    }
    let failures = |cause: &str| node.metric(&format!("troupemq_login_failures_total{{cause=\"{cause}\"}}"));
    let counted = ["not-authorized", "bad-user-name-or-password", "client-identifier-not-valid"].map(failures);
    assert_eq!(counted, [12.0, 9.0, 3.0]);
    let log = node.stderr();
    assert!(log.contains("a client is refused") && log.contains("127.0.0.1"), "{log}");
    for password in ["Secret", "secret", "pencil", "toor"] {
        assert!(!log.contains(password), "{password} in {log}");
    }
}

#[tokio::test]
async fn a_stranger_neither_takes_a_session_over_nor_is_seen() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let mut watcher = Client::connect(node.mqtt(), &root("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    let mut owner = Client::connect(node.mqtt(), &root("owner")).await;
    assert_eq!(Event::of(&watcher.message().await).json["Client ID"], "owner");

    for options in [Options::v5("owner"), Options::v3("owner").username("root").password("wrong")] {
        refusal(&node, &options).await;
    }
    // In the middle of an exchange.
    let scram = Scram::new("SCRAM-SHA-256", "carol", "pencil");
    let (mut stranger, _) = begin(&node, "owner", &scram, "SCRAM-SHA-256").await;
    owner.ping().await;
    stranger.send(&further("SCRAM-SHA-256", "c=biws,r=x,p=x")).await.expect("sent");
    assert_eq!(connack(&mut stranger).await.reason_code, ReasonCode::NotAuthorized);
    stranger.closed().await;
    owner.ping().await;
    watcher.nothing().await;
}

#[tokio::test]
async fn what_a_client_does_is_what_its_role_allows() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let mut everything = Client::connect(node.mqtt(), &root("everything")).await;
    everything.subscribe("#", QoS::ExactlyOnce).await;
    let ann = |version| Options::of(version, "c1").username("ann").password("secret");

    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let mut client = Client::connect(node.mqtt(), &ann(version)).await;
        for topic in ["dev/ann/x", "id/c1", "one/x"] {
            client.publish(topic, b"allowed", QoS::AtLeastOnce).await;
            assert_eq!(&*everything.message().await.topic, topic);
        }
        for (filter, code) in [
            ("dev/ann/#", ReasonCode::GrantedQoS1),
            ("one/+", ReasonCode::GrantedQoS1),
            // Allowed by HiveMQ, which compares the text.
            ("one/#", ReasonCode::NotAuthorized),
            ("dev/#", ReasonCode::NotAuthorized),
            ("$share/g/dev/ann/x", ReasonCode::GrantedQoS1),
            ("$share/g/dev/bob/x", ReasonCode::NotAuthorized),
            ("$client-events/#", ReasonCode::NotAuthorized),
        ] {
            let expected = if version.is_v5() || !code.is_error() { code } else { ReasonCode::UnspecifiedError };
            assert_eq!(client.subscribe(filter, QoS::AtLeastOnce).await, expected, "{filter}");
        }
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut client = Client::connect(node.mqtt(), &ann(version)).await;
            let packet = client.start_publish(publish("dev/bob/x", b"denied", qos)).await.expect("sent");
            assert_eq!(client.closed().await, version.is_v5().then_some(ReasonCode::NotAuthorized), "{qos:?}");
            let acknowledged = packet.and_then(|id| client.session.acknowledged.remove(&id));
            let told = version.is_v5() && qos != QoS::AtMostOnce;
            assert_eq!(acknowledged, told.then_some(ReasonCode::NotAuthorized), "{qos:?}");
        }
        let (code, _) = refusal(&node, &ann(version).will("dev/bob/will", "x", 0)).await;
        assert_eq!(code, ReasonCode::NotAuthorized);
        drop(Client::connect(node.mqtt(), &ann(version).will("dev/ann/will", "gone", 0)).await);
        assert_eq!(&*everything.message().await.topic, "dev/ann/will");
    }
    everything.nothing().await;
}

/// Sends CONNECT with a method and takes the server's first message.
async fn begin(node: &Node, client_id: &str, scram: &Scram, method: &str) -> (Client, Bytes) {
    let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("a socket");
    let connect = Options::v5(client_id).authentication(method, &scram.first()).packet();
    client.send(&connect).await.expect("sent");
    let data = challenge(&mut client, method, ReasonCode::ContinueAuthentication).await;
    (client, data)
}

/// The AUTH that the broker sends; its data.
async fn challenge(client: &mut Client, method: &str, code: ReasonCode) -> Bytes {
    match client.next_packet(SOON).await {
        Ok(Packet::Auth(auth)) => {
            assert_eq!(auth.reason_code, code);
            assert_eq!(auth.properties.authentication_method.as_deref(), Some(method));
            auth.properties.authentication_data.unwrap_or_default()
        }
        other => panic!("no AUTH: {other:?}"),
    }
}

async fn connack(client: &mut Client) -> Connack {
    match client.next_packet(SOON + AUTHENTICATION_MAX).await {
        Ok(Packet::Connack(connack)) => *connack,
        other => panic!("no CONNACK: {other:?}"),
    }
}

fn auth(reason_code: ReasonCode, method: &str, data: &str) -> Packet {
    let properties = AuthProperties {
        authentication_method: Some(method.into()),
        authentication_data: Some(Bytes::copy_from_slice(data.as_bytes())),
        ..AuthProperties::default()
    };
    Packet::Auth(Box::new(Auth { reason_code, properties }))
}

fn further(method: &str, data: &str) -> Packet {
    auth(ReasonCode::ContinueAuthentication, method, data)
}

/// Logs in, and checks that the server knows the password too.
async fn log_in(node: &Node, client_id: &str, method: &str) -> Client {
    let scram = Scram::new(method, "carol", "pencil");
    let (mut client, data) = begin(node, client_id, &scram, method).await;
    let (message, signature) = scram.last(&data);
    client.send(&further(method, &message)).await.expect("sent");
    let connack = connack(&mut client).await;
    assert_eq!(connack.reason_code, ReasonCode::Success);
    assert_eq!(connack.properties.authentication_method.as_deref(), Some(method));
    assert_eq!(connack.properties.authentication_data.as_deref(), Some(signature.as_bytes()));
    client
}

#[tokio::test]
async fn scram_lets_in_who_proves_the_password_and_nobody_else() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    for method in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let mut client = log_in(&node, "carol-1", method).await;
        // With the rights of the user that was proved.
        client.publish("dev/carol/x", b"", QoS::AtLeastOnce).await;
        assert_eq!(client.subscribe("dev/ann/#", QoS::AtMostOnce).await, ReasonCode::NotAuthorized);
        client.disconnect().await;
        for (user, password) in [("carol", "pencils"), ("ann", "secret"), ("nobody", "pencil")] {
            let scram = Scram::new(method, user, password);
            // Five failures of one client id would be held off.
            let (mut client, data) = begin(&node, user, &scram, method).await;
            client.send(&further(method, &scram.last(&data).0)).await.expect("sent");
            assert_eq!(connack(&mut client).await.reason_code, ReasonCode::NotAuthorized, "{user}");
            client.closed().await;
        }
    }
    // A name nobody has is always asked the same, or it would show.
    let nobody = Scram::new("SCRAM-SHA-256", "nobody", "");
    let salt = |data: Bytes| String::from_utf8_lossy(&data).split(",s=").nth(1).expect("a salt").to_owned();
    let (_one, first) = begin(&node, "c", &nobody, "SCRAM-SHA-256").await;
    let (_two, second) = begin(&node, "d", &nobody, "SCRAM-SHA-256").await;
    assert_eq!(salt(first), salt(second));
    for (method, data, code) in [
        ("SCRAM-SHA-1", "n,,n=carol,r=x", ReasonCode::BadAuthenticationMethod),
        ("SCRAM-SHA-256", "p=tls-unique,,n=carol,r=x", ReasonCode::NotAuthorized),
        ("SCRAM-SHA-256", "garbage", ReasonCode::NotAuthorized),
    ] {
        assert_eq!(refusal(&node, &Options::v5("c").authentication(method, data)).await.0, code, "{method} {data}");
    }
}

#[tokio::test]
async fn a_client_authenticates_again_while_messages_go_on() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let method = "SCRAM-SHA-256";
    let scram = Scram::new(method, "carol", "pencil");
    let again = |data: &str| auth(ReasonCode::ReAuthenticate, method, data);
    let mut client = log_in(&node, "c", method).await;
    client.subscribe("dev/carol/#", QoS::AtLeastOnce).await;
    client.send(&again(&scram.first())).await.expect("sent");
    let data = challenge(&mut client, method, ReasonCode::ContinueAuthentication).await;
    client.publish("dev/carol/x", b"meanwhile", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "meanwhile");
    let (message, signature) = scram.last(&data);
    client.send(&further(method, &message)).await.expect("sent");
    assert_eq!(challenge(&mut client, method, ReasonCode::Success).await, signature.as_bytes());
    client.ping().await;

    let denied = ReasonCode::NotAuthorized;
    let table = [
        (vec![again(&scram.first()), further(method, "c=biws,r=x,p=x")], denied),
        (vec![again("garbage")], denied),
        (vec![auth(ReasonCode::ReAuthenticate, "SCRAM-SHA-512", &scram.first())], ReasonCode::BadAuthenticationMethod),
        (vec![again(&scram.first()), further("SCRAM-SHA-512", "x")], ReasonCode::BadAuthenticationMethod),
        (vec![further(method, "x")], ReasonCode::ProtocolError),
        (vec![auth(ReasonCode::Success, method, "")], ReasonCode::ProtocolError),
        (vec![again(&scram.first()), again(&scram.first())], ReasonCode::ProtocolError),
    ];
    for (packets, code) in table {
        let mut client = log_in(&node, "c", method).await;
        for (n, packet) in packets.iter().enumerate() {
            if n > 0 {
                challenge(&mut client, method, ReasonCode::ContinueAuthentication).await;
            }
            client.send(packet).await.expect("sent");
        }
        assert_eq!(client.closed().await, Some(code), "{packets:?}");
    }
    let mut plain = Client::connect(node.mqtt(), &root("plain")).await;
    plain.send(&again(&scram.first())).await.expect("sent");
    assert_eq!(plain.closed().await, Some(ReasonCode::ProtocolError), "CONNECT named no method");
}

#[tokio::test]
async fn what_is_refused_without_a_verdict_is_counted_and_written_as_well() {
    let _permit = acquire(Weight::Node);
    let mut users = users();
    users.push(User::scram("dora", "pen", "device"));
    let files = Rbac::new(&users, ROLES, "");
    let node = start(&files);
    let method = "SCRAM-SHA-256";
    for version in VERSIONS {
        let ann = |topic: &str| Options::of(version, "ann-1").username("ann").password("secret").will(topic, "x", 0);
        assert_eq!(refusal(&node, &ann("dev/carol/x")).await.0, ReasonCode::NotAuthorized);
        let reserved = if version.is_v5() { ReasonCode::TopicNameInvalid } else { ReasonCode::NotAuthorized };
        assert_eq!(refusal(&node, &ann("$SYS/x")).await.0, reserved);
    }
    let mut client = log_in(&node, "c", method).await;
    let dora = Scram::new(method, "dora", "pen");
    client.send(&auth(ReasonCode::ReAuthenticate, method, &dora.first())).await.expect("sent");
    let data = challenge(&mut client, method, ReasonCode::ContinueAuthentication).await;
    client.send(&further(method, &dora.last(&data).0)).await.expect("sent");
    assert_eq!(client.closed().await, Some(ReasonCode::NotAuthorized));
    let mut client = log_in(&node, "c", method).await;
    client.send(&auth(ReasonCode::ReAuthenticate, "SCRAM-SHA-512", "x")).await.expect("sent");
    assert_eq!(client.closed().await, Some(ReasonCode::BadAuthenticationMethod));

    let failures = |cause: &str| node.metric(&format!("troupemq_login_failures_total{{cause=\"{cause}\"}}"));
    let versions = VERSIONS.len() as f64;
    let counted = ["will", "another-user", "bad-authentication-method", "not-authorized"].map(failures);
    assert_eq!(counted, [2.0 * versions, 1.0, 1.0, 0.0]);
    let log = || std::fs::read_to_string(node.data().join("log/event.log")).unwrap_or_default();
    for (line, times) in [
        (
            "ID: ann-1, IP: 127.0.0.1, Username: ann failed to authenticate. reason: the will may not be published.",
            VERSIONS.len(),
        ),
        ("ID: ann-1, IP: 127.0.0.1, Username: ann failed to authenticate. reason: will topic starts with '$'.", VERSIONS.len()),
        ("ID: c, IP: 127.0.0.1, Username: UNKNOWN failed to authenticate. reason: authentication as another user.", 1),
        (
            "ID: c, IP: 127.0.0.1, Username: carol failed to authenticate. reason: authentication method is not the one of CONNECT.",
            1,
        ),
    ] {
        wait::until(line, SOON, || (log().matches(line).count() == times).then_some(()));
    }
    assert!(node.stderr().contains("a client is refused"));
}

#[tokio::test]
async fn before_connack_nothing_but_auth_is_processed_and_not_for_ever() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let mut everything = Client::connect(node.mqtt(), &root("everything")).await;
    everything.subscribe("#", QoS::AtMostOnce).await;
    let method = "SCRAM-SHA-256";
    let scram = Scram::new(method, "carol", "pencil");
    let (mut slow, _) = begin(&node, "slow", &scram, method).await;
    let began = std::time::Instant::now();

    let early = Packet::Publish(Box::new(publish("dev/carol/early", b"", QoS::AtMostOnce)));
    let (mut client, _) = begin(&node, "c", &scram, method).await;
    client.send(&early).await.expect("sent");
    assert_eq!(connack(&mut client).await.reason_code, ReasonCode::ProtocolError);
    client.closed().await;
    // Also behind the last step, before it is answered.
    let (mut client, data) = begin(&node, "c", &scram, method).await;
    let mut both = bytes::BytesMut::new();
    for packet in [&further(method, &scram.last(&data).0), &early] {
        troupemq::mqtt::codec::encode(packet, ProtocolVersion::V5, &mut both);
    }
    client.send_bytes(&both).await.expect("sent");
    assert_eq!(connack(&mut client).await.reason_code, ReasonCode::ProtocolError);
    // Behind a password that is wrong, where a client need not wait.
    for password in ["wrong", "secret"] {
        let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("a socket");
        let mut both = bytes::BytesMut::new();
        let connect = Options::v5("c").username("ann").password(password).packet();
        let packet = Packet::Publish(Box::new(publish("dev/ann/early", password.as_bytes(), QoS::AtMostOnce)));
        for packet in [&connect, &packet] {
            troupemq::mqtt::codec::encode(packet, ProtocolVersion::V5, &mut both);
        }
        client.send_bytes(&both).await.expect("sent");
        connack(&mut client).await;
    }
    assert_eq!(everything.text().await, "secret");
    everything.nothing().await;

    assert_eq!(connack(&mut slow).await.reason_code, ReasonCode::NotAuthorized);
    assert!(began.elapsed() >= AUTHENTICATION_MAX - Duration::from_secs(1), "{:?}", began.elapsed());
    slow.closed().await;
    assert_eq!(node.metric("troupemq_login_failures_total{cause=\"timeout\"}"), 1.0);
}

#[tokio::test]
async fn changed_credentials_hold_for_who_comes_next_and_bad_ones_change_nothing() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let old = Options::v5("old").username("ann").password("secret");
    let mut connected = Client::connect(node.mqtt(), &old).await;
    files.write_text("<file-rbac><users>");
    wait::until("the mistake is told", SOON, || node.stderr().contains("changed credentials are of no use").then_some(()));
    Client::connect(node.mqtt(), &old.clone().named("still")).await.ping().await;
    assert!(files.archived().is_empty());

    files.write(&[User::password("ann", "changed", "narrow")], &[("narrow", &["narrow/#"])]);
    let new = Options::v5("new").username("ann").password("changed");
    let mut narrow = wait::until_async("the new password is known", SOON, async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Client::try_connect(node.mqtt(), &new).await.ok()
    })
    .await;
    assert_eq!(narrow.subscribe("dev/ann/#", QoS::AtMostOnce).await, ReasonCode::NotAuthorized);
    assert_eq!(refusal(&node, &old.named("another")).await.0, ReasonCode::NotAuthorized);
    assert_eq!(connected.subscribe("dev/ann/#", QoS::AtMostOnce).await, ReasonCode::Success, "keeps what it had");
    let archived = wait::until("the old file is archived", SOON, || files.archived().pop());
    assert!(std::fs::read_to_string(archived).expect("a file").contains("carol"));
}

#[tokio::test]
async fn a_client_that_authenticates_again_loses_subscriptions_that_it_may_not_have_any_more() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let method = "SCRAM-SHA-256";
    let scram = Scram::new(method, "carol", "pencil");
    let mut client = log_in(&node, "c", method).await;
    for filter in ["dev/carol/#", "one/+"] {
        client.subscribe(filter, QoS::AtLeastOnce).await;
    }
    files.write(&users(), &[("all", &["#"]), ("device", &["one/+"])]);
    let mut publisher = wait::until_async("the change is known", SOON, async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut probe = log_in(&node, "probe", method).await;
        let code = probe.subscribe("dev/carol/#", QoS::AtMostOnce).await;
        (code == ReasonCode::NotAuthorized).then_some(())?;
        Some(Client::connect(node.mqtt(), &root("publisher")).await)
    })
    .await;
    publisher.publish("dev/carol/x", b"before", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "before", "until then it keeps what it had");
    client.send(&auth(ReasonCode::ReAuthenticate, method, &scram.first())).await.expect("sent");
    let data = challenge(&mut client, method, ReasonCode::ContinueAuthentication).await;
    client.send(&further(method, &scram.last(&data).0)).await.expect("sent");
    challenge(&mut client, method, ReasonCode::Success).await;
    wait::until("the subscription is gone", SOON, || {
        (node.metric("troupemq_subscriptions_withdrawn_total") == 1.0).then_some(())
    });
    for topic in ["dev/carol/x", "one/x"] {
        publisher.publish(topic, topic.as_bytes(), QoS::AtLeastOnce).await;
    }
    assert_eq!(client.text().await, "one/x");
    client.nothing().await;
}

#[tokio::test]
async fn a_node_without_usable_credentials_starts_and_refuses_everybody_until_there_are_some() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&[], &[], "");
    let node = start(&files);
    assert!(node.stderr().contains("every client is refused"), "{}", node.stderr());
    assert_eq!(refusal(&node, &root("c")).await.0, ReasonCode::NotAuthorized);
    files.write(&users(), ROLES);
    wait::until_async("the credentials are taken over", SOON, async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Client::try_connect(node.mqtt(), &root("c")).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_certificate_stands_for_the_user_it_names_on_its_listener_alone() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let users = [User::password("root", "toor", "all"), User::new("device-7", "", "device")];
    let files = Rbac::new(&users, ROLES, "");
    let directory = pki.path().display();
    let listeners = format!(
        "<tls-tcp-listener><port>0</port><bind-address>127.0.0.1</bind-address><proxy-protocol>true</proxy-protocol><tls>\
         <keystore><path>{directory}/server.pem</path></keystore><truststore><path>{directory}/ca.pem</path></truststore>\
         <client-authentication-mode>OPTIONAL</client-authentication-mode></tls></tls-tcp-listener>"
    );
    let element = files.element().replace("</authentication>", "<client-certificate/></authentication>");
    let node = Node::ready(Config { listeners, more: format!("<security>{element}</security>"), ..Config::default() });
    let broker = node
        .stdout()
        .lines()
        .find_map(|line| line.trim().strip_prefix("TCP Listener with TLS")?.trim().parse().ok())
        .expect("a TLS listener");
    let over = async |identity: Option<&str>, header: &[u8]| {
        let tls = Some(pki.client(identity.map(|name| (name, &[][..]))));
        Way { tls, header: header.to_vec(), ..Way::default() }.relay(broker).await
    };
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let address = over(Some("device-7"), b"").await;
        let mut device = Client::connect(address, &Options::of(version, "c")).await;
        device.publish("dev/device-7/x", b"", QoS::AtLeastOnce).await;
        let expected = if version.is_v5() { ReasonCode::NotAuthorized } else { ReasonCode::UnspecifiedError };
        assert_eq!(device.subscribe("dev/#", QoS::AtMostOnce).await, expected);
        // A password speaks for itself.
        let mut other = Client::connect(address, &Options::of(version, "d").username("root").password("toor")).await;
        other.ping().await;
    }
    let code = async |address, options: &Options| match Client::try_connect(address, options).await {
        Err(ConnectError::Refused(connack)) => connack.reason_code,
        other => panic!("{:?}", other.err()),
    };
    let known = over(Some("device-7"), b"").await;
    assert_eq!(code(known, &Options::v5("c").username("root")).await, ReasonCode::BadUserNameOrPassword);
    let unknown = over(Some("device-8"), b"").await;
    assert_eq!(code(unknown, &Options::v5("c")).await, ReasonCode::NotAuthorized);
    let nobody = over(None, b"").await;
    assert_eq!(code(nobody, &Options::v5("c")).await, ReasonCode::BadUserNameOrPassword);
    // What a proxy says of a certificate lets nobody in.
    let told: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x1F\xC0\x00\x02\x01\x0A\x00\x00\x01\xC0\x00\x07\x5B\
        \x20\x00\x10\x03\x00\x00\x00\x00\x22\x00\x08device-7";
    let proxied = over(None, told).await;
    assert_eq!(code(proxied, &Options::v5("c")).await, ReasonCode::BadUserNameOrPassword);
    // A certificate of another authority ends the handshake, which is counted and said.
    let stranger = Way { tls: Some(pki.client_of(&Pki::new(), "device-7")), ..Way::default() }.relay(broker).await;
    assert!(Client::try_connect(stranger, &Options::v5("c")).await.is_err());
    wait::until("the handshake is counted", SOON, || (node.metric("troupemq_tls_handshakes_failed_total") == 1.0).then_some(()));
    let log = node.stderr();
    assert!(log.contains("TLS handshake failed") && log.contains("127.0.0.1"), "{log}");
}

/// cases.md, row 99.
#[tokio::test]
async fn those_who_try_again_and_again_are_held_off_and_nobody_else_is() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let address = node.mqtt();
    let flood: Vec<_> = (0..40)
        .map(|n| {
            let options = Options::v5(&format!("bad-{n}")).username("ann").password("wrong");
            tokio::spawn(async move {
                let mut codes = Vec::new();
                for _ in 0..3 {
                    if let Err(ConnectError::Refused(connack)) = Client::try_connect(address, &options).await {
                        codes.push(connack.reason_code);
                    }
                }
                codes
            })
        })
        .collect();
    for n in 0..20 {
        let mut good = Client::connect(address, &root(&format!("good-{n}"))).await;
        good.ping().await;
    }
    let mut codes = Vec::new();
    for one in flood {
        codes.extend(one.await.expect("it ends"));
    }
    assert_eq!(codes.len(), 120, "everybody is told: {codes:?}");
    let held_off = codes.iter().filter(|code| **code == ReasonCode::ConnectionRateExceeded).count();
    // How many depends on how long all this takes: failures are forgotten at one a second.
    assert!(held_off > 0, "each of {} is looked at", codes.len());
    assert_eq!(node.metric("troupemq_login_failures_total{cause=\"too-many-failures\"}"), held_off as f64);
    // And after a while the right password is heard again.
    let ann = Options::v5("ann").username("ann").password("secret");
    wait::until_async("the user is forgiven", SOON, async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Client::try_connect(address, &ann).await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_of_its_login_leaves_nothing() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let scram = Scram::new("SCRAM-SHA-256", "carol", "pencil");
    for n in 0..20 {
        let (client, _) = begin(&node, &format!("gone-{n}"), &scram, "SCRAM-SHA-256").await;
        drop(client);
        let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("a socket");
        client.send(&Options::v5("gone").username("ann").password("secret").packet()).await.expect("sent");
        drop(client);
    }
    let mut client = Client::connect(node.mqtt(), &root("c")).await;
    client.ping().await;
    let counted = "com_hivemq_networking_connections_current";
    wait::until("only one connection is left", SOON, || (node.metric(counted) == 1.0).then_some(()));
    assert_eq!(client.try_message(Duration::from_millis(1)).await, Err(Gone::Timeout));
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
}

#[test]
fn mosquittos_client_and_paho_log_in_with_their_passwords() {
    if interop_skipped("mosquitto and paho-mqtt") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), ROLES, "");
    let node = start(&files);
    let port = node.mqtt().port().to_string();
    for version in ["mqttv31", "mqttv311", "5"] {
        for (password, code) in [("secret", 0), ("wrong", if version == "5" { 135 } else { 5 })] {
            let mut command = Command::new("mosquitto_pub");
            command.args(["-h", "127.0.0.1", "-p", &port, "-V", version, "-u", "ann", "-P", password]);
            let finished = run(command.args(["-t", "dev/ann/x", "-m", "x", "-q", "1"]), SOON);
            assert_eq!(finished.code, Some(code), "{version} {password}: {finished:?}");
        }
    }
    let script = "
import sys, paho.mqtt.client as mqtt
port, version, password, expected = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
codes = []
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id='paho', protocol=version, reconnect_on_failure=False)
client.username_pw_set('ann', password)
def connected(client, userdata, flags, reason, properties):
    codes.append(str(reason))
    client.disconnect()
client.on_connect = connected
client.connect('127.0.0.1', port)
client.loop_forever()
assert codes == [expected], codes
";
    for (version, password, expected) in [
        ("4", "secret", "Success"),
        ("5", "secret", "Success"),
        ("4", "wrong", "Not authorized"),
        ("5", "wrong", "Not authorized"),
    ] {
        let mut command = Command::new(python());
        let finished = run(command.args(["-c", script, &port, version, password, expected]), SOON);
        assert_eq!(finished.code, Some(0), "{version} {password}: {finished:?}");
    }
}
