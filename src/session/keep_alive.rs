//! Keep Alive (MQTT 5 section 3.1.2.10, spec/hivemq.md 9.4).

use super::error::Offence;
use super::settings::KeepAlivePolicy;
use crate::mqtt::ProtocolVersion;

/// The clock of one connection's Keep Alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeepAlive {
    /// One and a half times the interval, or what is configured; 0 = off.
    patience_ms: u64,
    last_heard_ms: u64,
}

impl KeepAlive {
    pub(super) fn new(interval_s: u16, multiplier_milli: u32, now_ms: u64) -> Self {
        Self { patience_ms: u64::from(interval_s) * u64::from(multiplier_milli), last_heard_ms: now_ms }
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
        // One more, since both times are cut to whole milliseconds: never before [MQTT-3.1.2-22].
        (self.patience_ms > 0).then(|| self.last_heard_ms.saturating_add(self.patience_ms).saturating_add(1))
    }
}

/// The interval in force, seconds, and the Server Keep Alive where the client is told one [MQTT-3.2.2-21].
///
/// # Errors
/// An MQTT 3 client that cannot be told of another interval, where the policy refuses it.
pub(super) fn negotiate(
    requested_s: u16,
    protocol: ProtocolVersion,
    policy: KeepAlivePolicy,
) -> Result<(u16, Option<u16>), Offence> {
    let unlimited = requested_s == 0;
    let instead = match policy {
        KeepAlivePolicy::HiveMq { max_s, allow_unlimited } => {
            Some(max_s).filter(|max_s| requested_s > *max_s || unlimited && !allow_unlimited)
        }
        // Also for a client that asks for the same.
        KeepAlivePolicy::Emqx { server_s } => server_s,
        KeepAlivePolicy::Mosquitto { max_s } => max_s.filter(|max_s| requested_s > *max_s || unlimited),
    };
    match instead {
        Some(server_s) if protocol.is_v5() => Ok((server_s, Some(server_s))),
        Some(_) if matches!(policy, KeepAlivePolicy::Mosquitto { .. }) => Err(Offence::KeepAliveRefused),
        _ => Ok((requested_s, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the probes of the seed found (Mqttable, "MQTT Keep Alive", 6 October 2026): three brokers, with and without a policy of
    /// 10 s, each asked for 0, 10 and 30 s. The interval in force; `told` where MQTT 5 is told it.
    #[test]
    fn each_policy_does_what_its_broker_was_seen_to_do() {
        use ProtocolVersion::{V3_1, V3_1_1, V5};
        let hivemq = |max_s, allow_unlimited| KeepAlivePolicy::HiveMq { max_s, allow_unlimited };
        let emqx = |server_s| KeepAlivePolicy::Emqx { server_s };
        let mosquitto = |max_s| KeepAlivePolicy::Mosquitto { max_s };
        let (own, told, refused) = (|s| Ok((s, None)), |s| Ok((s, Some(s))), Err(Offence::KeepAliveRefused));
        // policy, then asked for 0, 10 and 30: MQTT 3, MQTT 5
        let table = [
            (hivemq(65_535, true), [own(0), own(10), own(30)], [own(0), own(10), own(30)]),
            (hivemq(10, true), [own(0), own(10), own(30)], [own(0), own(10), told(10)]),
            (hivemq(10, false), [own(0), own(10), own(30)], [told(10), own(10), told(10)]),
            (emqx(None), [own(0), own(10), own(30)], [own(0), own(10), own(30)]),
            (emqx(Some(10)), [own(0), own(10), own(30)], [told(10), told(10), told(10)]),
            (mosquitto(None), [own(0), own(10), own(30)], [own(0), own(10), own(30)]),
            (mosquitto(Some(10)), [refused, own(10), refused], [told(10), own(10), told(10)]),
        ];
        for (policy, mqtt_3, mqtt_5) in table {
            for (index, asked_s) in [0, 10, 30].into_iter().enumerate() {
                for (version, expected) in [(V3_1, mqtt_3[index]), (V3_1_1, mqtt_3[index]), (V5, mqtt_5[index])] {
                    assert_eq!(negotiate(asked_s, version, policy), expected, "{policy:?} {version:?} {asked_s}");
                }
            }
        }
    }

    #[test]
    fn the_bounds_are_the_maximum_itself_and_one_above() {
        use ProtocolVersion::V5;
        for policy in
            [KeepAlivePolicy::HiveMq { max_s: 100, allow_unlimited: false }, KeepAlivePolicy::Mosquitto { max_s: Some(100) }]
        {
            assert_eq!(negotiate(100, V5, policy), Ok((100, None)));
            assert_eq!(negotiate(101, V5, policy), Ok((100, Some(100))));
            assert_eq!(negotiate(65_535, V5, policy), Ok((100, Some(100))));
        }
    }

    #[test]
    fn the_deadline_is_one_and_a_half_intervals_after_the_last_bytes_or_what_is_configured() {
        let mut clock = KeepAlive::new(3, 1500, 1_000);
        assert_eq!(clock.deadline_ms(), Some(5_501));
        clock.restart(2_000);
        assert_eq!(clock.deadline_ms(), Some(6_501));
        clock.pause(700);
        assert_eq!(clock.deadline_ms(), Some(7_201));
        assert_eq!(KeepAlive::new(0, 1500, 1_000).deadline_ms(), None);
        assert_eq!(KeepAlive::new(3, 2250, 1_000).deadline_ms(), Some(7_751));
        assert_eq!(KeepAlive::new(65_535, 10_000, 0).deadline_ms(), Some(655_350_001));
    }
}
