//! The first exchange on a peer connection: who is there, and that both know the cluster's secret.
//!
//! ```text
//! dialer                                   acceptor
//!   Hello{who, class, nonce}       ->
//!                                  <-      Challenge{who, nonce} | Refused
//!   Proof{mac of both, "dialer"}   ->
//!                                  <-      Welcome{mac of both, "acceptor"} | Refused
//! ```
//!
//! The secret itself never travels; the nonces make each proof good for one connection, the role words keep a proof from being
//! played back to its maker. The dialer proves itself first, so a stranger learns nothing made with the secret.

use std::io;

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls;

use crate::cluster::chance;
use crate::cluster::raft::codec::encode;
use crate::config::tls::Fault;
use crate::replica::Incarnation;

use super::frame::{Class, read_hello_frame, write_frame};

/// Protocol versions this program speaks. 2: large payloads in pieces, and commands in parts; a node of version 1 could not apply them.
/// 3: more `Control` messages, see there; the cluster's level (`versions`).
pub const VERSION_MIN: u16 = 2;
pub const VERSION_MAX: u16 = 3;

/// Who a node says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    pub name: String,
    /// `host:port` others reach it at.
    pub address: String,
    pub incarnation: Incarnation,
    pub cluster_id: Option<String>,
    /// Drawn when the process started: tells a node that dialed itself from one that took its name.
    pub process: u64,
    /// Fixed when the cluster is founded: a client's shard is a function of it.
    pub shards: u16,
    /// The protocol version that both ends of the connection speak; each works it out for itself.
    #[serde(skip)]
    pub version: u16,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    version_min: u16,
    version_max: u16,
    class: Class,
    who: Introduction,
    nonce: [u8; 32],
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Challenge {
    Challenge { version: u16, who: Introduction, nonce: [u8; 32] },
    Refused(Refusal),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Proof {
    mac: [u8; 32],
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Verdict {
    Welcome { mac: [u8; 32] },
    Refused(Refusal),
}

/// Why two nodes do not talk; both log it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error(
        "protocol versions {theirs_min}..={theirs_max} and {ours_min}..={ours_max} have none in common: the cluster uses what one of the \
         programs does not know; start the newer program"
    )]
    Version { theirs_min: u16, theirs_max: u16, ours_min: u16, ours_max: u16 },
    #[error("the cluster secrets differ")]
    Secret,
    #[error("the dialer belongs to cluster {dialer}, the acceptor to cluster {acceptor}")]
    ClusterId { dialer: String, acceptor: String },
    #[error("the name {name} is used by another running node; give every node a <node-name> of its own")]
    NameClash { name: String },
    #[error(
        "the dialer has {dialer} shards, the acceptor has {acceptor}; give all nodes the same <shards>, that of those that have data"
    )]
    Shards { dialer: u16, acceptor: u16 },
    #[error("a node dialed itself")]
    Itself,
    // Those below came with TLS: told to nodes that know it, or by other means.
    #[error(
        "the dialer talks without TLS, and the acceptor to nothing else; configure <cluster><transport><tcp><tls> on all nodes, or on none"
    )]
    Plain,
    #[error(
        "the dialer talks TLS, and the acceptor is configured without; configure <cluster><transport><tcp><tls> on all nodes, or on none"
    )]
    Tls,
    #[error(
        "the certificate of {name} is for {found}; allowed: {allowed}; have one made with such a DNS name, or set <hostname-verification> \
         to false on all nodes"
    )]
    Name { name: String, found: String, allowed: String },
}

/// Why an exchange came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// As a node without TLS does that knows nothing of it, or one that ends.
    #[error("the connection ended in the TLS handshake: {0}")]
    Ended(io::Error),
    #[error("the certificate of the peer {fault}; at the peer, {}", .fault.remedy())]
    Certificate { fault: Fault },
    #[error("the peer refuses the certificate of this node: it {fault}; {}", .fault.remedy())]
    OwnCertificate { fault: Fault },
    #[error("no TLS comes about: {0}")]
    Tls(rustls::Error),
    #[error("refused by the peer: {0}")]
    RefusedByPeer(Refusal),
    #[error("refused: {0}")]
    Refused(Refusal),
}

/// Dials: returns who answered.
pub async fn dial<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    us: Introduction,
    class: Class,
    secret: &str,
    versions: Versions,
) -> Result<Introduction, HelloError> {
    let hello = Hello { version_min: versions.min, version_max: versions.max, class, who: us, nonce: chance::random() };
    write_frame(stream, &hello).await?;
    let (version, who, nonce) = match read_hello_frame(stream).await? {
        Challenge::Challenge { version, who, nonce } => (version, who, nonce),
        Challenge::Refused(refusal) => return Err(HelloError::RefusedByPeer(refusal)),
    };
    if !(versions.min..=versions.max).contains(&version) {
        return Err(HelloError::Refused(versions.refusal(version, version)));
    }
    let transcript = transcript(&hello, version, &who, &nonce)?;
    write_frame(stream, &Proof { mac: mac_bytes(secret, "dialer", &transcript) }).await?;
    match read_hello_frame(stream).await? {
        Verdict::Welcome { mac } if verify(secret, "acceptor", &transcript, &mac) => Ok(Introduction { version, ..who }),
        Verdict::Welcome { .. } => Err(HelloError::Refused(Refusal::Secret)),
        Verdict::Refused(refusal) => Err(HelloError::RefusedByPeer(refusal)),
    }
}

/// Accepts: returns who dialed and for what. `admit` has the last word on a peer that proved itself.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    us: Introduction,
    secret: &str,
    versions: Versions,
    admit: impl FnOnce(&Introduction) -> Result<(), Refusal>,
) -> Result<(Introduction, Class), HelloError> {
    let hello: Hello = read_hello_frame(stream).await?;
    let Some(version) = versions.common(&hello) else {
        let refusal = versions.refusal(hello.version_min, hello.version_max);
        write_frame(stream, &Challenge::Refused(refusal.clone())).await?;
        return Err(HelloError::Refused(refusal));
    };
    let nonce: [u8; 32] = chance::random();
    let transcript = transcript(&hello, version, &us, &nonce)?;
    write_frame(stream, &Challenge::Challenge { version, who: us, nonce }).await?;
    let proof: Proof = read_hello_frame(stream).await?;
    let verdict = if verify(secret, "dialer", &transcript, &proof.mac) { admit(&hello.who) } else { Err(Refusal::Secret) };
    match verdict {
        Ok(()) => {
            write_frame(stream, &Verdict::Welcome { mac: mac_bytes(secret, "acceptor", &transcript) }).await?;
            Ok((Introduction { version, ..hello.who }, hello.class))
        }
        Err(refusal) => {
            write_frame(stream, &Verdict::Refused(refusal.clone())).await?;
            Err(HelloError::Refused(refusal))
        }
    }
}

/// Tells a dialer that it is refused, before it has said who it is.
pub async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, refusal: Refusal) -> io::Result<()> {
    write_frame(stream, &Challenge::Refused(refusal)).await
}

/// The protocol versions a node speaks: the lowest rises with the cluster's level.
#[derive(Debug, Clone, Copy)]
pub struct Versions {
    pub min: u16,
    pub max: u16,
}

impl Versions {
    /// The newest that both know.
    fn common(self, hello: &Hello) -> Option<u16> {
        let version = hello.version_max.min(self.max);
        (version >= hello.version_min.max(self.min)).then_some(version)
    }

    fn refusal(self, theirs_min: u16, theirs_max: u16) -> Refusal {
        Refusal::Version { theirs_min, theirs_max, ours_min: self.min, ours_max: self.max }
    }
}

fn transcript(hello: &Hello, version: u16, acceptor: &Introduction, nonce: &[u8; 32]) -> io::Result<Vec<u8>> {
    encode(&(hello, version, acceptor, nonce))
}

fn keyed(secret: &str, role: &str, transcript: &[u8]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).ok()?;
    mac.update(role.as_bytes());
    mac.update(&[0]);
    mac.update(transcript);
    Some(mac)
}

fn mac_bytes(secret: &str, role: &str, transcript: &[u8]) -> [u8; 32] {
    keyed(secret, role, transcript).map_or([0; 32], |mac| mac.finalize().into_bytes().into())
}

/// Compares in constant time.
fn verify(secret: &str, role: &str, transcript: &[u8], mac: &[u8; 32]) -> bool {
    keyed(secret, role, transcript).is_some_and(|expected| expected.verify_slice(mac).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Versions = Versions { min: VERSION_MIN, max: VERSION_MAX };

    fn who(name: &str) -> Introduction {
        Introduction {
            name: name.into(),
            address: format!("{name}:1"),
            incarnation: 1,
            cluster_id: None,
            process: 1,
            shards: 6,
            version: 0,
        }
    }

    async fn exchange(
        dialer_secret: &str,
        acceptor_secret: &str,
        admit: Result<(), Refusal>,
    ) -> (Result<Introduction, HelloError>, Result<(Introduction, Class), HelloError>) {
        let (mut a, mut b) = tokio::io::duplex(16 * 1024);
        tokio::join!(
            dial(&mut a, who("a"), Class::Messages, dialer_secret, ALL),
            accept(&mut b, who("b"), acceptor_secret, ALL, |_| admit),
        )
    }

    #[tokio::test]
    async fn nodes_with_one_secret_learn_each_other() {
        let (dialer, acceptor) = exchange("s", "s", Ok(())).await;
        let met = |name| Introduction { version: VERSION_MAX, ..who(name) };
        assert_eq!(dialer.unwrap(), met("b"));
        assert_eq!(acceptor.unwrap(), (met("a"), Class::Messages));
    }

    #[tokio::test]
    async fn another_secret_is_refused_with_the_reason_on_both_sides() {
        let (dialer, acceptor) = exchange("s", "t", Ok(())).await;
        assert!(matches!(dialer, Err(HelloError::RefusedByPeer(Refusal::Secret))));
        assert!(matches!(acceptor, Err(HelloError::Refused(Refusal::Secret))));
    }

    #[tokio::test]
    async fn a_refusal_of_the_acceptor_reaches_the_dialer() {
        let clash = Refusal::NameClash { name: "a".into() };
        let (dialer, _) = exchange("s", "s", Err(clash.clone())).await;
        assert!(matches!(dialer, Err(HelloError::RefusedByPeer(reason)) if reason == clash));
    }

    #[tokio::test]
    async fn an_acceptor_without_the_secret_cannot_pose() {
        let (mut a, mut b) = tokio::io::duplex(16 * 1024);
        let impostor = async {
            let _: Hello = read_hello_frame(&mut b).await.unwrap();
            let challenge = Challenge::Challenge { version: VERSION_MAX, who: who("b"), nonce: [0; 32] };
            write_frame(&mut b, &challenge).await.unwrap();
            let proof: Proof = read_hello_frame(&mut b).await.unwrap();
            write_frame(&mut b, &Verdict::Welcome { mac: proof.mac }).await.unwrap();
        };
        let (dialer, ()) = tokio::join!(dial(&mut a, who("a"), Class::Consensus, "s", ALL), impostor);
        assert!(matches!(dialer, Err(HelloError::Refused(Refusal::Secret))));
    }

    #[test]
    fn versions_must_overlap() {
        let hello =
            |min, max| Hello { version_min: min, version_max: max, class: Class::Messages, who: who("a"), nonce: [0; 32] };
        assert_eq!(ALL.common(&hello(1, 9)), Some(VERSION_MAX));
        assert_eq!(ALL.common(&hello(VERSION_MAX + 1, 9)), None);
        assert_eq!(ALL.common(&hello(1, VERSION_MIN - 1)), None);
        assert_eq!(ALL.common(&hello(0, 0)), None);
        // The newest both know, between an older and a newer one, in either role; none below the cluster's level.
        let (older, newer) = (Versions { min: 2, max: 2 }, Versions { min: 2, max: 7 });
        assert_eq!((older.common(&hello(2, 7)), newer.common(&hello(2, 2))), (Some(2), Some(2)));
        assert_eq!(Versions { min: 3, max: 7 }.common(&hello(2, 2)), None);
    }

    #[tokio::test]
    async fn the_version_in_common_is_known_to_both_and_none_in_common_is_told_to_both() {
        for (dialer, acceptor, common) in
            [((2, 3), (2, 2), Some(2)), ((2, 2), (2, 3), Some(2)), ((2, 9), (3, 8), Some(8)), ((2, 2), (3, 3), None)]
        {
            let of = |(min, max)| Versions { min, max };
            let (mut a, mut b) = tokio::io::duplex(16 * 1024);
            let (dialed, accepted) = tokio::join!(
                dial(&mut a, who("a"), Class::Messages, "s", of(dialer)),
                accept(&mut b, who("b"), "s", of(acceptor), |_| Ok(())),
            );
            assert_eq!(dialed.as_ref().ok().map(|who| who.version), common);
            assert_eq!(accepted.as_ref().ok().map(|(who, _)| who.version), common);
            if common.is_none() {
                assert!(matches!(dialed, Err(HelloError::RefusedByPeer(Refusal::Version { ours_min: 3, theirs_max: 2, .. }))));
                assert!(matches!(accepted, Err(HelloError::Refused(Refusal::Version { .. }))));
            }
        }
    }
}
