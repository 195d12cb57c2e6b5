//! What must reach the shard even if the actor that wants it is gone: a connection's end, and the undoing of a registration.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::cluster::SubmitError;
use crate::mqtt::ReasonCode;
use crate::replica::event::Outcome;
use crate::replica::{Command, ConnectionRef, ShardId};
use crate::session::Registered;
use crate::signal::Initiator;

use super::client::Identity;
use super::node::Node;

/// Pause between tries while the shard has no leader in reach.
const RETRY: Duration = Duration::from_millis(200);

/// Proposes a connection's end until it is stored. An incarnation that was declared dead needs none: `NodeDown` ended its connections.
pub fn propose(node: Arc<Node>, shard: ShardId, command: Command, connection: ConnectionRef) {
    let Some(first) = node.cluster().map(|cluster| cluster.submit(shard, command.clone())) else { return };
    actix_rt::spawn(async move {
        let mut outcome = first.await;
        loop {
            match outcome {
                Ok(_) | Err(SubmitError::Unknown) => return,
                Err(SubmitError::Unavailable | SubmitError::Overloaded) => {}
            }
            actix_rt::time::sleep(RETRY).await;
            let Some(cluster) = node.cluster() else { return };
            if cluster.incarnation() != connection.incarnation {
                return;
            }
            outcome = cluster.submit(shard, command.clone()).await;
        }
    });
}

/// A registration that the shard accepted. Dropped unclaimed (the actor was gone), it ends the connection again.
pub struct Claim {
    node: Arc<Node>,
    identity: Identity,
    connection: ConnectionRef,
    registered: Option<Registered>,
}

impl Claim {
    pub fn session_present(&self) -> bool {
        self.registered.as_ref().is_some_and(|registered| registered.session_present)
    }

    /// The actor takes the connection over.
    pub fn take(mut self) -> Registered {
        self.registered.take().unwrap_or_default()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.registered.is_none() {
            return;
        }
        let command = Command::Disconnect {
            client: self.identity.client().clone(),
            connection: self.connection,
            initiator: Initiator::Unspecified,
            reason_code: None,
            will: true,
            session_expiry_interval_s: None,
            sent_seq: 0,
        };
        propose(Arc::clone(&self.node), self.identity.shard, command, self.connection);
    }
}

/// Why there is no registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRegistered {
    /// It has no effect, and the client is told why.
    Refused(ReasonCode),
    /// It may have taken effect, or may yet: a CONNACK, whatever it says, could be wrong.
    Unknown,
}

impl NotRegistered {
    fn of(error: SubmitError) -> Self {
        match error {
            SubmitError::Unknown => Self::Unknown,
            SubmitError::Overloaded => Self::Refused(ReasonCode::ServerBusy),
            SubmitError::Unavailable => Self::Refused(ReasonCode::ServerUnavailable),
        }
    }
}

type Submitted = Pin<Box<dyn Future<Output = Result<Outcome, SubmitError>>>>;

/// A registration under way. Dropped before there is an answer it goes on in a task of its own, so that it is undone if nobody is left to claim
/// it; nearly every connection does without that task.
pub struct Registering {
    node: Arc<Node>,
    identity: Identity,
    connection: ConnectionRef,
    /// `None` once it is answered.
    submitted: Option<Submitted>,
}

impl Registering {
    pub fn new(
        node: Arc<Node>,
        identity: Identity,
        connection: ConnectionRef,
        submitted: impl Future<Output = Result<Outcome, SubmitError>> + 'static,
    ) -> Self {
        Self { node, identity, connection, submitted: Some(Box::pin(submitted)) }
    }

    fn answer(&self, outcome: Result<Outcome, SubmitError>) -> Result<Claim, NotRegistered> {
        let claim = |registered| Claim {
            node: Arc::clone(&self.node),
            identity: self.identity.clone(),
            connection: self.connection,
            registered: Some(registered),
        };
        match outcome {
            Ok(Outcome::Connected(outcome)) => Ok(claim(Registered {
                session_present: outcome.session_present,
                received_packet_ids: outcome.received_packet_ids,
            })),
            Ok(Outcome::Refused(code)) => Err(NotRegistered::Refused(code)),
            Ok(_) => Err(NotRegistered::Refused(ReasonCode::ServerUnavailable)),
            Err(error) => {
                if error == SubmitError::Unknown {
                    // It may be registered: that ends, and the client tries again.
                    drop(claim(Registered::default()));
                }
                Err(NotRegistered::of(error))
            }
        }
    }
}

impl Future for Registering {
    type Output = Result<Claim, NotRegistered>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(submitted) = &mut self.submitted else { return Poll::Ready(Err(NotRegistered::Unknown)) };
        let outcome = std::task::ready!(submitted.as_mut().poll(cx));
        self.submitted = None;
        Poll::Ready(self.answer(outcome))
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        let Some(submitted) = self.submitted.take() else { return };
        let (node, identity, connection) = (Arc::clone(&self.node), self.identity.clone(), self.connection);
        let unclaimed = Self { node, identity, connection, submitted: None };
        actix_rt::spawn(async move { drop(unclaimed.answer(submitted.await)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connect_that_was_never_sent_is_refused_with_a_code() {
        assert_eq!(NotRegistered::of(SubmitError::Unknown), NotRegistered::Unknown);
        assert_eq!(NotRegistered::of(SubmitError::Unavailable), NotRegistered::Refused(ReasonCode::ServerUnavailable));
        assert_eq!(NotRegistered::of(SubmitError::Overloaded), NotRegistered::Refused(ReasonCode::ServerBusy));
    }
}
