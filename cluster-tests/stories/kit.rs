//! What the stories share: an example's files, a node that runs on them, its users, and lines to read.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::{self, Config};
use crate::harness::node::Node;
use crate::harness::repository;
use crate::transports::pki::Pki;
use crate::transports::{address, way};

pub fn examples() -> PathBuf {
    repository().join("config/examples")
}

/// A copy of an example, with a key and a certificate.
pub struct Files {
    directory: TempDir,
    pki: Pki,
}

impl Files {
    pub fn copy(name: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("story-").tempdir().expect("a directory");
        copy(&examples().join(name), directory.path());
        let files = Self { directory, pki: Pki::new() };
        for name in ["tls.crt", "tls.key"] {
            fs::copy(files.pki.path().join("server.pem"), files.conf().join(name)).expect("a file");
        }
        files
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn conf(&self) -> PathBuf {
        self.path().join("conf")
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file");
        }
    }
}

/// A node on an example's files; only its ports and addresses are others.
pub struct Story {
    files: Files,
    pub node: Node,
}

impl Story {
    pub fn start(name: &str) -> Self {
        let files = Files::copy(name);
        let config = read(&files.conf().join("config.xml"));
        let any = config.split("<port>").map(|part| part.split_once("</port>").map_or(part, |(_, rest)| rest));
        let config = any.collect::<Vec<_>>().join("<port>0</port>").replace("0.0.0.0", "127.0.0.1");
        let declared = Some(read(&files.conf().join("declared-shared-subscriptions.xml")));
        let config = Config { files: Some(config::Files { config, declared }), ..Config::default() };
        let mut node = Node::within(&files.conf(), name, config);
        node.start();
        Self { files, node }
    }

    /// Where a plain client connects to come by a TLS listener, over WebSocket where the kind says so.
    pub async fn by(&self, kind: &str) -> SocketAddr {
        way(kind, &self.files.pki, None).relay(address(&self.node, kind)).await
    }
}

/// A user of the examples logs in with `<name>-secret`.
pub fn login(user: &str, client_id: &str) -> Options {
    Options::v5(client_id).username(user).password(&format!("{user}-secret"))
}

/// Nobody but those whom a permission names may read a `$` topic.
pub async fn may_not_subscribe(client: &mut Client, filters: &[&str]) {
    for filter in filters {
        assert_eq!(client.subscribe(filter, QoS::AtLeastOnce).await, ReasonCode::NotAuthorized, "{filter}");
    }
}

/// Nobody may write to one: whoever tries is disconnected, as for any breach of the protocol.
pub async fn may_not_publish(mut client: Client, topic: &str) {
    client.start_publish(publish(topic, b"forged", QoS::AtLeastOnce)).await.expect("sent");
    assert_eq!(client.closed().await, Some(ReasonCode::ProtocolError), "{topic}");
}

/// A message of an add-on topic in one line: time, topic, who, why, payload, and the user properties that it had before.
pub fn line(message: &Publish, space: &str) -> String {
    let own = |name: &str| user_property(message, &format!("hmq-{space}-{name}"));
    let time = own("timestamp").and_then(|at_ms| at_ms.parse().ok()).map_or_else(String::new, time);
    let who = own("client").or(own("shared-subscription")).unwrap_or("-");
    let why = own("reason").map_or_else(String::new, |reason| format!("  {reason}"));
    let before = message.properties.user_properties.iter().filter(|(name, _)| !name.starts_with("hmq-"));
    let before: String = before.map(|(name, value)| format!("  {name}={value}")).collect();
    format!("{time}  {}  {}: {who}{why}  {}{before}", message.topic, own("origin").unwrap_or("-"), text(message))
}

pub fn text(message: &Publish) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// Time of the day, UTC.
pub fn time(at_ms: u64) -> String {
    let (s, ms) = (at_ms / 1000, at_ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600 % 24, s / 60 % 60, s % 60)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
