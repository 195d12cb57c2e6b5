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
        let detection = watching.connected(facts, took_over, at_ms);
        let Some((detection, ban)) = detection else { return };
        if leads {
            watching.tell(node, facts, &detection, ban);
        }
        let left_ms = ban.map_or(0, |ban| ban.until_ms.saturating_sub(clock::wall_ms()));
        if left_ms > 0
            && node.is_local((connection.node, connection.incarnation, connection.connection))
            && let Some(hub) = node.hub_of(connection.connection)
        {
            hub.post(HubItem::Banned { connection: connection.connection, reason: reason(left_ms) });
        }
    }

    /// Why a client is not let in, where it is kept out.
    pub fn keeps_out(&self, client_id: &str, address: Option<&str>) -> Option<String> {
        let watching = self.0.as_ref().filter(|watching| watching.has_bans.load(Ordering::Relaxed))?;
        let now_ms = clock::wall_ms();
        let until_ms = watching.state.lock().bans.until(client_id, address, now_ms)?;
        Some(reason(until_ms - now_ms))
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
        let detection = state.unstable.connected(key, facts.client_ip.as_ref(), took_over, at_ms)?;
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

fn reason(left_ms: u64) -> String {
    format!("banned for {} more seconds, since it connected too often", left_ms.div_ceil(1000))
}
