//! `<shutdown>`, an own element: how a node that is told to stop, or to drain, parts from its clients.

use super::view::View;
use crate::config::settings::ShutdownSettings;

pub(super) fn read(root: &View<'_>) -> ShutdownSettings {
    let shutdown = root.at("shutdown");
    let settings = ShutdownSettings {
        delay_s: shutdown.u64_or_max("delay"),
        clients_per_second: shutdown.u32_or_max("clients-per-second"),
        timeout_s: shutdown.u64_or_max("timeout"),
    };
    if settings.delay_s >= settings.timeout_s {
        shutdown.error(format!(
            "found a delay of {} and a timeout of {} s; allowed: a delay below the timeout, which includes it; raise <timeout>, and with it \
             the grace period of whoever stops the node",
            settings.delay_s, settings.timeout_s
        ));
    }
    settings
}
