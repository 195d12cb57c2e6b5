//! Keep Alive (MQTT 5 section 3.1.2.10, spec/hivemq.md 9.4).

use super::settings::SessionSettings;
use crate::mqtt::ProtocolVersion;

/// The clock of one connection's Keep Alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeepAlive {
    /// One and a half times the interval; 0 = off.
    patience_ms: u64,
    last_heard_ms: u64,
}

impl KeepAlive {
    pub(super) fn new(interval_s: u16, now_ms: u64) -> Self {
        Self { patience_ms: u64::from(interval_s) * 1500, last_heard_ms: now_ms }
    }

    /// Bytes came, or reading goes on after it was held back.
    pub(super) fn restart(&mut self, now_ms: u64) {
        self.last_heard_ms = now_ms;
    }

    /// Nobody listened for so long.
    pub(super) fn pause(&mut self, paused_ms: u64) {
        self.last_heard_ms = self.last_heard_ms.saturating_add(paused_ms);
    }

    /// Monotonic ms; `None` never.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        (self.patience_ms > 0).then(|| self.last_heard_ms.saturating_add(self.patience_ms))
    }
}

/// The interval in force, seconds, and the Server Keep Alive where it is not the client's own. MQTT 3 has no way to be told,
/// so its value stands, 0 included.
pub(super) fn negotiate(requested_s: u16, protocol: ProtocolVersion, settings: &SessionSettings) -> (u16, Option<u16>) {
    let unlimited = requested_s == 0 && !settings.keep_alive_allow_unlimited;
    if protocol.is_v5() && (unlimited || requested_s > settings.keep_alive_max_s) {
        // [MQTT-3.2.2-21]
        return (settings.keep_alive_max_s, Some(settings.keep_alive_max_s));
    }
    (requested_s, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::test_kit::settings;

    #[test]
    fn only_mqtt_5_clients_are_given_another_keep_alive() {
        use ProtocolVersion::{V3_1, V3_1_1, V5};
        let table = [
            // requested, version, unlimited allowed, in force, Server Keep Alive
            (60, V5, true, 60, None),
            (100, V5, true, 100, None),
            (101, V5, true, 100, Some(100)),
            (0, V5, true, 0, None),
            (0, V5, false, 100, Some(100)),
            (0, V3_1_1, false, 0, None),
            (0, V3_1, false, 0, None),
            (65_535, V3_1_1, true, 65_535, None),
        ];
        for (requested, version, unlimited, in_force, server) in table {
            let settings = SessionSettings { keep_alive_max_s: 100, keep_alive_allow_unlimited: unlimited, ..settings() };
            assert_eq!(negotiate(requested, version, &settings), (in_force, server), "{requested} {version:?} {unlimited}");
        }
    }

    #[test]
    fn the_deadline_is_one_and_a_half_intervals_after_the_last_bytes() {
        let mut clock = KeepAlive::new(3, 1_000);
        assert_eq!(clock.deadline_ms(), Some(5_500));
        clock.restart(2_000);
        assert_eq!(clock.deadline_ms(), Some(6_500));
        clock.pause(700);
        assert_eq!(clock.deadline_ms(), Some(7_200));
        assert_eq!(KeepAlive::new(0, 1_000).deadline_ms(), None);
    }
}
