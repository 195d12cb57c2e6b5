//! `<mqtt><keep-alive>`: HiveMQ's elements (spec/hivemq.md 1.5, 9.4), and our own that select what EMQX or Mosquitto do with the Keep
//! Alive a client asks for.

use super::view::View;
use crate::config::settings::{KeepAlivePolicy, KeepAliveSettings};

/// One and a half times the Keep Alive, as the specification has it [MQTT-3.1.2-22].
const MULTIPLIER_MILLI: u32 = 1500;

pub(super) fn read(keep_alive: &View<'_>) -> KeepAliveSettings {
    let name = keep_alive.choice("policy");
    let max_s = keep_alive.u16_or_max("max-keep-alive");
    let allow_unlimited = keep_alive.flag("allow-unlimited");
    let server = keep_alive.at("server-keep-alive");
    if name != "emqx" && server.exists() {
        server.error(format!(
            "only the policy emqx has a Server Keep Alive for every client, and the policy is {name}; set <policy>emqx</policy>, \
             or use <max-keep-alive>"
        ));
    }
    // Templates write HiveMQ's defaults into every file: those mean nothing and are no contradiction.
    if name != "hivemq" && !allow_unlimited {
        keep_alive.at("allow-unlimited").error(match name {
            "mosquitto" => {
                "the policy mosquitto allows a Keep Alive of 0 exactly where it has no maximum; remove the element, and set \
                 <max-keep-alive> to refuse 0"
            }
            _ => {
                "the policy emqx allows a Keep Alive of 0 exactly where it has no <server-keep-alive>; remove the element, and set \
                 <server-keep-alive> to replace 0"
            }
        });
    }
    let policy = match name {
        "emqx" => {
            if max_s != u16::MAX {
                keep_alive.at("max-keep-alive").error(
                    "the policy emqx has no maximum: it gives every MQTT 5 client the same Keep Alive; use <server-keep-alive>, or \
                     another <policy>",
                );
            }
            KeepAlivePolicy::Emqx { server_s: keep_alive.u16("server-keep-alive") }
        }
        // Without a maximum everything is accepted, 0 too: there is no number for that.
        "mosquitto" => KeepAlivePolicy::Mosquitto { max_s: keep_alive.at("max-keep-alive").exists().then_some(max_s) },
        _ => KeepAlivePolicy::HiveMq { max_s, allow_unlimited },
    };
    KeepAliveSettings { policy, multiplier_milli: keep_alive.multiplier_milli("multiplier").unwrap_or(MULTIPLIER_MILLI) }
}
