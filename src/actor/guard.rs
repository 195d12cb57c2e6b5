//! Keeps an eye on clients that do not come to rest (`auth::unstable`), and keeps out whom the configuration wants kept out for that.
//!
//! Every node sees the connects of the whole cluster in the logs of the shards, with their times, and comes to the same by itself; the leader of
//! the client's shard counts and tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ahash::RandomState;
use parking_lot::Mutex;

use super::clock;
use super::hub::HubItem;
use super::node::Node;
use crate::auth::bans::{Ban, Bans, Whom};
use crate::auth::unstable::{Cause, Detection, Limits, Unstable};
use crate::replica::ConnectionRef;
use crate::signal::ConnectionFacts;
use crate::telemetry::RateLimited;
use crate::telemetry::event_log::Event;

static UNSTABLE: RateLimited = RateLimited::new(Duration::from_secs(5));

/// What is looked for, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardSettings {
    pub limits: Limits,
    /// Ms; `None`: nobody is kept out.
    pub ban_ms: Option<u64>,
    /// The client's addresses too.
    pub ban_addresses: bool,
}

/// The guard of a node; without settings it sees nothing.
#[derive(Default)]
pub struct Guard(Option<Watching>);

struct Watching {
    settings: GuardSettings,
    keys: RandomState,
    state: Mutex<State>,
    /// Spares the lock for each CONNECT where there are none.
    has_bans: AtomicBool,
}

struct State {
    unstable: Unstable,
    bans: Bans,
}

impl Guard {
    pub fn new(settings: GuardSettings) -> Self {
        let state = State { unstable: Unstable::new(settings.limits), bans: Bans::default() };
        Self(Some(Watching { settings, keys: RandomState::new(), state: Mutex::new(state), has_bans: AtomicBool::new(false) }))
    }

    /// A client came in, on this node or another.
    pub(super) fn connected(
        &self,
        node: &Node,
        facts: &ConnectionFacts,
        connection: ConnectionRef,
        took_over: bool,
        at_ms: u64,
        leads: bool,
    ) {
        let Some(watching) = &self.0 else { return };
        if let Some((detection, ban)) = watching.connected(facts, took_over, at_ms)
            && leads
        {
            watching.tell(node, facts, &detection, ban);
        }
        // Also one that was on its way in when another connect was the detection.
        if node.is_local((connection.node, connection.incarnation, connection.connection))
            && let Some(reason) = self.keeps_out(&facts.client_id, facts.client_ip.as_deref())
            && let Some(hub) = node.hub_of(connection.connection)
        {
            hub.post(HubItem::Banned { connection: connection.connection, reason });
        }
    }

    /// Why a client is not let in, where it is kept out.
    pub fn keeps_out(&self, client_id: &str, address: Option<&str>) -> Option<String> {
        let watching = self.0.as_ref().filter(|watching| watching.has_bans.load(Ordering::Relaxed))?;
        let now_ms = clock::wall_ms();
        let ban = watching.state.lock().bans.find(client_id, address, now_ms)?;
        Some(reason(&ban, now_ms))
    }

    pub fn bans(&self) -> Vec<(Whom, Ban)> {
        self.0.as_ref().map_or_else(Vec::new, |watching| watching.state.lock().bans.list(clock::wall_ms()))
    }

    pub fn bans_len(&self) -> usize {
        self.0.as_ref().map_or(0, |watching| watching.state.lock().bans.len(clock::wall_ms()))
    }

    /// Lets somebody in again; whether anybody kept it out.
    pub fn pardon(&self, whom: &Whom) -> bool {
        let pardoned = self.0.as_ref().is_some_and(|watching| watching.state.lock().bans.remove(whom));
        if pardoned {
            tracing::info!(?whom, "a ban was ended by an operator");
        }
        pardoned
    }
}

impl Watching {
    fn connected(&self, facts: &ConnectionFacts, took_over: bool, at_ms: u64) -> Option<(Detection, Option<Ban>)> {
        let key = self.keys.hash_one(&facts.client_id);
        let mut state = self.state.lock();
        let detection = state.unstable.connected(key, facts.client_ip.as_deref(), took_over, at_ms)?;
        let ban = self.settings.ban_ms.map(|ban_ms| Ban {
            since_ms: at_ms,
            until_ms: at_ms.saturating_add(ban_ms),
            cause: detection.cause,
        });
        if let Some(ban) = ban {
            state.bans.add(Whom::ClientId(facts.client_id.clone()), ban);
            for address in detection.addresses.iter().filter(|_| self.settings.ban_addresses) {
                state.bans.add(Whom::Address(address.clone()), ban);
            }
            self.has_bans.store(true, Ordering::Relaxed);
        }
        Some((detection, ban))
    }

    fn tell(&self, node: &Node, facts: &ConnectionFacts, detection: &Detection, ban: Option<Ban>) {
        let takeovers = detection.cause == Cause::Fight;
        node.metrics.own.unstable_client(takeovers);
        let ips: Vec<&str> = detection.addresses.iter().map(|address| &**address).collect();
        let (seconds, banned_s) = (self.settings.limits.window_ms / 1000, ban.and(self.settings.ban_ms).map(|ms| ms / 1000));
        node.events.tell(&Event::Unstable {
            client_id: &facts.client_id,
            ips: &ips,
            count: detection.count,
            seconds,
            takeovers,
            banned_s,
        });
        let client_id = facts.client_id.get(..facts.client_id.floor_char_boundary(CLIENT_ID_BYTES_MAX)).unwrap_or_default();
        crate::warn_limited!(
            UNSTABLE,
            client_id,
            addresses = ?ips,
            cause = ?detection.cause,
            count = detection.count,
            within_s = seconds,
            banned_s,
            "a client does not come to rest"
        );
    }
}

/// Of a client id in the log.
const CLIENT_ID_BYTES_MAX: usize = 100;

/// For the client.
fn reason(ban: &Ban, now_ms: u64) -> String {
    let why = match ban.cause {
        Cause::Flapping => "it connected too often",
        Cause::Fight => "several clients fought over the client identifier",
    };
    format!("banned for {} more seconds, since {why}", ban.until_ms.saturating_sub(now_ms).div_ceil(1000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::ProtocolVersion;

    fn facts(client_id: &str, ip: &str) -> ConnectionFacts {
        ConnectionFacts {
            client_id: client_id.into(),
            client_id_assigned: false,
            client_ip: Some(ip.into()),
            node_ip: None,
            listener_port: None,
            secure: false,
            protocol: ProtocolVersion::V5,
            username: None,
            tls: crate::signal::TlsNames::default(),
            connected_at_ms: 0,
        }
    }

    fn guard(ban_ms: Option<u64>, ban_addresses: bool) -> Guard {
        let limits = Limits { window_ms: 60_000, connects: 10, takeovers: 2 };
        Guard::new(GuardSettings { limits, ban_ms, ban_addresses })
    }

    /// Two takeovers of `c`, the last from the second address; whether that was a detection.
    fn fight(guard: &Guard, at_ms: u64) -> bool {
        let watching = guard.0.as_ref().unwrap();
        let connects = [("192.0.2.1", false), ("192.0.2.2", true), ("192.0.2.1", true)];
        let seen = connects.map(|(ip, took_over)| watching.connected(&facts("c", ip), took_over, at_ms).is_some());
        assert_eq!(seen[..2], [false, false]);
        seen[2]
    }

    #[test]
    fn who_fights_is_kept_out_by_client_id_and_by_address_where_that_is_wanted() {
        let now_ms = clock::wall_ms();
        // Whether there are bans and of addresses too; who is kept out: `c` from a third address, another from the first, and from the third.
        for (ban_ms, addresses, expected) in [
            (None, true, [false, false, false]),
            (Some(60_000), false, [true, false, false]),
            (Some(60_000), true, [true, true, false]),
        ] {
            let guard = guard(ban_ms, addresses);
            assert!(fight(&guard, now_ms));
            let out = |id, ip| guard.keeps_out(id, Some(ip)).is_some();
            assert_eq!([out("c", "192.0.2.3"), out("d", "192.0.2.1"), out("d", "192.0.2.3")], expected, "{ban_ms:?} {addresses}");
        }
    }

    #[test]
    fn a_ban_counts_from_the_time_of_the_connect_not_from_its_replay() {
        let guard = guard(Some(60_000), false);
        assert!(fight(&guard, clock::wall_ms() - 61_000));
        assert_eq!((guard.keeps_out("c", None), guard.bans_len()), (None, 0));
        assert!(fight(&guard, clock::wall_ms() - 30_000));
        let reason = guard.keeps_out("c", None).unwrap();
        assert!(
            reason.starts_with("banned for ") && reason.ends_with("since several clients fought over the client identifier"),
            "{reason}"
        );
        assert_eq!(guard.bans_len(), 1);
        assert!(guard.pardon(&Whom::ClientId("c".into())) && guard.keeps_out("c", None).is_none());
    }

    #[test]
    fn a_guard_without_settings_keeps_nobody_out() {
        let guard = Guard::default();
        assert_eq!((guard.keeps_out("c", None), guard.bans().len(), guard.bans_len()), (None, 0, 0));
        assert!(!guard.pardon(&Whom::ClientId("c".into())));
    }
}
