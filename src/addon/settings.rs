//! What the add-ons need of the configuration.

use crate::config::settings::{self, LifecycleSettings};

/// Which add-ons are on, and what their messages inherit.
#[derive(Debug, Clone, PartialEq)]
pub struct AddonSettings {
    pub expired: bool,
    pub dropped: bool,
    pub dead: bool,
    pub lifecycle: LifecycleSettings,
    /// The configured maximum Message Expiry Interval, seconds: the only expiry that add-on messages have. `None` = none.
    pub message_expiry_max_s: Option<u32>,
}

impl AddonSettings {
    pub fn new(addons: &settings::AddonSettings, message_expiry_max_s: Option<u32>) -> Self {
        Self {
            expired: addons.expired,
            dropped: addons.dropped,
            dead: addons.dead,
            lifecycle: addons.lifecycle.clone(),
            message_expiry_max_s,
        }
    }
}
