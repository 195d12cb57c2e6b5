//! Who a client turned out to be, and what it may do (spec/hivemq.md 7.5).

use std::sync::Arc;

use bytestring::ByteString;

use crate::config::rbac::{Activity, Permission, Retain, Role, Share, Substitutes};
use crate::mqtt::{QoS, SubscriptionFilter, topic_filter};

/// A client that was let in. It keeps what it may do until it authenticates again, whatever becomes of the files meanwhile.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Principal {
    user_name: Option<ByteString>,
    client_id: ByteString,
    /// `None`: everything is allowed.
    roles: Option<Arc<[Arc<Role>]>>,
    /// Wall clock, ms since the epoch; `None`: what was proved does not expire.
    expires_at_ms: Option<u64>,
    hides_claimed_name: bool,
}

impl Principal {
    /// Nobody in particular, who may do everything.
    pub fn anonymous() -> Self {
        Self::default()
    }

    /// A user who may do everything.
    pub fn unlimited(user_name: ByteString) -> Self {
        Self { user_name: Some(user_name), ..Self::default() }
    }

    /// A user who may do what its roles allow.
    pub fn with_roles(user_name: ByteString, client_id: ByteString, roles: Arc<[Arc<Role>]>) -> Self {
        Self::new(Some(user_name), client_id, Some(roles))
    }

    /// A client who may do what its roles allow, or everything.
    pub fn new(user_name: Option<ByteString>, client_id: ByteString, roles: Option<Arc<[Arc<Role>]>>) -> Self {
        Self { user_name, client_id, roles, ..Self::default() }
    }

    /// The same, until a moment of the wall clock.
    #[must_use]
    pub fn until(self, expires_at_ms: Option<u64>) -> Self {
        Self { expires_at_ms, ..self }
    }

    /// The same, whose user name in CONNECT nobody is to see.
    #[must_use]
    pub fn hiding_the_claimed_name(self) -> Self {
        Self { hides_claimed_name: true, ..self }
    }

    /// When it must have proved itself again: wall clock, ms since the epoch.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// Whether the user name in CONNECT was what it proved itself by.
    pub fn hides_claimed_name(&self) -> bool {
        self.hides_claimed_name
    }

    /// The name that was proved; `None` where none was.
    pub fn user_name(&self) -> Option<&ByteString> {
        self.user_name.as_ref()
    }

    /// Whether nothing is forbidden.
    pub fn may_everything(&self) -> bool {
        self.roles.is_none()
    }

    /// Whether a message, or a Will, may be published.
    pub fn may_publish(&self, topic: &str, qos: QoS, retain: bool) -> bool {
        self.any_permission(|permission, filter| {
            permission.activity != Activity::Subscribe
                && permission.covers_qos(qos)
                && match permission.retain {
                    Retain::All => true,
                    Retain::Retained => retain,
                    Retain::NotRetained => !retain,
                }
                && topic_filter::matches(filter, topic)
        })
    }

    /// Whether a filter may be subscribed to with the QoS that was asked for. All that the filter matches must be allowed: HiveMQ compares the
    /// text, so that `a/+` allows `a/#`.
    pub fn may_subscribe(&self, asked: &SubscriptionFilter, qos: QoS) -> bool {
        self.any_permission(|permission, filter| {
            permission.activity != Activity::Publish
                && permission.covers_qos(qos)
                && match (permission.share, &asked.share) {
                    (Share::All, None) | (Share::NotShared, None) => true,
                    (Share::All | Share::Shared, Some(group)) => permission.group.as_ref().is_none_or(|allowed| allowed == group),
                    (Share::Shared, None) | (Share::NotShared, Some(_)) => false,
                }
                && topic_filter::covers(filter, &asked.filter)
        })
    }

    fn any_permission(&self, fits: impl Fn(&Permission, &str) -> bool) -> bool {
        let Some(roles) = &self.roles else { return true };
        let names = Substitutes { client_id: &self.client_id, user_name: self.user_name.as_deref() };
        let mut permissions = roles.iter().flat_map(|role| &role.permissions);
        permissions.any(|permission| permission.topic.filter(names).is_some_and(|filter| fits(permission, &filter)))
    }
}

#[cfg(test)]
#[path = "principal_test.rs"]
mod tests;
