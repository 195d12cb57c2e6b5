//! A client's authentication, as the actor carries it between its machine and the node's gate.

use std::sync::{Arc, LazyLock};

use actix::Context;

use super::Client;
use crate::actor::gate::{Outcome, Reply};
use crate::auth::{CertificateNames, Principal, Refusal, Request, Verdict};
use crate::mqtt::ReasonCode;
use crate::session::{Evidence, Stage};
use crate::telemetry::own::LoginFailure;

/// Everybody, on a node without authenticators.
static ANYBODY: LazyLock<Arc<Principal>> = LazyLock::new(Arc::default);

pub(super) fn anybody() -> Arc<Principal> {
    Arc::clone(&ANYBODY)
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
                let Some(mut login) = gate.open(&request, self.accepted.peer.map(|address| address.ip())) else {
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
        let address = self.accepted.peer.map(|address| address.ip().to_canonical().to_string());
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
            listener: Arc::clone(&self.accepted.listener),
            // What only a proxy has seen proves nothing: who reaches the listener could say the same.
            certificate: self.accepted.certificate.as_deref().filter(|c| c.subject_alternative_names.is_some()).map(names),
            wall_ms: self.now.wall_ms,
        }
    }

    fn authenticated(&mut self, outcome: Outcome) {
        match (outcome.exchange, &mut self.login) {
            (Some(exchange), Some(login)) => login.keep(exchange),
            _ => self.login = None,
        }
        self.judge(outcome.verdict);
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
