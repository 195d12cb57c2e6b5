use std::future::poll_fn;
use std::net::SocketAddr;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::*;
use crate::config::tls::fixture::{Ca, put, settings, store};
use crate::listener::tls::reload::Reloader;
use crate::listener::tls::tests::{connector, name};

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.1 49152 1883\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0C\xC0\x00\x02\x01\x0A\x00\x00\x01\xC0\x00\x07\x5B";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
/// As `V2`, with the TLV of TLS and a verified client certificate of the name `cn`.
const V2_TLS: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x19\xC0\x00\x02\x01\x0A\x00\x00\x01\xC0\x00\x07\x5B\
    \x20\x00\x0A\x03\x00\x00\x00\x00\x22\x00\x02cn";
const PROXIED: &str = "192.0.2.1:49152";

/// A listener of one kind, of each of the four.
struct Rig {
    endpoint: Endpoint,
    ca: Ca,
    secure: bool,
    web: bool,
}

impl Rig {
    fn all() -> Vec<Self> {
        [(false, false), (true, false), (false, true), (true, true)].map(|(secure, web)| Self::new(secure, web)).into()
    }

    fn new(secure: bool, web: bool) -> Self {
        let ca = Ca::new("ca");
        let directory = TempDir::new().unwrap();
        let tls = secure.then(|| {
            let settings = settings(store(put(directory.path(), "s.pem", ca.server().pem()), ""));
            let (_, config) = Reloader::start(Arc::new(settings)).unwrap();
            Arc::new(tls::Current::new(config, Duration::from_secs(10)))
        });
        let web_socket = web.then(|| websocket::Endpoint { path: "/mqtt".to_owned(), subprotocols: vec!["mqtt".to_owned()] });
        let endpoint = Endpoint {
            listener: Arc::new(ListenerName { name: "listener".into(), kind: "TCP Listener" }),
            proxy_protocol: true,
            tls,
            web_socket,
            idle_timeout: Duration::from_secs(10),
        };
        Self { endpoint, ca, secure, web }
    }

    /// Opens one connection; what a client does with its socket runs meanwhile.
    async fn open<F: Future<Output = T>, T>(&self, client: impl FnOnce(TcpStream) -> F) -> (io::Result<Option<Opened>>, T) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let (stream, peer) = listener.accept().await.unwrap();
            self.endpoint.open(stream, peer).await
        };
        let call = async { client(TcpStream::connect(address).await.unwrap()).await };
        tokio::join!(serve, call)
    }

    /// Goes the client's way to the point where MQTT begins.
    async fn begin(&self, stream: TcpStream) -> Box<dyn Both> {
        let stream: Box<dyn Both> = if self.secure {
            Box::new(connector(&self.ca, None, &[]).connect(name(), stream).await.unwrap())
        } else {
            Box::new(stream)
        };
        if !self.web {
            return stream;
        }
        let request = "ws://localhost/mqtt".into_client_request().unwrap();
        tokio_tungstenite::client_async(request, stream).await.unwrap().0.into_inner()
    }
}

trait Both: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Both for T {}

async fn read(transport: &mut Box<dyn Transport>) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 100];
    let count = poll_fn(|cx| transport.poll_read(cx, &mut buffer)).await?;
    Ok(buffer[..count].to_vec())
}

#[actix_web::test]
async fn every_kind_of_listener_believes_a_proxy_and_takes_clients_without_one() {
    let cases: [(&str, &[u8], Option<&str>, bool, Option<&str>); 4] = [
        ("no header", b"", None, false, None),
        ("v1", V1, Some(PROXIED), false, None),
        ("v2", V2, Some(PROXIED), false, None),
        ("v2 with TLS", V2_TLS, Some(PROXIED), true, Some("cn")),
    ];
    for rig in Rig::all() {
        for (case, header, peer, secure, common_name) in cases {
            for split in [header.len(), header.len() / 3, header.len().saturating_sub(1)] {
                let case = format!("{case}, TLS {}, WebSocket {}, split {split}", rig.secure, rig.web);
                let client = async |mut stream: TcpStream| {
                    stream.set_nodelay(true).unwrap();
                    let own = stream.local_addr().unwrap();
                    stream.write_all(&header[..split]).await.unwrap();
                    if split < header.len() {
                        actix_rt::time::sleep(Duration::from_millis(5)).await;
                    }
                    stream.write_all(&header[split..]).await.unwrap();
                    let mut stream = rig.begin(stream).await;
                    stream.write_all(if rig.web { b"\x82\x85\0\0\0\0hello" } else { b"hello" }).await.unwrap();
                    stream.flush().await.unwrap();
                    (own, stream)
                };
                let (opened, (own, _stream)) = rig.open(client).await;
                let mut opened = opened.unwrap().unwrap();
                let expected: SocketAddr = peer.map_or(own, |peer| peer.parse().unwrap());
                let accepted = &opened.accepted;
                assert_eq!(accepted.peer(), Some(expected), "{case}");
                assert!(accepted.listener_port > 0 && accepted.local.is_some_and(|ip| ip.is_loopback()), "{case}");
                assert_ne!(accepted.listener_port, 1883, "{case}: the node's own port");
                assert_eq!(accepted.secure, secure || rig.secure, "{case}");
                let certificate = accepted.certificate.as_deref();
                assert_eq!(certificate.and_then(|c| c.common_name.as_deref()), common_name, "{case}");
                assert_eq!(certificate.and_then(|c| c.subject_alternative_names.clone()), None, "{case}");

                assert_eq!(read(&mut opened.transport).await.unwrap(), b"hello", "{case}");
            }
        }
    }
}

#[actix_web::test]
async fn a_proxys_own_connection_closes_without_a_byte() {
    for rig in Rig::all() {
        let client = async |mut stream: TcpStream| {
            stream.write_all(V2_LOCAL).await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.map(|_| rest)
        };
        let (opened, rest) = rig.open(client).await;
        assert!(opened.unwrap().is_none());
        assert_eq!(rest.unwrap(), b"");
    }
}

#[actix_web::test]
async fn silence_and_garbage_end_a_connection() {
    for mut rig in Rig::all() {
        rig.endpoint.idle_timeout = Duration::from_millis(100);
        for begun in [0, 5, V2.len() - 1] {
            let client = async |mut stream: TcpStream| {
                stream.write_all(&V2[..begun]).await.unwrap();
                let mut rest = Vec::new();
                _ = stream.read_to_end(&mut rest).await;
            };
            let (opened, ()) = rig.open(client).await;
            assert_eq!(opened.err().unwrap().kind(), io::ErrorKind::TimedOut, "{begun}");
        }
        let (opened, _) = rig.open(async |mut stream: TcpStream| stream.write_all(b"PROXY TCP4 me you\r\n").await).await;
        assert_eq!(opened.err().unwrap().kind(), io::ErrorKind::InvalidData);
        let (opened, _) = rig.open(async |mut stream: TcpStream| stream.write_all(&V1[..9]).await).await;
        assert_eq!(opened.err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}

/// Path, sub-protocols offered, status, sub-protocol chosen.
#[actix_web::test]
async fn a_web_socket_is_opened_on_its_path_with_a_known_sub_protocol() {
    let cases = [
        ("/mqtt", Some("mqtt"), 101, Some("mqtt")),
        ("/mqtt", Some("other, mqtt"), 101, Some("mqtt")),
        ("/mqtt?token=1", Some("mqtt"), 101, Some("mqtt")),
        ("/mqtt", None, 101, None),
        ("/mqtt", Some("mqttv9"), 400, None),
        ("/", Some("mqtt"), 404, None),
        ("/mqtt/", Some("mqtt"), 404, None),
        ("/MQTT", Some("mqtt"), 404, None),
    ];
    let rig = Rig::new(false, true);
    for (path, offered, status, chosen) in cases {
        let client = async |mut stream: TcpStream| {
            let offered = offered.map(|names| format!("Sec-WebSocket-Protocol: {names}\r\n")).unwrap_or_default();
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offered}\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = [0; 1000];
            let count = stream.read(&mut response).await.unwrap();
            String::from_utf8_lossy(&response[..count]).to_ascii_lowercase()
        };
        let (opened, response) = rig.open(client).await;
        assert!(response.starts_with(&format!("http/1.1 {status} ")), "{path} {offered:?}: {response}");
        assert_eq!(opened.is_ok(), status == 101, "{path} {offered:?}");
        let said = response.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        assert_eq!(said, chosen, "{path} {offered:?}");
    }
}
