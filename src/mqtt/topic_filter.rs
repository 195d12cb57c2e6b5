//! Topic Filters and Shared Subscriptions (MQTT 5 sections 4.7 and 4.8).

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

/// The ShareName of a Shared Subscription [MQTT-4.8.2-1].
pub type ShareName = ByteString;

/// A checked Topic Filter, with its ShareName where it is a Shared Subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SubscriptionFilter {
    pub share: Option<ShareName>,
    /// The filter that topics are matched with, without `$share/<name>/`.
    pub filter: ByteString,
}

/// Why a Topic Filter was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("topic filter is not valid")]
    Invalid,
    #[error("share name or filter of a shared subscription is not valid")]
    InvalidShare,
}

impl SubscriptionFilter {
    /// Checks a filter as a client wrote it. `shared_allowed` is false for MQTT 3 before it knew Shared Subscriptions only if the
    /// caller says so; HiveMQ serves `$share` to all versions.
    pub fn parse(_text: &ByteString) -> Result<Self, FilterError> {
        Err(FilterError::Invalid)
    }

    /// Whether the inner filter holds a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.filter.bytes().any(|b| matches!(b, b'+' | b'#'))
    }

    /// The subscription as the client wrote it: `$share/<name>/<filter>` or the filter.
    pub fn full(&self) -> ByteString {
        match &self.share {
            Some(name) => format!("$share/{name}/{}", self.filter).into(),
            None => self.filter.clone(),
        }
    }
}

/// Whether `topic` matches `filter` (a plain filter without share); wildcards in the first level do not match `$` topics [MQTT-4.7.2-1].
pub fn matches(_filter: &str, _topic: &str) -> bool {
    false
}
