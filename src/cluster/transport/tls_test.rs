use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::cluster::transport::frame::Class;
use crate::cluster::transport::hello::Introduction;
use crate::cluster::transport::{Transport, link, server};
use crate::config::tls::fixture::{Ca, Identity, node_settings, put};

type Dialed = Result<(Stream, Introduction), HelloError>;
type Accepted = Result<(Stream, Introduction, Class), HelloError>;

struct Rig {
    directory: TempDir,
    ca: Ca,
}

impl Rig {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), ca: Ca::new("ca") }
    }

    fn settings(&self, name: &str, identity: &Identity) -> NodeTlsSettings {
        node_settings(self.directory.path(), name, identity, &self.ca)
    }

    /// A node whose certificate is for its name.
    fn node(&self, name: &str) -> Arc<Transport> {
        node(name, Some(self.settings(name, &self.ca.node(&[name], 1))))
    }

    /// One that is in the middle of a change.
    fn optional(&self, name: &str) -> Arc<Transport> {
        node(name, Some(NodeTlsSettings { optional: true, ..self.settings(name, &self.ca.node(&[name], 1)) }))
    }
}

fn node(name: &str, tls: Option<NodeTlsSettings>) -> Arc<Transport> {
    let tls = tls.map(|settings| Tls::load(settings).unwrap());
    Transport::new(name, &format!("{name}:7000"), 1, 1, "secret", Duration::from_secs(60), tls)
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// One node dials another. Gives what became of the last connection at the acceptor: a dialer may dial again.
async fn meet(dialer: &Transport, acceptor: &Transport) -> (Dialed, Accepted) {
    let (listener, address) = listener().await;
    let mut dialing = std::pin::pin!(link::connect(dialer, &address, Class::Consensus));
    let (mut dialed, mut accepted) = (None, None);
    loop {
        let accepting = async {
            let (stream, _) = listener.accept().await.unwrap();
            server::meet(acceptor, Stream::Tcp(stream)).await
        };
        let mut accepting = std::pin::pin!(accepting);
        loop {
            tokio::select! {
                biased;
                met = &mut accepting => {
                    accepted = Some(met);
                    break;
                }
                met = &mut dialing, if dialed.is_none() => dialed = Some(met),
                // It dials no more, and nothing it dialed is left.
                () = std::future::ready(()), if dialed.is_some() && accepted.is_some() => {
                    return (dialed.unwrap(), accepted.unwrap());
                }
            }
        }
    }
}

#[tokio::test]
async fn nodes_with_certificates_meet_and_everything_passes_both_ways() {
    let rig = Rig::new();
    let (dialed, accepted) = meet(&rig.node("a"), &rig.node("b")).await;
    let ((dialed, who), (accepted, dialer, class)) = (dialed.unwrap(), accepted.unwrap());
    assert_eq!((who.name.as_str(), dialer.name.as_str(), class), ("b", "a", Class::Consensus));
    assert!(dialed.is_encrypted() && accepted.is_encrypted());
    assert_eq!(dialed.peer_names(), Some(vec!["b".to_owned()]));

    // More than all buffers hold, in both directions at a time, as links do it.
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
    let ((mut a_read, mut a_write), (mut b_read, mut b_write)) = (dialed.into_split(), accepted.into_split());
    let (mut at_a, mut at_b) = (vec![0; sent.len()], vec![0; sent.len()]);
    let write = async |to: &mut crate::cluster::transport::socket::Writing| {
        to.write_all(&sent).await.unwrap();
        to.flush().await.unwrap();
    };
    let (a, b, (), ()) =
        tokio::join!(a_read.read_exact(&mut at_a), b_read.read_exact(&mut at_b), write(&mut a_write), write(&mut b_write));
    assert!(a.is_ok() && b.is_ok() && at_a == sent && at_b == sent);
    // The end of one side is the end of the other.
    a_write.shutdown().await.unwrap();
    assert_eq!(b_read.read(&mut [0; 8]).await.unwrap(), 0);
    assert!(b_write.discard_unsent().is_ok());
}

#[tokio::test]
async fn a_plain_node_and_one_with_tls_tell_each_other_why_they_do_not_talk() {
    let rig = Rig::new();
    let (plain, secure) = (node("a", None), rig.node("b"));
    let (dialed, accepted) = meet(&plain, &secure).await;
    assert!(matches!(dialed, Err(HelloError::RefusedByPeer(Refusal::Plain))), "{:?}", dialed.err());
    assert!(matches!(accepted, Err(HelloError::Refused(Refusal::Plain))), "{:?}", accepted.err());
    let (dialed, accepted) = meet(&secure, &plain).await;
    assert!(matches!(dialed, Err(HelloError::RefusedByPeer(Refusal::Tls))), "{:?}", dialed.err());
    assert!(matches!(accepted, Err(HelloError::Refused(Refusal::Tls))), "{:?}", accepted.err());
    for refusal in [Refusal::Plain, Refusal::Tls] {
        assert!(refusal.to_string().contains("configure <cluster><transport><tcp><tls> on all nodes"), "{refusal}");
    }
}

/// What a fault of the certificate of one end is called at each of them.
async fn both_call_it(fault: &Fault, faulty: &Transport, good: &Transport) {
    let own = |error: &HelloError| matches!(error, HelloError::OwnCertificate { fault: found } if found == fault);
    let others = |error: &HelloError| matches!(error, HelloError::Certificate { fault: found } if found == fault);
    let (dialed, accepted) = meet(faulty, good).await;
    let (dialed, accepted) = (dialed.err().unwrap(), accepted.err().unwrap());
    assert!(own(&dialed) && others(&accepted), "{fault:?} dials: {dialed} | {accepted}");
    let (dialed, accepted) = meet(good, faulty).await;
    let (dialed, accepted) = (dialed.err().unwrap(), accepted.err().unwrap());
    assert!(others(&dialed) && own(&accepted), "{fault:?} is dialed: {dialed} | {accepted}");
    assert!(dialed.to_string().starts_with("the certificate of the peer ") && dialed.to_string().contains(fault.remedy()));
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_named_at_both_ends() {
    let rig = Rig::new();
    let good = rig.node("good");
    let of = |identity: &Identity| node("bad", Some(rig.settings("bad", identity)));
    both_call_it(&Fault::Expired, &of(&rig.ca.expired_node(&["bad"])), &good).await;
    // It trusts in the others' authority, and they do not in its own.
    both_call_it(&Fault::Untrusted, &of(&Ca::new("other").node(&["bad"], 1)), &good).await;
    both_call_it(&Fault::Untrusted, &of(&Ca::new("ca").node(&["bad"], 1)), &good).await;
    both_call_it(&Fault::Use, &of(&rig.ca.server()), &good).await;
    both_call_it(&Fault::Use, &of(&rig.ca.client(None, &["bad"], 1)), &good).await;

    let mut lists = rig.settings("strict", &rig.ca.node(&["strict"], 7));
    lists.files.crls = vec![put(rig.directory.path(), "crl.pem", rig.ca.revocation_list(&[5]))];
    let strict = node("strict", Some(lists));
    assert!(meet(&good, &strict).await.0.is_ok());
    both_call_it(&Fault::Revoked, &of(&rig.ca.node(&["bad"], 5)), &strict).await;
}

#[tokio::test]
async fn a_certificate_is_for_the_name_that_the_node_says() {
    let rig = Rig::new();
    let (good, other) = (rig.node("good"), rig.settings("posing", &rig.ca.node(&["other"], 1)));
    let posing = node("posing", Some(other.clone()));
    let expected = |refusal: &Refusal| {
        let text = refusal.to_string();
        text.starts_with("the certificate of posing is for other; allowed: posing; ") && text.contains("<hostname-verification>")
    };
    let (dialed, accepted) = meet(&posing, &good).await;
    assert!(matches!(&dialed, Err(HelloError::RefusedByPeer(refusal)) if expected(refusal)), "{:?}", dialed.err());
    assert!(matches!(&accepted, Err(HelloError::Refused(refusal)) if expected(refusal)), "{:?}", accepted.err());
    let (dialed, _) = meet(&good, &posing).await;
    assert!(matches!(&dialed, Err(HelloError::Refused(refusal)) if expected(refusal)), "{:?}", dialed.err());

    // Within the domain of the nodes, also of all of them; and any, where that is wanted.
    let lax = |settings: NodeTlsSettings| NodeTlsSettings { hostname_verification: false, ..settings };
    let easy = node("easy", Some(lax(rig.settings("easy", &rig.ca.node(&["easy"], 1)))));
    assert!(meet(&easy, &node("posing", Some(lax(other)))).await.0.is_ok());
    let within = |name: &str, names: &[&str]| {
        let settings = rig.settings(name, &rig.ca.node(names, 1));
        node(name, Some(NodeTlsSettings { domains: vec!["peers".to_owned()], ..settings }))
    };
    assert!(meet(&within("b-0", &["*.peers"]), &within("b-1", &["b-1.peers"])).await.0.is_ok());
    assert!(meet(&within("b-0", &["*.peers"]), &within("b-1", &["b-2.peers"])).await.0.is_err());
    assert!(meet(&within("b-0", &["*.elsewhere"]), &within("b-1", &["b-1.peers"])).await.0.is_err());
}

#[tokio::test]
async fn in_the_middle_of_a_change_nodes_with_and_without_tls_talk() {
    let rig = Rig::new();
    let (plain, optional, strict) = (node("plain", None), rig.optional("optional"), rig.node("strict"));
    let another = rig.optional("another");
    for (dialer, acceptor, encrypted) in [
        (&plain, &optional, Some(false)),
        (&optional, &plain, Some(false)),
        (&optional, &strict, Some(true)),
        (&strict, &optional, Some(true)),
        (&optional, &another, Some(true)),
        (&plain, &strict, None),
        (&strict, &plain, None),
    ] {
        let (dialed, accepted) = meet(dialer, acceptor).await;
        let (dialed, accepted) = (dialed.ok().map(|(stream, _)| stream), accepted.ok().map(|(stream, ..)| stream));
        assert_eq!(dialed.map(|stream| stream.is_encrypted()), encrypted, "{} to {}", dialer.name, acceptor.name);
        assert_eq!(accepted.map(|stream| stream.is_encrypted()), encrypted, "{} to {}", dialer.name, acceptor.name);
    }
    // A certificate that is not good is no reason to talk without.
    let expired = rig.settings("expired", &rig.ca.expired_node(&["expired"]));
    assert!(meet(&optional, &node("expired", Some(expired))).await.0.is_err());
}

#[tokio::test]
async fn a_release_without_tls_is_dialed_without_where_that_is_allowed() {
    let rig = Rig::new();
    for (dialer, is_met) in [(rig.optional("optional"), true), (rig.node("strict"), false)] {
        let (listener, address) = listener().await;
        // It closes what does not begin like a hello, and reads none of it.
        let old = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 1];
                stream.peek(&mut head).await.unwrap();
                if head[0] != HANDSHAKE {
                    let us = node("old", None);
                    let mut stream = Stream::Tcp(stream);
                    return hello::accept(&mut stream, us.introduction(), "secret", us.versions(), |_| Ok(())).await.is_ok();
                }
                let _ = stream.shutdown().await;
            }
        };
        let dialing = link::connect(&dialer, &address, Class::Messages);
        tokio::select! {
            met = old => assert!(met && is_met),
            dialed = dialing => {
                assert!(!is_met, "{:?}", dialed.err());
                assert!(matches!(dialed, Err(HelloError::Ended(_))), "{:?}", dialed.err());
            }
        }
    }
}

#[tokio::test]
async fn who_says_nothing_or_nonsense_is_given_up() {
    let rig = Rig::new();
    let mut settings = rig.settings("a", &rig.ca.node(&["a"], 1));
    settings.files.handshake_timeout_ms = 200;
    let tls = Tls::load(settings).unwrap();
    let (listener, address) = listener().await;
    for (said, kind) in [
        (&b""[..], Some(io::ErrorKind::TimedOut)),
        (b"\x16", Some(io::ErrorKind::TimedOut)),
        (b"\x16\x03\x01", Some(io::ErrorKind::TimedOut)),
        (b"\x16\x03\x01\x00\x05\x01\xFF\xFF\xFF\xFF", None),
        (b"\x16\x03\x03\xFF\xFF\x01\x00\x00", None),
        (b"GET / HTTP/1.1\r\n\r\n", None),
    ] {
        let mut stranger = TcpStream::connect(&address).await.unwrap();
        stranger.write_all(said).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = accept(Some(&tls), Stream::Tcp(stream)).await.err().unwrap();
        if let Some(kind) = kind {
            assert!(matches!(&error, HelloError::Io(io) if io.kind() == kind), "{said:?}: {error}");
        }
    }
    // The length of a plain hello may look like the head of a handshake.
    let mut stranger = TcpStream::connect(&address).await.unwrap();
    stranger.write_all(&0x0316_u32.to_le_bytes()).await.unwrap();
    assert!(!begins_with_tls(&Stream::Tcp(listener.accept().await.unwrap().0)).await.unwrap());
    // Whoever only looks whether somebody listens is no fault.
    drop(TcpStream::connect(&address).await.unwrap());
    let error = accept(Some(&tls), Stream::Tcp(listener.accept().await.unwrap().0)).await.err().unwrap();
    assert!(matches!(error, HelloError::Io(_)), "{error}");
    // A node that is dialed and never answers.
    let dialing = TcpStream::connect(&address).await.unwrap();
    let error = tls.dial(Stream::Tcp(dialing)).await.err().unwrap();
    assert!(matches!(&error, HelloError::Io(io) if io.kind() == io::ErrorKind::TimedOut), "{error}");
}

#[tokio::test]
async fn changed_files_serve_new_connections_and_broken_ones_are_told_of_once() {
    let rig = Rig::new();
    let (a, b) = (rig.node("a"), rig.node("b"));
    let names = |dialed: &Dialed| dialed.as_ref().ok().and_then(|(stream, _)| stream.peer_names());
    let (old, old_end) = meet(&a, &b).await;
    let (mut old, mut old_end) = (old.unwrap().0, old_end.unwrap().0);
    let tls = b.tls.as_ref().unwrap();
    assert!(tls.look().is_none(), "nothing has changed");

    let renewed = rig.ca.node(&["b", "renewed"], 2);
    put(rig.directory.path(), "b.pem", renewed.pem());
    assert!(tls.look().unwrap().is_ok());
    assert!(tls.look().is_none());
    let renewed_names = Some(vec!["b".to_owned(), "renewed".to_owned()]);
    assert_eq!(names(&meet(&a, &b).await.0), renewed_names, "dialed");
    let (_, accepted) = meet(&b, &a).await;
    assert_eq!(accepted.unwrap().0.peer_names(), renewed_names, "dialing");
    old.write_all(b"x").await.unwrap();
    old.flush().await.unwrap();
    assert_eq!(old_end.read_u8().await.unwrap(), b'x', "what was there goes on");

    // Half a change, and none.
    put(rig.directory.path(), "b.pem", renewed.certificate.pem());
    assert!(tls.look().unwrap().is_err());
    assert!(tls.look().is_none());
    assert_eq!(names(&meet(&a, &b).await.0), renewed_names);
    std::fs::remove_file(rig.directory.path().join("b.pem")).unwrap();
    assert!(tls.look().unwrap().is_err());
    assert!(tls.look().is_none());

    // Another authority, first beside the old one, then in its place.
    let other = Ca::new("other");
    let both = rig.ca.certificate.pem() + &other.certificate.pem();
    for node in ["a", "b"] {
        put(rig.directory.path(), &format!("{node}-ca.pem"), &both);
    }
    put(rig.directory.path(), "b.pem", other.node(&["b"], 1).pem());
    assert!(tls.look().unwrap().is_ok() && a.tls.as_ref().unwrap().look().unwrap().is_ok());
    assert!(meet(&a, &b).await.0.is_ok() && meet(&b, &a).await.0.is_ok());
    put(rig.directory.path(), "b-ca.pem", other.certificate.pem());
    assert!(tls.look().unwrap().is_ok());
    let (dialed, accepted) = meet(&b, &a).await;
    assert!(matches!(dialed, Err(HelloError::Certificate { fault: Fault::Untrusted })), "{:?}", dialed.err());
    assert!(matches!(accepted, Err(HelloError::OwnCertificate { fault: Fault::Untrusted })), "{:?}", accepted.err());
}

#[test]
fn the_end_of_the_own_certificate_is_told() {
    let rig = Rig::new();
    let (far, past) = (rig.ca.node(&["a"], 1), rig.ca.expired_node(&["b"]));
    let now_s = i64::try_from(wall_ms() / 1_000).unwrap();
    let far = Tls::load(rig.settings("a", &far)).unwrap();
    let ends_s = far.ends_s.load(Ordering::Relaxed);
    assert!(!far.tell_end(now_s) && !far.tell_end(ends_s - ENDS_SOON_S) && far.tell_end(ends_s - ENDS_SOON_S + 1));
    assert!(far.tell_end(ends_s + 1));
    assert!(Tls::load(rig.settings("b", &past)).unwrap().tell_end(now_s));
}
