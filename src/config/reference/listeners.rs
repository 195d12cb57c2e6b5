//! Chapters of what clients connect to: listeners and their TLS.

use super::row::{Chapter, Holds, hive, own};
use crate::config::Settings;
use crate::config::settings::{ConnectOverload, ListenerKind};
use crate::config::tls::suites;

pub(super) const LISTENERS: Chapter = Chapter {
    title: "Listeners",
    base: "listeners",
    intro: "What MQTT clients connect to: any number, in any mix, at least one. Without an authenticator a listener that other machines reach needs \
            `security/allow-anonymous`, so that nobody opens a broker to everybody without having said so.",
    rows: &[
        hive("tcp-listener", "MQTT over TCP."),
        hive("tls-tcp-listener", "MQTT over TLS; needs a `<tls>` block, see [TLS](#tls)."),
        hive("websocket-listener", "MQTT over WebSocket."),
        hive("tls-websocket-listener", "MQTT over secure WebSocket; needs a `<tls>` block."),
        hive("*/port", "0 takes any free port.").without("required"),
        hive("*/bind-address", "The address of this machine to listen on; `0.0.0.0` and `::` stand for all of them.")
            .holds(Holds::Address)
            .without_it(|bare| bare.listeners.first().map(|listener| code(listener.bind_address)).unwrap_or_default()),
        hive("*/name", "What log, metrics and File RBAC call it. A second one of a name gets `-1` behind it, and a warning.")
            .holds(Holds::Word("a name"))
            .without_it(|bare| {
                let names = bare.listeners.iter().map(|listener| code(&listener.name)).collect::<Vec<_>>();
                format!("kind and port: {}", names.join(", "))
            }),
        hive(
            "*/proxy-protocol",
            "A PROXY header (version 1 or 2) in front of a connection is believed: addresses are those of the clients, not of the load balancer. \
             Only for listeners that nobody but the load balancer reaches.",
        ),
        hive("*/connect-overload-protection/enabled", "Holds back connections that come faster than the rate below."),
        hive("*/connect-overload-protection/connect-rate", "As many are let in; each listener counts for itself.")
            .unit("connections a second")
            .without_it(|bare| overload(bare, |overload| overload.rate)),
        hive("*/connect-overload-protection/connect-burst-size", "Connections that may come at once.")
            .without_it(|bare| format!("twice the rate ({})", overload(bare, |overload| overload.burst))),
        hive("*/path", "WebSocket only: the path of the upgrade request, compared as it is.")
            .holds(Holds::Word("starts with `/`, has no `?` and no `#`"))
            .without_it(|bare| web_socket(bare, |path, _| code(path))),
        hive("*/subprotocols/subprotocol", "WebSocket only: a subprotocol that is accepted.")
            .holds(Holds::Says("a token of RFC 6455"))
            .without_it(|bare| web_socket(bare, |_, names| names.iter().map(code).collect::<Vec<_>>().join(", "))),
        hive("*/allow-extensions", "WebSocket only."),
    ],
    example: "\
<listeners>
  <tcp-listener>
    <port>1883</port>
    <bind-address>127.0.0.1</bind-address>
    <name>sensors</name>
    <connect-overload-protection>
      <connect-rate>200</connect-rate>
      <connect-burst-size>1000</connect-burst-size>
    </connect-overload-protection>
  </tcp-listener>
  <websocket-listener>
    <port>8000</port>
    <bind-address>127.0.0.1</bind-address>
    <path>/mqtt</path>
    <subprotocols><subprotocol>mqtt</subprotocol></subprotocols>
  </websocket-listener>
</listeners>",
    mistakes: &[
        "<hivemq/>",
        "<hivemq><listeners><tcp-listener><bind-address>127.0.0.1</bind-address></tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tcp-listener><port>1883</port></tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tcp-listener><port>1883</port><bind-address>my-host</bind-address></tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tcp-listener><port>1883</port><bind-address>::1</bind-address></tcp-listener>\
         <websocket-listener><port>1883</port><bind-address>::1</bind-address></websocket-listener></listeners></hivemq>",
        "<hivemq><listeners><websocket-listener><port>8000</port><bind-address>::1</bind-address><path>mqtt</path></websocket-listener></listeners></hivemq>",
    ],
};

pub(super) const TLS: Chapter = Chapter {
    title: "TLS",
    base: "**/tls",
    intro: "Stores are PKCS12 or PEM; of a Java keystore (JKS) the check says how to convert it. Files are opened by the check already, and read again within ten \
            seconds of a change: connections go on, the next handshake has the new certificate.",
    rows: &[
        hive("keystore/path", "The node's certificate, with its chain, and its private key.").holds(FILE).without("required"),
        hive("keystore/password", "Of a PKCS12 store. An encrypted key in PEM is refused.").without("none"),
        hive(
            "keystore/private-key-password",
            "Taken, for HiveMQ's files have it, and of no use: in PKCS12 the store's password opens its keys.",
        )
        .without("none"),
        own("keystore/private-key-path", "The private key, where it is in a PEM file of its own.")
            .holds(Holds::File("a PEM file"))
            .without("in the store"),
        hive("truststore/path", "The authorities that client certificates go back to.")
            .holds(FILE)
            .without("required where clients are asked for certificates"),
        hive("truststore/password", "Of a PKCS12 store.").without("none"),
        own(
            "truststore/crl",
            "A certificate revocation list. With one, certificates whose authority has no list are refused, too.",
        )
        .holds(Holds::File("a PEM or DER file"))
        .without("none"),
        hive(
            "client-authentication-mode",
            "Whether clients are asked for a certificate: not; asked, and it must be valid if they show one; required.",
        ),
        hive("protocols/protocol", "Older protocols are refused.").holds(Holds::Says("`TLSv1.2` or `TLSv1.3`")).without("both"),
        hive("cipher-suites/cipher-suite", "A suite that may be used.")
            .holds(Holds::Computed(|| suites::names().iter().map(code).collect::<Vec<_>>().join(", ")))
            .without("all of these"),
        hive("prefer-server-cipher-suites", "The order of the node decides, not that of the client."),
        hive(
            "handshake-timeout",
            "A handshake that takes longer is ended; 0: `restrictions/no-connect-idle-timeout` alone limits it.",
        )
        .unit("ms"),
    ],
    example: "\
<listeners>
  <tls-tcp-listener>
    <port>8883</port>
    <bind-address>0.0.0.0</bind-address>
    <tls>
      <keystore>
        <path>server.pem</path>
      </keystore>
      <truststore>
        <path>ca.pem</path>
      </truststore>
      <client-authentication-mode>REQUIRED</client-authentication-mode>
      <protocols><protocol>TLSv1.3</protocol></protocols>
    </tls>
  </tls-tcp-listener>
</listeners>",
    mistakes: &[
        "<hivemq><listeners><tls-tcp-listener><port>8883</port><bind-address>::1</bind-address></tls-tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tls-tcp-listener><port>8883</port><bind-address>::1</bind-address><tls><keystore><path>no-such.p12</path>\
         </keystore></tls></tls-tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tls-tcp-listener><port>8883</port><bind-address>::1</bind-address><tls><keystore><path>no-such.p12</path>\
         </keystore><client-authentication-mode>REQUIRED</client-authentication-mode></tls></tls-tcp-listener></listeners></hivemq>",
        "<hivemq><listeners><tls-tcp-listener><port>8883</port><bind-address>::1</bind-address><tls><keystore><path>no-such.p12</path>\
         </keystore><protocols><protocol>TLSv1.1</protocol></protocols></tls></tls-tcp-listener></listeners></hivemq>",
    ],
};

const FILE: Holds = Holds::File("a PKCS12 or PEM file");

fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}

fn overload(bare: &Settings, read: fn(&ConnectOverload) -> f64) -> String {
    let overload = bare.listeners.first().and_then(|listener| listener.connect_overload.as_ref());
    overload.map(|overload| code(read(overload))).unwrap_or_default()
}

fn web_socket(bare: &Settings, read: fn(&str, &[String]) -> String) -> String {
    let found = bare.listeners.iter().find_map(|listener| match &listener.kind {
        ListenerKind::WebSocket { path, subprotocols } => Some(read(path, subprotocols)),
        ListenerKind::Tcp => None,
    });
    found.unwrap_or_default()
}
