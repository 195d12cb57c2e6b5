//! Connect overload protection (spec/hivemq.md 9.10): a connection beyond the listener's rate waits unread for its turn, and is turned away at
//! once where its turn would come too late. A client that was turned away may hear why, as far as that costs little.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::connect_rate::ConnectRate;
use crate::config::settings::ConnectOverload;
use crate::mqtt::codec;
use crate::mqtt::packet::{Connack, ConnackProperties};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode};
use crate::telemetry::RateLimited;
use crate::telemetry::own::OwnMetrics;

/// How long a connection waits for its turn at most.
const HOLD_MAX: Duration = Duration::from_secs(5);
/// Connections of a listener that wait at a time, each with a socket and less than a kilobyte.
const HELD_MAX: usize = 10_000;
/// Connections of a listener that are told why at a time; others are closed without a word.
const TOLD_MAX: usize = 512;
/// How long the CONNECT of a client that is turned away is waited for, and how long and how much is read behind the answer, so that the
/// client gets it and not a reset.
const TELL_MAX: Duration = Duration::from_secs(1);
const LINGER: Duration = Duration::from_millis(300);
const LINGER_BYTES_MAX: u64 = 64 * 1024;
/// Of a CONNECT, enough to know its version.
const VERSION_BYTES: usize = 16;

static BEYOND: RateLimited = RateLimited::new(Duration::from_secs(10));

/// The protection of one listener.
#[derive(Debug)]
pub(super) struct Admission {
    listener: String,
    /// `None`: off.
    rate: Option<ConnectRate>,
    started: Instant,
    held: Arc<AtomicUsize>,
    told: Arc<AtomicUsize>,
}

/// What is to become of a connection.
pub(super) enum Admitted {
    Now,
    Later(Held),
    /// With the right to be told, where there is one.
    Never(Option<Refusal>),
}

/// A connection that waits.
pub(super) struct Held {
    wait: Duration,
    _place: Place,
}

/// A connection that is told why it is closed.
pub(super) struct Refusal {
    _place: Place,
}

impl Admission {
    pub(super) fn new(listener: String, limit: Option<ConnectOverload>) -> Self {
        let (held, told) = (Arc::default(), Arc::default());
        Self { listener, rate: limit.map(ConnectRate::new), started: Instant::now(), held, told }
    }

    /// Decides on a connection that was just accepted.
    pub(super) fn admit(&self, metrics: &OwnMetrics) -> Admitted {
        let Some(rate) = &self.rate else { return Admitted::Now };
        let place = Place::take(&self.held, HELD_MAX);
        let patience = if place.is_some() { HOLD_MAX } else { Duration::ZERO };
        match (rate.take(self.started.elapsed(), patience), place) {
            (Some(Duration::ZERO), _) => Admitted::Now,
            (Some(wait), Some(place)) => {
                metrics.connects_held_total.inc();
                let listener = &self.listener;
                crate::warn_limited!(BEYOND, listener, "connections wait for connect-overload-protection/connect-rate");
                Admitted::Later(Held { wait, _place: place })
            }
            _ => {
                metrics.connects_refused_total.inc();
                let listener = &self.listener;
                crate::warn_limited!(BEYOND, listener, "connections are closed for connect-overload-protection/connect-rate");
                Admitted::Never(Place::take(&self.told, TOLD_MAX).map(|place| Refusal { _place: place }))
            }
        }
    }
}

impl Held {
    /// Waits for the connection's turn; false where the listener stops before.
    pub(super) async fn wait(self, stop: &CancellationToken) -> bool {
        tokio::select! {
            () = actix_rt::time::sleep(self.wait) => true,
            () = stop.cancelled() => false,
        }
    }
}

impl Refusal {
    /// Answers a CONNECT of MQTT 5 with 0x9F. MQTT 3 has no code for it; what comes over TLS or WebSocket is closed before that costs more.
    pub(super) async fn tell(self, mut stream: TcpStream) {
        let answered = actix_rt::time::timeout(TELL_MAX, answer(&mut stream)).await;
        if matches!(answered, Ok(Ok(true))) {
            let read = async {
                stream.shutdown().await?;
                tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
            };
            _ = actix_rt::time::timeout(LINGER, read).await;
        }
    }
}

/// Whether the peer was sent an answer.
async fn answer(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut bytes = Vec::with_capacity(VERSION_BYTES);
    while codec::connect_version(&bytes).is_none() {
        let room = VERSION_BYTES.saturating_sub(bytes.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut bytes).await? == 0 {
            return Ok(false);
        }
    }
    if codec::connect_version(&bytes) != Some(ProtocolVersion::V5) {
        return Ok(false);
    }
    let connack = Connack {
        session_present: false,
        reason_code: ReasonCode::ConnectionRateExceeded,
        properties: ConnackProperties::default(),
    };
    let mut out = BytesMut::new();
    codec::encode(&Packet::Connack(Box::new(connack)), ProtocolVersion::V5, &mut out);
    stream.write_all(&out).await?;
    Ok(true)
}

/// One of a limited number of places, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn connections_beyond_the_rate_wait_or_are_refused_and_places_come_back() {
        let metrics = Metrics::new().unwrap();
        let admission = Admission::new("l".to_owned(), Some(ConnectOverload { rate: 1.0, burst: 3.0 }));
        let mut outcomes: Vec<_> = (0..12).map(|_| admission.admit(&metrics.own)).collect();
        let of = |outcomes: &[Admitted], kind: fn(&Admitted) -> bool| outcomes.iter().filter(|o| kind(o)).count();
        assert_eq!(of(&outcomes, |o| matches!(o, Admitted::Now)), 3);
        assert_eq!(of(&outcomes, |o| matches!(o, Admitted::Later(_))), 5);
        assert_eq!(of(&outcomes, |o| matches!(o, Admitted::Never(Some(_)))), 4);
        assert_eq!((metrics.own.connects_held_total.get(), metrics.own.connects_refused_total.get()), (5, 4));
        assert_eq!((admission.held.load(Ordering::Relaxed), admission.told.load(Ordering::Relaxed)), (5, 4));
        outcomes.clear();
        assert_eq!((admission.held.load(Ordering::Relaxed), admission.told.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn without_a_limit_everybody_comes_in() {
        let metrics = Metrics::new().unwrap();
        let admission = Admission::new("l".to_owned(), None);
        assert!((0..10_000).all(|_| matches!(admission.admit(&metrics.own), Admitted::Now)));
    }

    #[test]
    fn places_are_limited() {
        let taken = Arc::default();
        let places: Vec<_> = (0..5).map(|_| Place::take(&taken, 3)).collect();
        assert_eq!(places.iter().filter(|place| place.is_some()).count(), 3);
        drop(places);
        assert!(Place::take(&taken, 3).is_some());
    }

    /// (what the client sends, whether it is answered)
    const BEGINNINGS: &[(&[u8], bool)] = &[
        (&[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 2, b'm', b'5'], true),
        (&[0x10, 0x80, 0x80, 0x80, 0x01, 0, 4, b'M', b'Q', b'T', b'T', 5], true),
        (&[0x10, 0x0E, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 2, b'm', b'3'], false),
        (b"GET /mqtt HTTP/1.1\r\n\r\n", false),
        (&[0x16, 0x03, 0x01], false),
        (&[], false),
    ];

    #[actix_web::test]
    async fn a_client_of_mqtt_5_is_told_connection_rate_exceeded() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (beginning, answered) in BEGINNINGS {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            let taken = Arc::default();
            let refusal = Refusal { _place: Place::take(&taken, 1).unwrap() };
            let talk = async {
                client.write_all(beginning).await.unwrap();
                client.shutdown().await.unwrap();
                let mut answer = Vec::new();
                _ = client.read_to_end(&mut answer).await;
                answer
            };
            let (answer, ()) = tokio::join!(talk, refusal.tell(server));
            let expected: &[u8] = if *answered { &[0x20, 3, 0, 0x9F, 0] } else { &[] };
            assert_eq!(answer, expected, "{beginning:?}");
            assert_eq!(taken.load(Ordering::Relaxed), 0);
        }
    }
}
