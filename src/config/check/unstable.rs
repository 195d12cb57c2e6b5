//! `<security><unstable-clients>`, an own element: clients that connect too often.

use super::view::View;
use crate::config::settings::{BanSettings, UnstableClients};

pub(super) fn read(root: &View<'_>) -> Option<UnstableClients> {
    let clients = root.at("security/unstable-clients");
    let ban = clients.at("ban");
    let settings = UnstableClients {
        window_s: clients.u64_or_max("window"),
        connects: clients.u32_or_max("connects"),
        takeovers: clients.u32_or_max("takeovers"),
        ban: ban
            .flag("enabled")
            .then(|| BanSettings { duration_s: ban.u64_or_max("duration"), addresses: ban.flag("addresses") }),
    };
    if !clients.flag("enabled") {
        if settings.ban.is_some() {
            ban.warning("has no effect: <unstable-clients> is not enabled");
        }
        return None;
    }
    Some(settings)
}
