//! A client's authentication, as the actor carries it between its machine and the node's gate.

use std::sync::{Arc, LazyLock};

use actix::Context;
use bytestring::ByteString;

use super::Client;
use crate::actor::gate::{Outcome, Reply, tell_refused};
use crate::auth::{CertificateNames, Principal, Refusal, Request, Verdict};
use crate::mqtt::{Packet, ReasonCode, topic_name};
use crate::session::{Effect, Evidence, Stage};
use crate::telemetry::event_log::{Event, Who};
use crate::telemetry::own::LoginFailure;

/// Everybody, on a node without authenticators.
static ANYBODY: LazyLock<Arc<Principal>> = LazyLock::new(Arc::default);

pub(super) fn anybody() -> Arc<Principal> {
    Arc::clone(&ANYBODY)
}

/// What a packet may be refused for without a verdict.
pub(super) enum Claim {
    /// The client id and, where it may be told, the user name of a CONNECT whose will is for a topic that begins with `$`.
    ReservedWill(ByteString, Option<ByteString>),
    /// AUTH may name another method.
    Method,
}

impl Client {
    /// Has the machine's evidence judged.
    pub(super) fn authenticate(&mut self, evidence: Evidence) {
        // Nothing is computed for whom the node does not take anyway.
        if evidence.stage == Stage::Connect
            && let Some(code) = self.refuse_at_limit()
        {
            return self.judge(Verdict::Refuse(Refusal { code, reason: code.name() }));
        }
        if evidence.stage == Stage::Connect && self.is_kept_out(&evidence.client_id) {
            return;
        }
        let Some(gate) = self.local.node().gate().cloned() else {
            // [MQTT-4.12.0-1]
            let verdict = match evidence.method {
                Some(_) => Verdict::Refuse(Refusal::METHOD),
                None => Verdict::Accept { principal: Arc::clone(&ANYBODY), data: None },
            };
            return self.judge(verdict);
        };
        let reply = match (evidence.stage, &mut self.login) {
            (Stage::Further, Some(login)) => login.further(evidence.data.as_ref()),
            (Stage::Further, None) => return self.judge(Verdict::Refuse(Refusal::CREDENTIALS)),
            (Stage::Connect | Stage::Again, _) => {
                let request = self.request(evidence);
                let Some(mut login) = gate.open(&request, self.accepted.peer_ip) else {
                    return self.judge(Verdict::Refuse(Refusal::BUSY));
                };
                let reply = login.begin(request);
                self.login = Some(Box::new(login));
                reply
            }
        };
        match reply {
            Reply::Now(outcome) => self.authenticated(outcome),
            Reply::Later(outcome) => self.defer(outcome, |outcome, client, ctx: &mut Context<Self>| {
                client.authenticated(outcome);
                client.run_effects(ctx);
            }),
        }
    }

    /// Refuses a client that is banned, before anything is computed for it.
    fn is_kept_out(&mut self, client_id: &str) -> bool {
        let node = self.local.node();
        let address = self.accepted.peer_ip.map(|ip| ip.to_canonical().to_string());
        let Some(reason) = node.guard.keeps_out(client_id, address.as_deref()) else { return false };
        node.metrics.own.login_failed(LoginFailure::Banned);
        self.machine.disconnect(ReasonCode::Banned, &reason, true, self.now, &mut self.effects);
        true
    }

    fn request(&self, evidence: Evidence) -> Request {
        let names = |certificate: &crate::actor::transport::PeerCertificate| CertificateNames {
            common_name: certificate.common_name.clone(),
            subject_alternative_name: certificate.subject_alternative_names.as_ref().and_then(|names| names.first().cloned()),
        };
        Request {
            client_id: evidence.client_id,
            user_name: evidence.user_name,
            password: evidence.password,
            method: evidence.method,
            data: evidence.data,
            listener: Arc::clone(&self.accepted.listener.name),
            // What only a proxy has seen proves nothing: who reaches the listener could say the same.
            certificate: self.accepted.certificate.as_deref().filter(|c| c.subject_alternative_names.is_some()).map(names),
            wall_ms: self.now.wall_ms,
        }
    }

    fn authenticated(&mut self, outcome: Outcome) {
        let login = match (outcome.exchange, &mut self.login) {
            (Some(exchange), Some(login)) => {
                login.keep(exchange);
                None
            }
            _ => self.login.take(),
        };
        let accepted = matches!(outcome.verdict, Verdict::Accept { .. });
        self.judge(outcome.verdict);
        // The authenticators have let it in, and the machine has not.
        if accepted
            && let Some(login) = login
            && self.refused_with(ReasonCode::NotAuthorized)
        {
            let (cause, reason) = match self.identity {
                None => (LoginFailure::Will, "the will may not be published"),
                Some(_) => (LoginFailure::AnotherUser, "authentication as another user"),
            };
            self.record_refusal(login.client_id(), login.ip(), login.user_name().map(|name| &**name), cause, reason);
        }
    }

    /// What a client is refused for before anybody is asked who it is.
    pub(super) fn claim_of(&self, packet: &Packet) -> Option<Claim> {
        match packet {
            Packet::Connect(connect) if connect.will.as_ref().is_some_and(|will| topic_name::is_reserved(&will.topic)) => {
                let gate = self.local.node().gate();
                let told = |name: &&ByteString| gate.is_none_or(|gate| gate.may_be_told(name));
                Some(Claim::ReservedWill(connect.client_id.clone(), connect.username.as_ref().filter(told).cloned()))
            }
            Packet::Auth(_) => Some(Claim::Method),
            _ => None,
        }
    }

    /// Has it counted and written, where it was refused for that.
    pub(super) fn claimed(&self, claim: Claim) {
        let address = self.accepted.peer_ip.map(|ip| ip.to_canonical().to_string());
        match (claim, &self.identity, &self.login) {
            (Claim::ReservedWill(client_id, user_name), ..) if self.refused_with(ReasonCode::TopicNameInvalid) => {
                let reason = "will topic starts with '$'";
                self.record_refusal(&client_id, address.as_deref(), user_name.as_deref(), LoginFailure::Will, reason);
            }
            (Claim::Method, Some(_), _) | (Claim::Method, _, Some(_))
                if self.refused_with(ReasonCode::BadAuthenticationMethod) =>
            {
                let (client_id, user_name) = match (&self.identity, &self.login) {
                    (Some(identity), _) => (&identity.facts.client_id, identity.facts.username.as_deref()),
                    (None, Some(login)) => (login.client_id(), login.user_name().map(|name| &**name)),
                    (None, None) => return,
                };
                let reason = "authentication method is not the one of CONNECT";
                let cause = LoginFailure::BadAuthenticationMethod;
                self.record_refusal(client_id, address.as_deref(), user_name, cause, reason);
            }
            _ => {}
        }
    }

    /// Whether the machine has just ended the connection with that code, which is still to be sent.
    fn refused_with(&self, code: ReasonCode) -> bool {
        self.machine.is_closed()
            && self.effects.iter().any(|effect| match effect {
                Effect::Send(Packet::Connack(connack)) => connack.reason_code == code,
                Effect::End(end) => end.reason_code == Some(code),
                _ => false,
            })
    }

    fn record_refusal(
        &self,
        client_id: &str,
        ip: Option<&str>,
        user_name: Option<&str>,
        cause: LoginFailure,
        reason: &'static str,
    ) {
        let node = self.local.node();
        node.metrics.own.login_failed(cause);
        if node.events.is_on() {
            node.events.tell(&Event::LoginFailed { who: Who { client_id: Some(client_id), ip }, user_name, reason });
        }
        tell_refused(ip, client_id, user_name, reason);
    }

    fn judge(&mut self, verdict: Verdict) {
        if let Verdict::Accept { principal, .. } = &verdict {
            if principal.user_name() == self.principal.user_name() {
                self.recheck(principal);
            }
            self.principal = Arc::clone(principal);
        }
        self.machine.handle_authenticated(verdict, self.now, &mut self.effects);
    }

    /// A timer of the machine ran out: it may have been the authentication's.
    pub(super) fn count_login_timeout(&mut self) {
        if self.machine.is_closed()
            && let Some(login) = self.login.take()
        {
            login.timed_out();
        }
    }
}
