//! Lets the harness's plain client speak over any transport: a relay takes its TCP connection and goes on to the broker with a PROXY
//! header, TLS and WebSocket frames as told.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// How the relay reaches the broker.
#[derive(Clone, Default)]
pub struct Way {
    /// Sent first, byte by byte where `slow`.
    pub header: Vec<u8>,
    pub slow: bool,
    pub tls: Option<TlsConnector>,
    /// Payload of a WebSocket frame; messages are split into fragments of that size. `None`: no WebSocket.
    pub fragment: Option<usize>,
}

pub trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl Way {
    /// A connection at the point where MQTT, or WebSocket frames, begin.
    pub async fn connect(&self, broker: SocketAddr) -> std::io::Result<Box<dyn Wire>> {
        let mut stream = TcpStream::connect(broker).await?;
        stream.set_nodelay(true)?;
        for chunk in self.header.chunks(if self.slow { 1 } else { usize::MAX }) {
            stream.write_all(chunk).await?;
            tokio::task::yield_now().await;
        }
        self.go_on(stream).await
    }

    /// The rest of the way, behind the header.
    pub async fn go_on(&self, stream: TcpStream) -> std::io::Result<Box<dyn Wire>> {
        let stream: Box<dyn Wire> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(ServerName::try_from("localhost").expect("a name"), stream).await?),
        };
        if self.fragment.is_none() {
            return Ok(stream);
        }
        let mut request = "ws://localhost/mqtt".into_client_request().expect("a request");
        request.headers_mut().insert("Sec-WebSocket-Protocol", "mqtt".parse().expect("a value"));
        let (socket, _) = client_async(request, stream).await.map_err(std::io::Error::other)?;
        Ok(socket.into_inner())
    }

    /// The address that a plain client connects to instead of the broker's. The relay ends with the test's runtime.
    pub async fn relay(self, broker: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let way = self.clone();
                tokio::spawn(async move {
                    // A refusal shows to the client as a closed socket.
                    if let Ok(wire) = way.connect(broker).await {
                        way.carry(client, wire).await;
                    }
                });
            }
        });
        address
    }

    async fn carry(&self, client: TcpStream, wire: Box<dyn Wire>) {
        let (from_client, mut to_client) = client.into_split();
        let (mut from_wire, mut to_wire) = split(wire);
        match self.fragment {
            None => {
                let mut from_client = from_client;
                let up = async {
                    _ = tokio::io::copy(&mut from_client, &mut to_wire).await;
                    _ = to_wire.shutdown().await;
                };
                let down = async {
                    _ = tokio::io::copy(&mut from_wire, &mut to_client).await;
                    _ = to_client.shutdown().await;
                };
                tokio::join!(up, down);
            }
            Some(fragment) => {
                let down = async {
                    _ = unframe(&mut from_wire, &mut to_client).await;
                    _ = to_client.shutdown().await;
                };
                tokio::join!(frame(from_client, to_wire, fragment), down);
            }
        }
    }
}

/// A masked frame of a client.
pub fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0xA5, 0x5A, 0x0F, 0xF0];
    let mut frame = vec![first];
    match payload.len() {
        len @ 0..=125 => frame.push(0x80 | len as u8),
        len @ 126..=0xFFFF => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().enumerate().map(|(n, byte)| byte ^ mask[n % 4]));
    frame
}

/// Each read becomes one message, in fragments, with a ping between two of them.
async fn frame(mut client: tokio::net::tcp::OwnedReadHalf, mut wire: WriteHalf<Box<dyn Wire>>, fragment: usize) {
    let mut buffer = vec![0; 1024 * 1024];
    while let Ok(count @ 1..) = client.read(&mut buffer).await {
        let parts: Vec<&[u8]> = buffer[..count].chunks(fragment).collect();
        let mut out = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let opcode = if n == 0 { 0x02 } else { 0x00 };
            let last = if n + 1 == parts.len() { 0x80 } else { 0x00 };
            out.extend(client_frame(last | opcode, part));
            if n == 0 {
                out.extend(client_frame(0x89, b"between"));
            }
        }
        if wire.write_all(&out).await.is_err() || wire.flush().await.is_err() {
            return;
        }
    }
    _ = wire.write_all(&client_frame(0x88, &1000_u16.to_be_bytes())).await;
    _ = wire.shutdown().await;
}

/// Takes the broker's frames apart until its close frame.
async fn unframe(wire: &mut ReadHalf<Box<dyn Wire>>, client: &mut tokio::net::tcp::OwnedWriteHalf) -> std::io::Result<()> {
    loop {
        let (opcode, payload) = read_frame(wire).await?;
        match opcode {
            0x2 => client.write_all(&payload).await?,
            0xA => {}
            0x8 => return Ok(()),
            other => panic!("the broker sent opcode {other}"),
        }
    }
}

/// Opcode and payload of a whole frame of the broker.
pub async fn read_frame(wire: &mut (impl AsyncRead + Unpin)) -> std::io::Result<(u8, Vec<u8>)> {
    let first = wire.read_u8().await?;
    assert_eq!(first & 0xF0, 0x80, "whole, nothing reserved");
    let len = match wire.read_u8().await? {
        126 => u64::from(wire.read_u16().await?),
        127 => wire.read_u64().await?,
        len => u64::from(len),
    };
    let mut payload = vec![0; len as usize];
    wire.read_exact(&mut payload).await?;
    Ok((first & 0x0F, payload))
}
