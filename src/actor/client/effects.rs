//! Runs the machine's effects.

use std::cell::RefCell;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::Context;

use crate::cluster::{Lane, SubmitError};
use crate::mqtt::{Delivery, QoS, ReasonCode, Source, SubscriptionIds};
use crate::replica::command::{QueueStep, SubscriptionRecord, TakeOver, WillRecord};
use crate::replica::event::Outcome;
use crate::replica::{Command, ConnectCommand, ConnectionRef};
use crate::session::{AckOutcome, Effect, End, Registered, Registration, Subscription, Ticket};
use crate::signal::{ConnectionFacts, DropReason, Initiator, Receiver, TlsNames};
use crate::telemetry::RateLimited;

use super::super::endings::{Claim, NotRegistered, Registering};
use super::super::hub::Grant;
use super::super::publish::{self, Published};
use super::super::queue::QueueItem;
use super::super::retained::{self, Retained};
use super::super::{clock, endings, retaining, settle, shared_subscription};
use super::{Client, Identity, recheck};

/// What is done with an answer.
type Continuation = Box<dyn FnOnce(&mut Client, &mut Context<Client>)>;
/// A question to the outside.
pub(super) type Deferred = Pin<Box<dyn Future<Output = Continuation>>>;

static NEAR_LIMIT: RateLimited = RateLimited::new(Duration::from_secs(10));

/// The client id of a client that sent none (spec/hivemq.md 9.3): unique, since the connection is.
pub(super) fn assigned_client_id(connection: ConnectionRef) -> String {
    format!("tmq_{:x}_{:x}_{:x}", connection.node & 0xFFFF_FFFF, connection.incarnation, connection.connection)
}

thread_local! {
    /// The node's address that a client came in by last: nearly all come in by the same, whose text they share.
    static NODE_IP: RefCell<Option<(IpAddr, Arc<str>)>> = const { RefCell::new(None) };
}

fn text_of_node_ip(ip: IpAddr) -> Arc<str> {
    NODE_IP.with_borrow_mut(|known| match known {
        Some((of, text)) if *of == ip => text.clone(),
        _ => known.insert((ip, ip.to_string().into())).1.clone(),
    })
}

impl Client {
    /// Runs effects until there are none, then hands on what they gathered.
    pub(super) fn run_effects(&mut self, ctx: &mut Context<Self>) {
        loop {
            while !self.effects.is_empty() {
                for effect in std::mem::take(&mut self.effects) {
                    self.run(effect, ctx);
                }
            }
            self.deliver_held();
            if self.effects.is_empty() {
                break;
            }
        }
        self.submit_steps(ctx);
        if self.completed > 0 {
            let completed = std::mem::take(&mut self.completed);
            self.local.post_existing(self.connection.connection, QueueItem::Completed(completed as usize));
        }
        if self.effects.capacity() > 64 {
            self.effects = Vec::new();
        }
    }

    /// Goes on with `then` when the future has an answer. Answers are taken in the order of their questions, so that acknowledgements leave in
    /// the order the packets came [MQTT-4.6.0-2] to [MQTT-4.6.0-4].
    pub(super) fn defer<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
        then: impl FnOnce(T, &mut Self, &mut Context<Self>) + 'static,
    ) {
        self.deferred.get_mut().push_back(Box::pin(async move {
            let answer = future.await;
            Box::new(move |client: &mut Self, ctx: &mut Context<Self>| then(answer, client, ctx)) as Continuation
        }));
    }

    /// The same for a question that another's answer led to, and whose answer takes the place of that.
    pub(super) fn defer_first<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
        then: impl FnOnce(T, &mut Self, &mut Context<Self>) + 'static,
    ) {
        self.defer(future, then);
        self.deferred.get_mut().rotate_right(1);
    }

    /// Goes on with every question that is answered and has none unanswered before it.
    pub(super) fn poll_deferred(&mut self, ctx: &mut Context<Self>, cx: &mut TaskContext<'_>) {
        while let Some(deferred) = self.deferred.existing()
            && let Some(front) = deferred.front_mut()
        {
            let Poll::Ready(go_on) = front.as_mut().poll(cx) else { break };
            deferred.pop_front();
            if deferred.is_empty() && (deferred.capacity() > 32 || !self.counted) {
                // Many connections never have another question.
                self.deferred.clear();
            }
            go_on(self, ctx);
        }
    }

    fn run(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Send(packet) => self.write(&packet),
            Effect::Authenticate(evidence) => self.authenticate(*evidence),
            Effect::Register(registration) => self.register(*registration),
            Effect::Publish { ticket, message, receive } => self.publish(ticket, *message, receive),
            Effect::Release { ticket, packet_id } => self.release(ticket, packet_id),
            Effect::Subscribe { ticket, subscriptions } => self.subscribe(ticket, subscriptions),
            Effect::Unsubscribe { ticket, filters } => self.unsubscribe(ticket, filters),
            Effect::Acknowledge { source, outcome } => self.acknowledge(source, outcome),
            Effect::Dropped { delivery, reason } => self.not_delivered(&delivery, QueueStep::Dropped(reason)),
            Effect::NotSent(packet) => self.record_not_sent(packet),
            Effect::Expired { delivery } => self.not_delivered(&delivery, QueueStep::Expired),
            Effect::End(end) => {
                // What the client acknowledged before it went counts.
                self.submit_steps(ctx);
                self.end(end);
            }
            Effect::Close => {
                self.closing = true;
                self.record_end();
            }
        }
    }

    fn register(&mut self, registration: Registration) {
        let node = Arc::clone(self.local.node());
        if let Some(code) = self.refuse_at_limit() {
            self.machine.handle_registered(Err(code), self.now, &mut self.effects);
            return;
        }
        let Some(cluster) = node.cluster().filter(|_| node.accepts_clients()) else {
            self.machine.handle_registered(Err(ReasonCode::ServerUnavailable), self.now, &mut self.effects);
            return;
        };
        // The incarnation may be newer than at accept.
        if self.connection.incarnation != cluster.incarnation() {
            self.machine.handle_registered(Err(ReasonCode::ServerUnavailable), self.now, &mut self.effects);
            return;
        }
        let identity = self.identity_of(&registration);
        let window = registration.send_window;
        let (clean_start, expiry_s) = (registration.clean_start, registration.session_expiry_interval_s);
        let command = Arc::new(self.connect_command(registration, &identity));
        let (connected, minority) = (settle::connect(Arc::clone(&node), identity.shard, command, window), cluster.minority());
        let (withdrawn_from, shard, connection) = (cluster.clone(), identity.shard, self.connection);
        let submitted = async move {
            tokio::select! {
                biased;
                outcome = connected => outcome,
                // Nobody could say for long whether it is registered: the client is to try another node, and is told nothing.
                () = minority => {
                    let withdrawn = withdrawn_from.withdraw_connect(shard, connection);
                    Err(if withdrawn { SubmitError::Unavailable } else { SubmitError::Unknown })
                }
            }
        };
        let (connection, ending) = (self.connection, identity.clone());
        let principal = Arc::clone(&self.principal);
        let (owner, registered) = (identity.clone(), Registering::new(Arc::clone(&node), ending, connection, submitted));
        let outcome = async move {
            let claim = registered.await?;
            if !claim.session_present() {
                return Ok((claim, Vec::new()));
            }
            let forbidden = recheck::look(&node, &owner, &principal);
            // Unclaimed, the registration is undone.
            let withdrawn = recheck::withdraw(node, owner, connection, forbidden).await;
            Ok((claim, withdrawn.map_err(|_| NotRegistered::Refused(ReasonCode::ServerBusy))?))
        };
        self.identity = Some(identity);
        self.defer(outcome, move |outcome, client, ctx| {
            let outcome = outcome.map(|(claim, withdrawn)| {
                client.take_away(withdrawn);
                claim
            });
            client.registered(outcome, ctx);
            if client.counted {
                client.record_connected(clean_start, expiry_s);
                if client.closing {
                    // By what it sent behind its CONNECT.
                    client.record_end();
                }
            }
            if client.part_with_assigned() {
                client.run_effects(ctx);
            }
        });
    }

    /// `restrictions/max-connections` (spec/hivemq.md 1.6, 9.1): 0x97 above it, a warning from 90 % on.
    pub(super) fn refuse_at_limit(&self) -> Option<ReasonCode> {
        let node = self.local.node();
        let (max, open) = (node.settings.max_connections?, node.connections.load(Ordering::Relaxed));
        if open.saturating_mul(10) >= max.saturating_mul(9) {
            crate::warn_limited!(NEAR_LIMIT, open, max, "connections are near or above restrictions/max-connections");
        }
        (open > max).then_some(ReasonCode::QuotaExceeded)
    }

    fn identity_of(&self, registration: &Registration) -> Identity {
        let certificate = self.accepted.certificate.as_deref();
        let facts = ConnectionFacts {
            client_id: registration.client_id.clone(),
            client_id_assigned: registration.client_id_assigned,
            client_ip: self.accepted.peer_ip.map(|ip| ip.to_canonical().to_string().into()),
            node_ip: self.accepted.local.map(|ip| text_of_node_ip(ip.to_canonical())),
            listener_port: Some(self.accepted.listener_port),
            secure: self.accepted.secure,
            protocol: registration.protocol,
            username: registration.username.as_deref().map(Arc::from),
            tls: certificate
                .map(|c| TlsNames::new(c.common_name.clone(), c.subject_alternative_names.clone()))
                .unwrap_or_default(),
            connected_at_ms: clock::wall_ms(),
        };
        Identity {
            shard: self.local.node().shard_of(&registration.client_id),
            persistent: registration.session_expiry_interval_s > 0,
            facts: Arc::new(facts),
        }
    }

    fn connect_command(&self, registration: Registration, identity: &Identity) -> ConnectCommand {
        let node = self.local.node();
        ConnectCommand {
            connection: self.connection,
            clean_start: registration.clean_start,
            session_expiry_interval_s: registration.session_expiry_interval_s,
            will: registration.will.map(|w| WillRecord { message: Arc::new(*w.message), delay_interval_s: w.delay_interval_s }),
            facts: Arc::clone(&identity.facts),
            user_properties: registration.user_properties,
            queue_limit: node.settings.queue.max_queue_size,
            discard_oldest: node.settings.queue.discard_oldest,
            lifecycle: node.renderer.lifecycle_wanted(),
            take_over: TakeOver::Any,
        }
    }

    fn registered(&mut self, outcome: Result<Claim, NotRegistered>, ctx: &mut Context<Self>) {
        if self.closing {
            return; // the peer went meanwhile: the unclaimed registration ends itself
        }
        let Some(identity) = self.identity.clone() else { return };
        let connected = outcome.is_ok();
        if !connected {
            self.identity = None;
        }
        let outcome: Result<Registered, NotRegistered> = outcome.map(Claim::take);
        let resumed = outcome.as_ref().is_ok_and(|registered| registered.session_present);
        match outcome {
            Ok(registered) => self.machine.handle_registered(Ok(registered), self.now, &mut self.effects),
            Err(NotRegistered::Refused(code)) => self.machine.handle_registered(Err(code), self.now, &mut self.effects),
            Err(NotRegistered::Unknown) => self.machine.registration_unknown(&mut self.effects),
        }
        self.run_effects(ctx);
        if connected {
            self.window = self.machine.send_quota();
            self.counted = true;
            self.local.node().metrics.connection_opened();
            let grant = Grant {
                facts: Arc::clone(&identity.facts),
                connection: self.connection,
                shard: identity.shard,
                may_have_entries: identity.persistent || resumed,
                window: u16::try_from(self.window).unwrap_or(u16::MAX),
            };
            self.local.grant(self.connection.connection, grant);
        }
    }

    /// Something the client published is not stored: it is told at once, whatever it waits for before that, and sends it again.
    pub(super) fn close_if_broken(&mut self, ctx: &mut Context<Self>) {
        if self.has_broken_lane() && !self.closing {
            self.unavailable();
            self.run_effects(ctx);
        }
    }

    fn has_broken_lane(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.is_broken())
    }

    fn publish(&mut self, ticket: Ticket, message: crate::mqtt::Message, receive: Option<crate::mqtt::packet::PacketId>) {
        if self.has_broken_lane() {
            // Behind a message that will be sent again it would come too early.
            self.unavailable();
            return;
        }
        let node = self.local.node();
        let message = Arc::new(message);
        if let Some(identity) = &self.identity
            && node.settings.prevented.is_inbound(&message.topic, identity.client())
        {
            // As if it were taken (spec/hivemq.md 2.7); the publisher stands for the receivers that there are none of (4.3).
            let kept_back = publish::delivery(&message, message.qos, message.retain, SubscriptionIds::new());
            let (receiver, reason) = (Receiver::Client(identity.client().clone()), DropReason::ExtensionPreventedInbound);
            node.signals.dropped(&kept_back, receiver, reason, clock::wall_ms());
            self.machine.handle_published(ticket, ReasonCode::Success, self.now, &mut self.effects);
            return;
        }
        let bytes = message.payload.len();
        let told = self.identity.as_ref().is_some_and(|identity| retaining::can_be_told(identity.facts.protocol, message.qos));
        let lane = Arc::clone(self.lane.get_or_insert_with(|| {
            let lane = Arc::new(Lane::default());
            if let Some(waker) = &self.waker {
                lane.register(waker);
            }
            lane
        }));
        let published = match (receive, &self.identity) {
            (Some(packet_id), Some(identity)) => {
                publish::receive(node, &message, (identity.client(), self.connection, packet_id), told, &lane)
            }
            _ => publish::publish(node, &message, told, Some(&lane)),
        };
        match published {
            Published::Done(code) => self.machine.handle_published(ticket, code, self.now, &mut self.effects),
            Published::Stored(stored) => {
                self.storing_bytes += bytes;
                self.defer(stored, move |stored, client, ctx| {
                    client.storing_bytes -= bytes;
                    match stored {
                        Ok(code) => client.machine.handle_published(ticket, code, client.now, &mut client.effects),
                        // Not acknowledged: the client sends it again on its next connection.
                        Err(_) => client.unavailable(),
                    }
                    client.run_effects(ctx);
                });
            }
        }
    }

    fn release(&mut self, ticket: Ticket, packet_id: crate::mqtt::packet::PacketId) {
        let Some(identity) = &self.identity else { return };
        let command = Command::Release { client: identity.client().clone(), connection: self.connection, packet_id };
        let Some(cluster) = self.local.node().cluster() else { return };
        let submitted = cluster.submit(identity.shard, command);
        self.defer(submitted, move |outcome, client, ctx| {
            match outcome {
                Ok(_) => client.machine.handle_released(ticket, client.now, &mut client.effects),
                Err(_) => client.unavailable(),
            }
            client.run_effects(ctx);
        });
    }

    fn subscribe(&mut self, ticket: Ticket, subscriptions: Vec<Subscription>) {
        let Some(identity) = self.identity.clone() else { return };
        self.give_again(subscriptions.iter().map(|subscription| &subscription.filter));
        let Some(cluster) = self.local.node().cluster() else { return };
        let records: Vec<SubscriptionRecord> = subscriptions
            .iter()
            .map(|s| SubscriptionRecord { filter: s.filter.clone(), options: s.options, identifier: s.identifier })
            .collect();
        let command =
            Command::Subscribe { client: identity.client().clone(), connection: self.connection, subscriptions: records };
        let submitted = cluster.submit_everywhere(identity.shard, command);
        self.defer(submitted, move |outcome, client, ctx| {
            match outcome {
                Ok(Outcome::Subscribed(existed)) => client.subscribed(ticket, &subscriptions, &existed, &identity, ctx),
                Ok(Outcome::Refused(code)) if code != ReasonCode::SessionTakenOver => {
                    let codes = vec![code; subscriptions.len()];
                    client.machine.handle_subscribed(ticket, &codes, client.now, &mut client.effects);
                }
                Ok(_) => {} // the connection is not the session's any more: Close is on its way
                Err(_) => client.unavailable(),
            }
            client.run_effects(ctx);
        });
    }

    /// SUBACK, and what is retained for the subscriptions. What goes into the session's replicated queue is there before the SUBACK: what is
    /// published to the topic from then on comes behind it [MQTT-4.6.0-5].
    fn subscribed(
        &mut self,
        ticket: Ticket,
        subscriptions: &[Subscription],
        existed: &[bool],
        identity: &Identity,
        ctx: &mut Context<Self>,
    ) {
        let codes: Vec<ReasonCode> = subscriptions.iter().map(|s| granted(s.options.qos)).collect();
        let Retained { own, mut replicated } = retained::look(&self.local, identity, subscriptions, existed);
        let Some(first) = replicated.next_window() else {
            self.machine.handle_subscribed(ticket, &codes, self.now, &mut self.effects);
            self.run_effects(ctx);
            retained::push(&self.local, self.connection, own);
            return;
        };
        self.subscribing += 1;
        let queued = retained::enqueue(Arc::clone(self.local.node()), self.connection, identity.clone(), first);
        let identity = identity.clone();
        self.defer_first(queued, move |queued, client, ctx| {
            client.subscribing -= 1;
            if !queued {
                // A SUBACK would promise what nobody sends. A connection that is the session's no more is told so by others.
                if retained::is_current(client.local.node(), client.connection, &identity) {
                    client.unavailable();
                    client.run_effects(ctx);
                }
                return;
            }
            client.machine.handle_subscribed(ticket, &codes, client.now, &mut client.effects);
            client.run_effects(ctx);
            retained::push(&client.local, client.connection, own);
            retained::enqueue_all(Arc::clone(client.local.node()), client.connection, identity, replicated);
        });
    }

    fn unsubscribe(&mut self, ticket: Ticket, filters: Vec<crate::mqtt::SubscriptionFilter>) {
        let Some(identity) = &self.identity else { return };
        let Some(cluster) = self.local.node().cluster() else { return };
        let command = Command::Unsubscribe { client: identity.client().clone(), connection: self.connection, filters };
        let submitted = cluster.submit_everywhere(identity.shard, command);
        self.defer(submitted, move |outcome, client, ctx| {
            match outcome {
                Ok(Outcome::Unsubscribed(existed)) => {
                    client.machine.handle_unsubscribed(ticket, &existed, client.now, &mut client.effects);
                }
                Ok(_) => {}
                Err(_) => client.unavailable(),
            }
            client.run_effects(ctx);
        });
    }

    /// The shard cannot be reached: the client goes elsewhere with its session.
    pub(super) fn unavailable(&mut self) {
        self.machine.disconnect(
            ReasonCode::ServerBusy,
            "the session's shard has no leader in reach",
            true,
            self.now,
            &mut self.effects,
        );
    }

    fn acknowledge(&mut self, source: Source, outcome: AckOutcome) {
        match (source, outcome) {
            (Source::Queue { seq }, AckOutcome::Received) => self.steps.get_mut().push((seq, QueueStep::Received)),
            (Source::Queue { seq }, AckOutcome::Completed(_) | AckOutcome::Sent) => {
                self.steps.get_mut().push((seq, QueueStep::Completed));
                self.completed += 1;
            }
            (Source::Local, AckOutcome::Completed(_)) => self.completed += 1,
            (Source::Share { group, seq }, AckOutcome::Completed(_) | AckOutcome::Sent) => self.shared_done(group, seq),
            (Source::Local, AckOutcome::Sent | AckOutcome::Received)
            | (Source::Share { .. }, AckOutcome::Received)
            | (Source::Member { .. }, _) => {}
        }
    }

    fn shared_done(&mut self, group: crate::mqtt::GroupId, seq: u64) {
        if let Some(rare) = self.rare.existing() {
            rare.shared.retain(|(known, at)| *at != seq || *known != group);
        }
        shared_subscription::report(self.local.node(), &group, seq);
    }

    pub(super) fn not_delivered(&mut self, delivery: &Delivery, step: QueueStep) {
        if delivery.qos != QoS::AtMostOnce && !matches!(delivery.source, Source::Share { .. }) {
            self.completed += 1;
        }
        match &delivery.source {
            // The shard raises the signal, exactly once.
            Source::Queue { seq } => self.steps.get_mut().push((*seq, step)),
            Source::Local => self.raise(delivery, step, |identity| Receiver::Client(identity.client().clone())),
            Source::Member { group } => {
                let full = group.full();
                self.raise(delivery, step, |identity| Receiver::member(full.clone(), identity.client().clone()));
            }
            // Here too: the dispatcher may have handed it to several members, when it changed nodes.
            Source::Share { group, seq } => {
                if let Some(rare) = self.rare.existing() {
                    rare.shared.retain(|(known, at)| at != seq || known != group);
                }
                shared_subscription::lose(self.local.node(), group.clone(), *seq, step, self.connection);
            }
        }
    }

    /// A QoS 0 message for a socket that is not writable, beyond what the node may put there (spec/hivemq.md 2.4).
    pub(super) fn not_writable(&mut self, delivery: &Delivery) {
        let step = QueueStep::Dropped(DropReason::Qos0ChannelNotWritable);
        match &delivery.source {
            Source::Share { group, seq } => {
                // The member was chosen already (spec/hivemq.md 4.3).
                let full = group.full();
                self.raise(delivery, step, |identity| Receiver::member(full.clone(), identity.client().clone()));
                self.shared_done(group.clone(), *seq);
            }
            Source::Local | Source::Queue { .. } | Source::Member { .. } => self.not_delivered(delivery, step),
        }
    }

    fn raise(&self, delivery: &Delivery, step: QueueStep, receiver: impl Fn(&Identity) -> Receiver) {
        let Some(identity) = &self.identity else { return };
        let signals = &self.local.node().signals;
        match step {
            QueueStep::Dropped(reason) => signals.dropped(delivery, receiver(identity), reason, clock::wall_ms()),
            QueueStep::Expired => signals.expired(delivery, receiver(identity), clock::wall_ms()),
            QueueStep::Completed | QueueStep::Received => {}
        }
    }

    /// Proposes the steps of this turn in one command; PUBREL waits until its step is stored.
    fn submit_steps(&mut self, ctx: &mut Context<Self>) {
        // Its place stays, for the next turn.
        let steps = self.steps.existing().map(std::mem::take).unwrap_or_default();
        if steps.is_empty() {
            return;
        }
        let Some(identity) = &self.identity else { return };
        let Some(cluster) = self.local.node().cluster() else { return };
        let received: Vec<u64> = steps.iter().filter(|(_, s)| *s == QueueStep::Received).map(|(seq, _)| *seq).collect();
        let command = Command::Acknowledge { client: identity.client().clone(), connection: self.connection, steps };
        if received.is_empty() {
            if cluster.submit_nowait(identity.shard, command).is_err() {
                // Not stored: the messages are sent again on the next connection, as unacknowledged ones are.
                self.unavailable();
                self.closing_soon(ctx);
            }
            return;
        }
        let submitted = cluster.submit(identity.shard, command);
        self.defer(submitted, move |outcome, client, ctx| {
            match outcome {
                Ok(_) => {
                    for seq in received {
                        client.machine.handle_acknowledged(&Source::Queue { seq }, client.now, &mut client.effects);
                    }
                }
                Err(_) => client.unavailable(),
            }
            client.run_effects(ctx);
        });
    }

    fn closing_soon(&mut self, ctx: &mut Context<Self>) {
        for effect in std::mem::take(&mut self.effects) {
            self.run(effect, ctx);
        }
    }

    fn end(&mut self, end: End) {
        self.ended = (end.initiator, end.reason_code);
        self.propose_end(end);
    }

    /// The end of a connection whose actor failed.
    pub(super) fn fail(&self) {
        self.propose_end(End {
            initiator: Initiator::Unspecified,
            reason_code: None,
            will: true,
            session_expiry_interval_s: None,
        });
    }

    fn propose_end(&self, end: End) {
        let Some(identity) = &self.identity else { return };
        // A stopping node ends its connections without a reason of theirs (spec/hivemq.md 10.1).
        let (initiator, reason_code) = if self.stopping && end.initiator == Initiator::Server {
            (Initiator::Unspecified, None)
        } else {
            (end.initiator, end.reason_code.map(ReasonCode::byte))
        };
        let command = Command::Disconnect {
            client: identity.client().clone(),
            connection: self.connection,
            initiator,
            reason_code,
            will: end.will,
            session_expiry_interval_s: end.session_expiry_interval_s,
            sent_seq: self.sent_seq,
        };
        endings::propose(Arc::clone(self.local.node()), identity.shard, command, self.connection);
    }
}

fn granted(qos: QoS) -> ReasonCode {
    match qos {
        QoS::AtMostOnce => ReasonCode::Success,
        QoS::AtLeastOnce => ReasonCode::GrantedQoS1,
        QoS::ExactlyOnce => ReasonCode::GrantedQoS2,
    }
}
