//! `<mqtt-addons>` (spec/hivemq.md 1.8, 4.1). Mistakes in a section count even while it is disabled.

use super::view::View;
use crate::config::settings::{AddonSettings, LifecycleSettings};

pub(super) fn read(root: &View<'_>) -> AddonSettings {
    let addons = root.at("mqtt-addons");
    AddonSettings {
        expired: addons.flag("expired-messages-topic/enabled"),
        dropped: addons.flag("dropped-messages-topic/enabled"),
        dead: addons.flag("dead-messages-topic/enabled"),
        lifecycle: lifecycle(&addons.at("client-lifecycle-topic")),
    }
}

fn lifecycle(topic: &View<'_>) -> LifecycleSettings {
    let mut settings = LifecycleSettings {
        enabled: topic.flag("enabled"),
        identifier_username: identifier_is_username(topic),
        connected: true,
        client: true,
        server: true,
        session_taken_over: true,
        unspecified: true,
    };
    let triggers = topic.at("triggers");
    if !triggers.exists() {
        return settings;
    }
    settings.connected = triggers.at("client-connected").exists();
    let disconnected = triggers.at("client-disconnected");
    if !settings.connected && !disconnected.exists() {
        triggers.error(
            "found no trigger; allowed: <client-connected/>, <client-disconnected/> or both; add one, or remove <triggers> to have all",
        );
    }
    // Present and empty = all initiators; absent beside other triggers = none.
    let all = disconnected.exists() && !disconnected.has_children();
    let initiator = |name: &str| all || disconnected.at(name).exists();
    settings.client = initiator("client");
    settings.server = initiator("server");
    settings.session_taken_over = initiator("session-taken-over");
    settings.unspecified = initiator("unspecified");
    let any = settings.client || settings.server || settings.session_taken_over || settings.unspecified;
    if disconnected.exists() && !any {
        disconnected.error(
            "found no known initiator; allowed: <client/> <server/> <session-taken-over/> <unspecified/>; add one, or leave the element empty to have all",
        );
    }
    settings
}

fn identifier_is_username(topic: &View<'_>) -> bool {
    let identifier = topic.at("identifier");
    let (client_id, username) = (identifier.at("client-id").exists(), identifier.at("username").exists());
    if identifier.exists() && client_id == username {
        let found = if username { "both <client-id/> and <username/>" } else { "neither <client-id/> nor <username/>" };
        identifier
            .error(format!("found {found}; allowed: exactly one of them; keep one, or remove <identifier> to have <client-id/>"));
    }
    username
}
