//! Topic Filters and Shared Subscriptions (MQTT 5 sections 4.7 and 4.8).

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

#[cfg(test)]
#[path = "topic_filter_test.rs"]
mod tests;

/// The ShareName of a Shared Subscription [MQTT-4.8.2-1].
pub type ShareName = ByteString;

const FILTER_LEN_MAX: usize = 65_535;
const SHARE_PREFIX: &str = "$share/";

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
    /// Checks a filter as a client wrote it; share name and filter are slices of it. `$share/` means a Shared Subscription in all
    /// protocol versions, as HiveMQ has it; `$share` alone is a plain filter.
    ///
    /// # Errors
    /// `InvalidShare` for what starts with `$share/` and lacks a name or a valid filter; `Invalid` for any other offence.
    pub fn parse(text: &ByteString) -> Result<Self, FilterError> {
        // [MQTT-4.7.3-3]
        if text.len() > FILTER_LEN_MAX {
            return Err(FilterError::Invalid);
        }
        let Some(shared) = text.strip_prefix(SHARE_PREFIX) else {
            return if is_valid(text) { Ok(Self { share: None, filter: text.clone() }) } else { Err(FilterError::Invalid) };
        };
        let (name, filter) = shared.split_once('/').ok_or(FilterError::InvalidShare)?;
        // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        if name.is_empty() || name.contains(['+', '#', '\0']) || !is_valid(filter) {
            return Err(FilterError::InvalidShare);
        }
        Ok(Self { share: Some(text.slice_ref(name)), filter: text.slice_ref(filter) })
    }

    /// Whether the inner filter holds a wildcard.
    pub fn has_wildcard(&self) -> bool {
        self.filter.bytes().any(|b| matches!(b, b'+' | b'#'))
    }

    /// The subscription as the client wrote it: `$share/<name>/<filter>` or the filter.
    pub fn full(&self) -> ByteString {
        match &self.share {
            Some(name) => format!("{SHARE_PREFIX}{name}/{}", self.filter).into(),
            None => self.filter.clone(),
        }
    }
}

/// Whether `filter` is a Topic Filter without share: 1 to 65,535 bytes, no U+0000, `#` alone in the last level, `+` alone in its
/// level [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2].
pub fn is_valid(filter: &str) -> bool {
    if filter.is_empty() || filter.len() > FILTER_LEN_MAX || filter.contains('\0') {
        return false;
    }
    let mut levels = filter.split('/');
    while let Some(level) = levels.next() {
        let valid = match level {
            "#" => return levels.next().is_none(),
            "+" => true,
            _ => !level.contains(['+', '#']),
        };
        if !valid {
            return false;
        }
    }
    true
}

/// Whether `topic` matches `filter` (a plain filter without share); wildcards in the first level do not match `$` topics [MQTT-4.7.2-1].
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut topic_levels = topic.split('/');
    for level in filter.split('/') {
        match (level, topic_levels.next()) {
            // Also where the topic has ended: `#` stands for the parent level too [MQTT 5 section 4.7.1.2].
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (literal, Some(topic_level)) if literal == topic_level => {}
            _ => return false,
        }
    }
    topic_levels.next().is_none()
}

/// Whether every topic that matches `requested_filter` also matches `permission_filter`, both valid filters without share: so a
/// permission for the one allows a subscription to the other.
pub fn covers(permission_filter: &str, requested_filter: &str) -> bool {
    // A `#` stands for its parent level too, except here, where the parent would be an empty topic: so the `+` asks for nothing more.
    if matches!((permission_filter, requested_filter), ("+/#", "#") | ("/+/#" | "+/+/#", "/#")) {
        return true;
    }
    // [MQTT-4.7.2-1]
    if requested_filter.starts_with('$') && permission_filter.starts_with(['+', '#']) {
        return false;
    }
    let mut requested_levels = requested_filter.split('/');
    for level in permission_filter.split('/') {
        match (level, requested_levels.next()) {
            ("#", _) => return true,
            // A `#` asked for goes deeper than any one level.
            (_, Some("#")) => return false,
            ("+", Some(_)) => {}
            (literal, Some(requested_level)) if literal == requested_level => {}
            _ => return false,
        }
    }
    requested_levels.next().is_none()
}
