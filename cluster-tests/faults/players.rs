//! Clients whose every packet is written down, and who go to any node that takes them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use troupemq::mqtt::{Packet, QoS};

use super::history::{Pen, Recorder};
use super::judge::ATTEMPT;
use super::random::Random;
use crate::harness::client::{Client, Gone, Options, Session, publish};

/// A client goes elsewhere when it is not answered for so long.
const PATIENCE: Duration = Duration::from_secs(4);
/// A client that hears nothing asks after so long.
const SILENCE: Duration = Duration::from_secs(1);
/// Unacknowledged at a time; the broker's Receive Maximum is 10.
const WINDOW: usize = 8;

/// A connection that was taken over is asked so often, and for so long, whether it is served.
const ASKS: Duration = Duration::from_millis(250);
const ASKED_FOR: Duration = Duration::from_secs(5);

/// One client id and its side of the session.
pub struct Player {
    pub id: String,
    options: Options,
    addresses: Vec<SocketAddr>,
    recorder: Recorder,
    pub random: Random,
    client: Option<(Client, Pen)>,
    session: Session,
    /// Number attempts, so that their events can be told apart.
    numbered: bool,
    /// Has a Will of its own for each attempt.
    with_will: bool,
    attempts: usize,
    /// The node that the client is connected to, or was last.
    pub place: Arc<AtomicUsize>,
}

impl Player {
    pub fn new(options: Options, addresses: Vec<SocketAddr>, recorder: &Recorder, seed: u64) -> Self {
        let id = options.client_id().to_owned();
        let salt = id.bytes().fold(seed, |salt, byte| salt.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self {
            id,
            options,
            addresses,
            recorder: recorder.clone(),
            random: Random::new(salt),
            client: None,
            session: Session::default(),
            numbered: false,
            with_will: false,
            attempts: 0,
            place: Arc::default(),
        }
    }

    /// Its events are to be judged.
    pub fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    /// It has a Will, without delay.
    pub fn with_will(mut self) -> Self {
        self.with_will = true;
        self
    }

    /// The connected client; connects where there is none, to any node, for as long as it takes.
    pub async fn client(&mut self) -> &mut Client {
        while self.client.is_none() {
            self.attempt().await;
        }
        &mut self.client.as_mut().expect("connected just now").0
    }

    /// Tries to connect, once.
    async fn attempt(&mut self) {
        let node = self.random.index(self.addresses.len());
        let pen = self.recorder.pen(&self.id);
        let mut options = self.options.clone().tapped(pen.tap()).connack_within(PATIENCE);
        if self.numbered {
            options = options.user_property(ATTEMPT, &self.attempts.to_string());
        }
        if self.with_will {
            options = options.will(&format!("wills/{}", self.id), &format!("will {}/{}", self.id, self.attempts), 0);
        }
        self.attempts += 1;
        match Client::try_resume(self.addresses[node], &options, std::mem::take(&mut self.session)).await {
            Ok(mut client) => {
                client.patience = PATIENCE;
                self.place.store(node, Ordering::Relaxed);
                self.client = Some((client, pen));
            }
            Err((_, session)) => {
                pen.dropped();
                self.session = session;
                let pause = Duration::from_millis(50 + self.random.below(150));
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Closes the socket without a word.
    pub fn drop_connection(&mut self) {
        if let Some((client, pen)) = self.client.take() {
            pen.dropped();
            self.session = client.into_session();
        }
    }

    pub async fn disconnect(&mut self) {
        if let Some((client, _)) = self.client.take() {
            self.session = client.disconnect().await;
        }
    }

    /// Leaves the connection open and connects anew; then looks whether the old one is still served.
    async fn take_over(&mut self) {
        let Some((mut old, pen)) = self.client.take() else { return };
        self.session = std::mem::take(&mut old.session);
        self.client().await;
        // Whatever comes is in the history; nothing of it is answered.
        let enough = Instant::now() + ASKED_FOR;
        while Instant::now() < enough && old.send(&Packet::Pingreq).await.is_ok() {
            let next = Instant::now() + ASKS;
            let end = loop {
                if let Err(end) = old.next_packet(next.saturating_duration_since(Instant::now())).await {
                    break end;
                }
            };
            if end != Gone::Timeout {
                break;
            }
        }
        pen.dropped();
    }

    fn unacknowledged(&self) -> usize {
        self.client.as_ref().map_or(&self.session, |(client, _)| &client.session).unacknowledged()
    }

    pub async fn subscribe(&mut self, filter: &str, qos: QoS) {
        self.client().await.subscribe(filter, qos).await;
    }

    /// Publishes numbers until told to stop, and then until all are acknowledged; how many.
    pub async fn publish_numbers(mut self, topic: String, qos: QoS, pace: Duration, stop: watch::Receiver<bool>) -> usize {
        let mut next = 0;
        let mut heard = Instant::now();
        loop {
            let enough = *stop.borrow();
            if enough && self.unacknowledged() == 0 {
                break;
            }
            let id = self.id.clone();
            let fresh = self.client.is_none();
            let client = self.client().await;
            client.session.acknowledged.clear();
            if fresh {
                heard = Instant::now();
            }
            let mut lost = false;
            if !enough && client.session.unacknowledged() < WINDOW {
                if client.session.unacknowledged() == 0 {
                    heard = Instant::now();
                }
                // Sent or not, it is in the session, and is sent again on the next connection.
                lost = client.start_publish(publish(&topic, format!("{id}/{next}").as_bytes(), qos)).await.is_err();
                next += 1;
            }
            let until = Instant::now() + pace;
            while !lost {
                match client.step(until.saturating_duration_since(Instant::now())).await {
                    Ok(()) => heard = Instant::now(),
                    Err(Gone::Timeout) => break,
                    Err(Gone::Closed(_)) => lost = true,
                }
                lost |= client.disconnect.is_some();
            }
            if lost || (heard.elapsed() > PATIENCE && self.unacknowledged() > 0) {
                self.drop_connection();
            }
        }
        self.disconnect().await;
        next
    }

    /// Takes messages until told to stop; moves about every `roam`, where there is one.
    pub async fn receive(mut self, roam: Option<Duration>, stop: watch::Receiver<bool>) {
        let mut heard = Instant::now();
        let mut asked = false;
        let mut moves_at = self.next_move(roam);
        while !*stop.borrow() {
            if self.client.is_none() {
                (heard, asked) = (Instant::now(), false);
            }
            let client = self.client().await;
            match client.step(Duration::from_millis(100)).await {
                Ok(()) => {
                    (heard, asked) = (Instant::now(), false);
                    client.session.inbox.clear();
                    if client.disconnect.is_some() {
                        self.drop_connection();
                    }
                }
                Err(Gone::Closed(_)) => self.drop_connection(),
                Err(Gone::Timeout) if heard.elapsed() > PATIENCE => self.drop_connection(),
                Err(Gone::Timeout) if heard.elapsed() > SILENCE && !asked => {
                    asked = true;
                    if client.send(&Packet::Pingreq).await.is_err() {
                        self.drop_connection();
                    }
                }
                Err(Gone::Timeout) => {}
            }
            if moves_at.is_some_and(|at| Instant::now() > at) {
                match self.random.below(3) {
                    0 => self.drop_connection(),
                    1 => self.disconnect().await,
                    _ => self.take_over().await,
                }
                moves_at = self.next_move(roam);
            }
        }
        self.disconnect().await;
    }

    fn next_move(&mut self, roam: Option<Duration>) -> Option<Instant> {
        let roam_ms = u64::try_from(roam?.as_millis()).ok()?;
        Some(Instant::now() + Duration::from_millis(roam_ms / 2 + self.random.below(roam_ms)))
    }

    /// Connects, stays a while and goes in one way or another, until told to stop.
    pub async fn come_and_go(mut self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            self.attempt().await;
            if self.client.is_none() {
                continue;
            }
            let stay = Duration::from_millis(200 + self.random.below(1_800));
            let client = self.client().await;
            let held = tokio::select! {
                held = client.try_message(stay) => held == Err(Gone::Timeout) && client.disconnect.is_none(),
                _ = stop.wait_for(|stop| *stop) => true,
            };
            match self.random.below(3) {
                _ if !held => self.drop_connection(),
                0 => self.drop_connection(),
                1 => self.take_over().await,
                _ => self.disconnect().await,
            }
        }
        self.disconnect().await;
    }
}
