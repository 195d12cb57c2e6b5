//! Accepting peers: their calls are executed and answered, their messages handed on.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cluster::node_id;
use crate::cluster::peer_message::PeerMessage;

use super::bulk::{Assembly, invalid};
use super::frame::{Class, Inbound, Outbound, frame, read_frame};
use super::hello::{self, HelloError, Introduction, Refusal};
use super::link::HELLO_TIMEOUT;
use super::peer::Peer;
use super::socket::{Listener, Stream};
use super::{Receiver, Transport, relay, tls};

/// Connections that have not proved themselves yet, TLS handshakes included. With one more the oldest goes: who knows the secret needs two round trips,
/// three or four with TLS, so that connections that only stand there keep no peer out.
const STRANGERS_MAX: usize = 64;
/// Calls of one peer being executed; more wait in the socket.
const CALLS_MAX: usize = 256;
/// Answers waiting to be written to one peer.
const ANSWERS_MAX: usize = 1024;
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// A process heard within this time, three pings, is there: another one under its name is a mistake.
const THERE_MS: u64 = 1_500;

pub(super) async fn serve(transport: Arc<Transport>, listener: Listener) {
    let strangers = Arc::<Mutex<Strangers>>::default();
    let cancel = transport.cancel.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, or a connection that ended before it was accepted: both pass.
                tracing::warn!(%error, "cannot accept a peer");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let stranger = Stranger::enter(&strangers);
        let transport = Arc::clone(&transport);
        let cancel = cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = serve_peer(&transport, stream, address, stranger) => {}
            }
        });
    }
}

#[derive(Default)]
struct Strangers {
    entered: u64,
    /// By when they came.
    here: BTreeMap<u64, CancellationToken>,
}

/// One of them, until dropped.
struct Stranger {
    number: u64,
    goes: CancellationToken,
    among: Arc<Mutex<Strangers>>,
}

impl Stranger {
    fn enter(among: &Arc<Mutex<Strangers>>) -> Self {
        let mut strangers = among.lock();
        while strangers.here.len() >= STRANGERS_MAX
            && let Some((_, oldest)) = strangers.here.pop_first()
        {
            oldest.cancel();
        }
        strangers.entered += 1;
        let (number, goes) = (strangers.entered, CancellationToken::new());
        strangers.here.insert(number, goes.clone());
        Self { number, goes, among: Arc::clone(among) }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.among.lock().here.remove(&self.number);
    }
}

async fn serve_peer(transport: &Arc<Transport>, stream: Stream, address: SocketAddr, stranger: Stranger) {
    let _ = stream.set_nodelay();
    let result = tokio::select! {
        biased;
        () = stranger.goes.cancelled() => return,
        met = meet(transport, stream) => met,
    };
    drop(stranger);
    let (stream, who, class) = match result {
        Ok(met) => met,
        Err(HelloError::Refused(Refusal::Itself)) => return,
        Err(error) => {
            transport.log_refusal(&address.ip().to_string(), Some(address), &error);
            return;
        }
    };
    if class == Class::Relay {
        if let Err(error) = relay::serve(transport, stream).await {
            tracing::debug!(peer = who.name, %error, "no bytes of a peer are passed on any more");
        }
        return;
    }
    transport.ensure_peer(&who.name, &who.address);
    let (Some(peer), Some(receiver)) = (transport.peer(node_id(&who.name)), transport.receiver.get()) else { return };
    let process = who.process;
    peer.met(who);
    peer.dialed_in.fetch_add(1, Ordering::Relaxed);
    let ended = serve_frames(transport, &peer, process, receiver, stream).await;
    peer.dialed_in.fetch_sub(1, Ordering::Relaxed);
    let reason = ended.err().map_or_else(String::new, |e| e.to_string());
    tracing::debug!(peer = peer.name, ?class, reason, "connection of a peer ended");
    if class == Class::Consensus {
        receiver.link_down(peer.id);
    }
}

/// Shakes hands, where this node has TLS, and answers the hello.
pub(super) async fn meet(transport: &Transport, stream: Stream) -> Result<(Stream, Introduction, Class), HelloError> {
    let mut stream = tls::accept(transport.tls.as_deref(), stream).await?;
    let names = stream.peer_names();
    let hello = hello::accept(&mut stream, transport.introduction(), &transport.secret, transport.versions(), |who| {
        admit(transport, who)?;
        transport.check_name(names.as_deref(), &who.name)
    });
    let (who, class) = timeout(HELLO_TIMEOUT, hello).await.map_err(io::Error::from)?.map_err(tls::told)?;
    Ok((stream, who, class))
}

/// How long one message may hold up the next while this node is pressed.
const PRESSED_LOOK: Duration = Duration::from_millis(1);
const PRESSED_LOOKS_MAX: u32 = 20;

/// Whether a peer that knows the secret belongs here.
fn admit(transport: &Transport, who: &Introduction) -> Result<(), Refusal> {
    if who.process == transport.process {
        return Err(Refusal::Itself);
    }
    let clash = || Refusal::NameClash { name: who.name.clone() };
    if who.name == transport.name {
        return Err(clash());
    }
    if who.shards != transport.shards {
        return Err(Refusal::Shards { dialer: who.shards, acceptor: transport.shards });
    }
    if let (Some(dialer), Some(acceptor)) = (&who.cluster_id, &*transport.cluster_id.read())
        && dialer != acceptor
    {
        return Err(Refusal::ClusterId { dialer: dialer.clone(), acceptor: acceptor.clone() });
    }
    // A process that ended took its connections with it, or fell silent: one that is still heard is another node of that name.
    if let Some(peer) = transport.peer(node_id(&who.name)) {
        let another = peer.name != who.name || peer.who().is_some_and(|known| known.process != who.process);
        if another && peer.is_there(THERE_MS) {
            return Err(clash());
        }
    }
    Ok(())
}

async fn serve_frames(
    transport: &Transport,
    peer: &Peer,
    process: u64,
    receiver: &Arc<dyn Receiver>,
    stream: Stream,
) -> io::Result<()> {
    let (read, write) = stream.into_split();
    let (answers, queue) = mpsc::channel(ANSWERS_MAX);
    tokio::select! {
        biased;
        ended = read_frames(transport, peer, process, receiver, BufReader::with_capacity(64 * 1024, read), answers) => ended,
        ended = write_answers(queue, write) => ended,
    }
}

async fn read_frames(
    transport: &Transport,
    peer: &Peer,
    process: u64,
    receiver: &Arc<dyn Receiver>,
    mut read: impl tokio::io::AsyncRead + Unpin,
    answers: mpsc::Sender<Inbound>,
) -> io::Result<()> {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let mut assembly = None;
    let mut turn = None;
    loop {
        let outbound = timeout(transport.silence, read_frame(&mut read))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer is silent"))??;
        peer.heard();
        if turn.is_some_and(|turn| !peer.is_newest(turn)) {
            return Err(followed());
        }
        match outbound {
            Outbound::Call { id, group, request } => {
                let Ok(permit) = Arc::clone(&calls).acquire_owned().await else { return Ok(()) };
                let mut answer = receiver.call(peer.id, group, request);
                // Polled once here, it is in its group's queue before the next: several appends of one group may be on their way.
                let answered = (&mut answer).now_or_never();
                let answers = answers.clone();
                tokio::spawn(async move {
                    let response = match answered {
                        Some(response) => response,
                        None => answer.await,
                    };
                    drop(permit);
                    let _ = answers.send(Inbound::Answer { id, response }).await;
                });
            }
            Outbound::Message(message) => take_message(peer, receiver, message).await,
            Outbound::Large { message, bytes } => assembly = Some(Assembly::begin(message, bytes)?),
            Outbound::Piece(piece) => {
                let begun = assembly.take().ok_or_else(|| invalid("a piece of no payload"))?;
                match begun.take(&piece)? {
                    Ok(message) => take_message(peer, receiver, message).await,
                    Err(unfinished) => assembly = Some(unfinished),
                }
            }
            Outbound::Control(control) => receiver.control(peer.id, control),
            Outbound::Progress(progress) => receiver.progress(peer.id, progress),
            Outbound::Turn(number) => {
                let own = (process, number);
                if !peer.takes_over(own) {
                    return Err(followed());
                }
                turn = Some(own);
            }
            Outbound::Ping => {
                // A full queue of answers tells the peer as much as a pong.
                let _ = answers.try_send(Inbound::Pong);
            }
        }
    }
}

/// A message on it would come behind later ones.
fn followed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the peer has dialed another since")
}

async fn take_message(peer: &Peer, receiver: &Arc<dyn Receiver>, message: PeerMessage) {
    receiver.message(peer.id, message);
    // Bounded, since the same connection brings commands for shards.
    let mut looks = 0;
    while receiver.pressed() && looks < PRESSED_LOOKS_MAX {
        looks += 1;
        tokio::time::sleep(PRESSED_LOOK).await;
    }
}

async fn write_answers(mut queue: mpsc::Receiver<Inbound>, write: impl tokio::io::AsyncWrite + Unpin) -> io::Result<()> {
    let mut write = BufWriter::with_capacity(16 * 1024, write);
    let mut answers = Vec::with_capacity(64);
    while queue.recv_many(&mut answers, 64).await > 0 {
        for answer in answers.drain(..) {
            write.write_all(&frame(&answer)?).await?;
        }
        write.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use tokio::io::DuplexStream;

    use super::*;
    use crate::cluster::control::Control;
    use crate::cluster::raft::rpc::{Request, Response};
    use crate::cluster::transport::frame::write_frame;
    use crate::cluster::visibility::Progress;
    use crate::replica::NodeId;

    /// Notes the tickets of what comes.
    #[derive(Default)]
    struct Tickets(Mutex<Vec<u64>>);

    impl Receiver for Tickets {
        fn call(&self, _: NodeId, _: u16, _: Request) -> BoxFuture<'static, Response> {
            Box::pin(std::future::pending())
        }
        fn message(&self, _: NodeId, message: PeerMessage) {
            if let PeerMessage::Settled { ticket } = message {
                self.0.lock().push(ticket);
            }
        }
        fn control(&self, _: NodeId, _: Control) {}
        fn progress(&self, _: NodeId, _: Progress) {}
        fn link_up(&self, _: NodeId) {}
        fn link_down(&self, _: NodeId) {}
    }

    async fn say(to: &mut DuplexStream, what: Outbound) {
        write_frame(to, &what).await.unwrap();
    }

    #[tokio::test]
    async fn what_a_connection_brings_after_the_one_that_followed_it_is_not_taken() {
        let transport = Transport::new("a", "a:1", 1, 1, "", Duration::from_secs(60), None);
        let peer = Peer::new(2, "b", "b:1");
        let tickets = Arc::<Tickets>::default();
        let receiver: Arc<dyn Receiver> = tickets.clone();
        let (mut old, old_end) = tokio::io::duplex(1024);
        let (mut new, new_end) = tokio::io::duplex(1024);
        let (answers, _kept) = mpsc::channel(8);
        let mut old_read = std::pin::pin!(read_frames(&transport, &peer, 5, &receiver, old_end, answers.clone()));
        let mut new_read = std::pin::pin!(read_frames(&transport, &peer, 5, &receiver, new_end, answers));
        let settled = |ticket| Outbound::Message(PeerMessage::Settled { ticket });
        say(&mut old, Outbound::Turn(1)).await;
        say(&mut old, settled(1)).await;
        assert!((&mut old_read).now_or_never().is_none());
        say(&mut new, Outbound::Turn(2)).await;
        say(&mut new, settled(3)).await;
        assert!((&mut new_read).now_or_never().is_none());
        say(&mut old, settled(2)).await;
        assert!(old_read.await.is_err());
        say(&mut new, settled(4)).await;
        assert!(new_read.now_or_never().is_none());
        assert_eq!(*tickets.0.lock(), [1, 3, 4]);
    }

    #[test]
    fn strangers_that_only_stand_there_keep_nobody_out() {
        let among = Arc::<Mutex<Strangers>>::default();
        let mut here: Vec<Stranger> = (0..STRANGERS_MAX).map(|_| Stranger::enter(&among)).collect();
        assert!(here.iter().all(|stranger| !stranger.goes.is_cancelled()));
        drop(here.remove(5));
        here.push(Stranger::enter(&among));
        assert!(!here[0].goes.is_cancelled(), "there was room");
        let newest = Stranger::enter(&among);
        assert!(here[0].goes.is_cancelled() && !here[1].goes.is_cancelled() && !newest.goes.is_cancelled());
        drop(here);
        assert_eq!(among.lock().here.len(), 1);
    }
}
