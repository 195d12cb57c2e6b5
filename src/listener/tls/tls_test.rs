use std::fs;

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion};

use super::reload::{Reloader, watch};
use super::*;
use crate::config::settings::{ClientAuthentication, TlsSettings};
use crate::config::tls::fixture::{Ca, Identity, put, settings, store};
use crate::config::tls::suites;

type Accepted = io::Result<(TlsStream<Replay>, Option<PeerCertificate>)>;
type Connected = io::Result<tokio_rustls::client::TlsStream<TcpStream>>;

pub(in crate::listener) fn name() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

/// A client that trusts in a CA; it keeps sessions over its connections.
pub(in crate::listener) fn connector(
    ca: &Ca,
    identity: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate.der().clone()).unwrap();
    let versions = if versions.is_empty() { &[&TLS13, &TLS12] } else { versions };
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
            builder.with_client_auth_cert(vec![identity.certificate.der().clone()], key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(config))
}

struct Rig {
    directory: TempDir,
    ca: Ca,
    settings: TlsSettings,
}

impl Rig {
    fn new(mode: ClientAuthentication) -> Self {
        let directory = TempDir::new().unwrap();
        let ca = Ca::new("ca");
        let mut settings = settings(store(put(directory.path(), "server.pem", ca.server().pem()), ""));
        settings.truststore = Some(store(put(directory.path(), "ca.pem", ca.certificate.pem()), ""));
        settings.client_authentication = mode;
        Self { directory, ca, settings }
    }

    fn start(&self) -> (Arc<Current>, Reloader) {
        let (reloader, config) = Reloader::start(Arc::new(self.settings.clone())).unwrap();
        (Arc::new(Current::new(config, Duration::from_secs(10))), reloader)
    }

    /// The broker's side of one connection.
    async fn accept(&self, client: &TlsConnector) -> Accepted {
        let (current, _) = self.start();
        connect(&current, client).await.0
    }
}

/// One connection; the client reads a byte, so that it gets tickets and alerts.
async fn connect(current: &Current, client: &TlsConnector) -> (Accepted, Connected) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async {
        let (stream, _) = listener.accept().await?;
        let mut accepted = current.accept(Replay::new(bytes::Bytes::new(), stream)).await?;
        accepted.0.write_all(b"x").await?;
        accepted.0.flush().await?;
        Ok(accepted)
    };
    let call = async {
        let mut stream = client.connect(name(), TcpStream::connect(address).await?).await?;
        stream.read_u8().await?;
        Ok(stream)
    };
    tokio::join!(serve, call)
}

fn certificate_of(connected: &Connected) -> CertificateDer<'static> {
    connected.as_ref().unwrap().get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

fn kind_of(connected: &Connected) -> HandshakeKind {
    connected.as_ref().unwrap().get_ref().1.handshake_kind().unwrap()
}

#[actix_web::test]
async fn protocols_and_cipher_suites_are_those_of_the_settings() {
    let mut rig = Rig::new(ClientAuthentication::None);
    let (old, new) = (connector(&rig.ca, None, &[&TLS12]), connector(&rig.ca, None, &[&TLS13]));
    let version = |accepted: Accepted| accepted.ok().and_then(|(stream, _)| stream.get_ref().1.protocol_version());
    assert_eq!(version(rig.accept(&old).await), Some(ProtocolVersion::TLSv1_2));
    assert_eq!(version(rig.accept(&new).await), Some(ProtocolVersion::TLSv1_3));
    rig.settings.tls_1_2 = false;
    assert_eq!(version(rig.accept(&old).await), None);
    assert_eq!(version(rig.accept(&new).await), Some(ProtocolVersion::TLSv1_3));
    rig.settings.tls_1_2 = true;
    let suite = suites::find("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256").unwrap();
    rig.settings.cipher_suites = vec![suite];
    assert_eq!(version(rig.accept(&new).await), None, "no suite of TLS 1.3 is left");
    let (stream, _) = rig.accept(&connector(&rig.ca, None, &[])).await.unwrap();
    assert_eq!(stream.get_ref().1.negotiated_cipher_suite(), Some(suite));
}

#[actix_web::test]
async fn clients_show_certificates_as_the_mode_says() {
    use ClientAuthentication::{None as Off, Optional, Required};
    for (mode, with_none, with_own, with_strange) in
        [(Off, true, true, true), (Optional, true, true, false), (Required, false, true, false)]
    {
        let rig = Rig::new(mode);
        let own = rig.ca.client(Some("own"), &[], 1);
        let strange = Ca::new("ca").client(Some("strange"), &[], 1);
        for versions in [&[&TLS12][..], &[&TLS13]] {
            for (identity, expected) in [(None, with_none), (Some(&own), with_own), (Some(&strange), with_strange)] {
                let accepted = rig.accept(&connector(&rig.ca, identity, versions)).await;
                assert_eq!(accepted.is_ok(), expected, "{mode:?} {:?}", accepted.err());
                if let Ok((_, certificate)) = accepted {
                    assert_eq!(certificate.is_some(), identity.is_some() && mode != Off, "{mode:?}");
                }
            }
        }
    }
}

#[actix_web::test]
async fn a_certificate_tells_its_common_name_and_its_dns_and_ip_names() {
    let rig = Rig::new(ClientAuthentication::Optional);
    let cases: [(Option<&str>, &[&str], &[&str]); 4] = [
        (Some("device 1"), &["a.example", "192.0.2.7", "2001:db8::7"], &["a.example", "192.0.2.7", "2001:db8::7"]),
        (Some("ä"), &[], &[]),
        (None, &["only.example"], &["only.example"]),
        (None, &[], &[]),
    ];
    for (common_name, names, expected) in cases {
        let client = rig.ca.client(common_name, names, 1);
        let (_, certificate) = rig.accept(&connector(&rig.ca, Some(&client), &[])).await.unwrap();
        let certificate = certificate.unwrap();
        assert_eq!(certificate.common_name.as_deref(), common_name);
        let found = certificate.subject_alternative_names.unwrap();
        assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
    }
    // Whatever bytes stand for a certificate, reading them does no harm.
    let der = rig.ca.client(Some("x"), &["a.example"], 1).certificate.der().to_vec();
    for end in 0..der.len() {
        assert_eq!(certificate::facts(&der[..end]), PeerCertificate::default());
    }
}

#[actix_web::test]
async fn a_returning_client_resumes_its_session() {
    for mode in [ClientAuthentication::None, ClientAuthentication::Required] {
        let rig = Rig::new(mode);
        let (current, _) = rig.start();
        let client = rig.ca.client(Some("returning"), &[], 1);
        for version in [&TLS12, &TLS13] {
            let connector = connector(&rig.ca, Some(&client), &[version]);
            let (_, first) = connect(&current, &connector).await;
            assert_ne!(kind_of(&first), HandshakeKind::Resumed);
            drop(first);
            let (accepted, second) = connect(&current, &connector).await;
            assert_eq!(kind_of(&second), HandshakeKind::Resumed, "{version:?}");
            let common_name = accepted.unwrap().1.and_then(|c| c.common_name);
            assert_eq!(common_name.is_some(), mode == ClientAuthentication::Required, "known from the first handshake");
        }
    }
}

#[actix_web::test]
async fn new_handshakes_get_a_changed_certificate_and_old_connections_go_on() {
    let rig = Rig::new(ClientAuthentication::None);
    let (current, mut reloader) = rig.start();
    let client = || connector(&rig.ca, None, &[]);
    let (old_server, old_client) = connect(&current, &client()).await;
    let (mut old_server, mut old_client) = (old_server.unwrap().0, old_client.unwrap());
    assert!(reloader.check().is_none(), "nothing has changed");

    let renewed = rig.ca.server();
    put(rig.directory.path(), "server.pem", renewed.pem());
    current.replace(reloader.check().unwrap().unwrap());
    assert!(reloader.check().is_none());
    let (_, connected) = connect(&current, &client()).await;
    assert_eq!(certificate_of(&connected), *renewed.certificate.der());
    old_client.write_all(b"y").await.unwrap();
    old_client.flush().await.unwrap();
    assert_eq!(old_server.read_u8().await.unwrap(), b'y');

    // Half a change, and no file at all: told once each, and what was served goes on.
    put(rig.directory.path(), "server.pem", renewed.certificate.pem());
    assert!(reloader.check().unwrap().is_err());
    assert!(reloader.check().is_none());
    fs::remove_file(rig.directory.path().join("server.pem")).unwrap();
    assert!(reloader.check().unwrap().is_err());
    assert!(reloader.check().is_none());
    let (_, connected) = connect(&current, &client()).await;
    assert_eq!(certificate_of(&connected), *renewed.certificate.der());
    put(rig.directory.path(), "server.pem", renewed.pem());
    assert!(reloader.check().unwrap().is_ok());
}

#[actix_web::test]
async fn a_revoked_client_is_out_also_with_a_session_from_before() {
    let mut rig = Rig::new(ClientAuthentication::Required);
    rig.settings.crls = vec![put(rig.directory.path(), "crl.pem", rig.ca.revocation_list(&[5]))];
    let (current, mut reloader) = rig.start();
    let (good, bad) = (rig.ca.client(Some("good"), &[], 7), rig.ca.client(Some("bad"), &[], 5));
    assert!(connect(&current, &connector(&rig.ca, Some(&bad), &[])).await.0.is_err());
    let returning: Vec<_> = [&TLS12, &TLS13].iter().map(|version| connector(&rig.ca, Some(&good), &[version])).collect();
    for connector in &returning {
        assert!(connect(&current, connector).await.0.is_ok());
    }
    put(rig.directory.path(), "crl.pem", rig.ca.revocation_list(&[5, 7]));
    current.replace(reloader.check().unwrap().unwrap());
    for connector in &returning {
        assert!(connect(&current, connector).await.0.is_err());
    }
}

#[actix_web::test]
async fn another_ca_lets_in_its_clients_and_no_others() {
    let rig = Rig::new(ClientAuthentication::Required);
    let (current, mut reloader) = rig.start();
    let other = Ca::new("other");
    let (before, after) = (rig.ca.client(Some("before"), &[], 1), other.client(Some("after"), &[], 1));
    assert!(connect(&current, &connector(&rig.ca, Some(&before), &[])).await.0.is_ok());
    put(rig.directory.path(), "ca.pem", other.certificate.pem());
    current.replace(reloader.check().unwrap().unwrap());
    assert!(connect(&current, &connector(&rig.ca, Some(&before), &[])).await.0.is_err());
    assert!(connect(&current, &connector(&rig.ca, Some(&after), &[])).await.0.is_ok());
}

#[actix_web::test]
async fn the_watch_takes_up_changes_and_ends_with_its_listener() {
    let rig = Rig::new(ClientAuthentication::None);
    let (current, reloader) = rig.start();
    let stop = tokio_util::sync::CancellationToken::new();
    let watching =
        actix_rt::spawn(watch("l".to_owned(), reloader, Arc::clone(&current), Duration::from_millis(20), stop.clone()));
    let renewed = rig.ca.server();
    put(rig.directory.path(), "server.pem", renewed.pem());
    // Each time another client: one that resumes its session sees no certificate.
    let client = || connector(&rig.ca, None, &[]);
    let found = actix_rt::time::timeout(Duration::from_secs(20), async {
        while certificate_of(&connect(&current, &client()).await.1) != *renewed.certificate.der() {
            actix_rt::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(found.await.is_ok());
    stop.cancel();
    assert!(actix_rt::time::timeout(Duration::from_secs(20), watching).await.is_ok());
}

#[actix_web::test]
async fn a_handshake_has_its_time_and_not_more() {
    let rig = Rig::new(ClientAuthentication::None);
    let (_, config) = Reloader::start(Arc::new(rig.settings.clone())).unwrap();
    let current = Current::new(config, Duration::from_millis(100));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for sent in [&b""[..], b"\x16\x03\x01"] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.write_all(sent).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = current.accept(Replay::new(bytes::Bytes::new(), stream)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"\x10\x0F\0\x04MQTT\x05\x02\0\0\0\0\x02m5").await.unwrap();
    client.shutdown().await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    assert!(current.accept(Replay::new(bytes::Bytes::new(), stream)).await.is_err(), "MQTT in plain text is no handshake");
}

#[actix_web::test]
async fn handshakes_above_the_limit_wait_within_their_time() {
    let rig = Rig::new(ClientAuthentication::None);
    let (_, config) = Reloader::start(Arc::new(rig.settings.clone())).unwrap();
    let current = Current::new(config, Duration::from_millis(200));
    let all = HANDSHAKES.with(Arc::clone).acquire_many_owned(u32::try_from(HANDSHAKES_MAX).unwrap()).await.unwrap();
    let client = connector(&rig.ca, None, &[]);
    assert_eq!(connect(&current, &client).await.0.unwrap_err().kind(), io::ErrorKind::TimedOut);
    let release = async {
        actix_rt::time::sleep(Duration::from_millis(20)).await;
        drop(all);
    };
    let patient = Arc::new(rig.start().0);
    let ((accepted, _), ()) = tokio::join!(connect(&patient, &client), release);
    assert!(accepted.is_ok());
    let free = HANDSHAKES.with(|handshakes| handshakes.available_permits());
    assert_eq!(free, HANDSHAKES_MAX, "a handshake that is over takes no room");
}
