//! Acknowledged QoS 1 is delivered at least once and QoS 2 exactly once, to each session and to one member of each shared subscription; in order
//! per publisher, topic and QoS; and nothing is queued twice.

use std::collections::BTreeMap;

use crate::mqtt::QoS;

use super::super::client::Profile;
use super::expired::Expiries;
use super::{Made, matches};

/// What a session was given.
#[derive(Default)]
struct Session {
    subscribed_ms: Option<u64>,
    /// By message: the Packet Identifier it came with first.
    seen: BTreeMap<usize, u16>,
    /// By publisher, topic, QoS published and QoS granted: the newest.
    newest: BTreeMap<(usize, String, u8, u8), usize>,
}

pub(super) struct Deliveries {
    sessions: Vec<Session>,
    /// Clients whose sessions outlive their connections.
    persistent: Vec<bool>,
    /// Share name of the clients that subscribe to one.
    shares: Vec<Option<String>>,
    /// What came to any member of a share.
    shared_seen: BTreeMap<String, BTreeMap<usize, usize>>,
}

fn share_of(profile: &Profile) -> Option<String> {
    profile.filters.iter().find_map(|(filter, _)| Some(filter.strip_prefix("$share/")?.split('/').next()?.to_owned()))
}

impl Deliveries {
    pub(super) fn new(profiles: &[Profile]) -> Self {
        Self {
            sessions: profiles.iter().map(|_| Session::default()).collect(),
            persistent: profiles.iter().map(|profile| profile.persistent).collect(),
            shares: profiles.iter().map(share_of).collect(),
            shared_seen: BTreeMap::new(),
        }
    }

    pub(super) fn session_ended(&mut self, client: usize) {
        self.sessions[client] = Session::default();
    }

    pub(super) fn subscribed(&mut self, client: usize, now_ms: u64) {
        self.sessions[client].subscribed_ms.get_or_insert(now_ms);
    }

    /// True where it had the message before, and may.
    pub(super) fn delivered(
        &mut self,
        messages: &[Made],
        client: usize,
        message: usize,
        qos: QoS,
        packet_id: u16,
    ) -> Result<bool, String> {
        let made = &messages[message];
        let session = &mut self.sessions[client];
        if let Some(share) = &self.shares[client] {
            let count = self.shared_seen.entry(share.clone()).or_default().entry(message).or_default();
            *count += 1;
            if qos == QoS::ExactlyOnce && *count > 1 {
                return Err(format!("m{message} (QoS 2) came {count} times to the shared subscription {share}"));
            }
            return Ok(*count > 1);
        }
        if let Some(first) = session.seen.get(&message) {
            return match qos {
                QoS::ExactlyOnce => Err(format!("m{message} (QoS 2) came twice, with identifiers {first} and {packet_id}")),
                QoS::AtMostOnce => Err(format!("m{message} (QoS 0) came twice")),
                QoS::AtLeastOnce if *first != packet_id && (made.sends == 1 || made.qos == QoS::ExactlyOnce) => {
                    Err(format!("m{message} was queued twice: it came with identifiers {first} and {packet_id}"))
                }
                QoS::AtLeastOnce => Ok(true),
            };
        }
        session.seen.insert(message, packet_id);
        // Sent again by its publisher it is matched anew, and comes to who subscribed meanwhile; and it may come, behind later ones, where it
        // expired in the queue the first time: its time runs anew as well.
        let is_late = session.subscribed_ms.is_some_and(|at| at >= made.first_sent_ms);
        // And of live messages for a session that ends with its connection some are lost with a link (ARCHITECTURE, known limits).
        if made.sends > 1 && (is_late || made.expiry_s.is_some() || !self.persistent[client]) {
            return Ok(false);
        }
        // Across connections of its publisher nothing is promised of QoS 0, nor its order.
        if made.qos == QoS::AtMostOnce {
            return Ok(false);
        }
        let key = (made.publisher, made.topic.clone(), made.qos as u8, qos as u8);
        if let Some(newest) = session.newest.insert(key, message)
            && newest > message
        {
            return Err(format!("m{message} came after m{newest} of the same publisher, topic and QoS"));
        }
        Ok(false)
    }

    pub(super) fn at_rest(&self, messages: &[Made], profiles: &[Profile], expiries: &Expiries) -> Result<(), String> {
        let kept = |made: &Made| made.qos != QoS::AtMostOnce && !made.retain && (made.expiry_s.is_none() || made.sends == 1);
        for (message, made) in messages.iter().enumerate().filter(|(_, made)| kept(made) && made.acked_ms.is_some()) {
            for (client, profile) in profiles.iter().enumerate().filter(|(_, profile)| profile.persistent) {
                let session = &self.sessions[client];
                let was_subscribed = session.subscribed_ms.is_some_and(|at| at < made.first_sent_ms);
                let wants = |(filter, qos): &(String, QoS)| {
                    let plain =
                        filter.strip_prefix("$share/").map_or(filter.as_str(), |rest| rest.split_once('/').map_or("", |r| r.1));
                    *qos != QoS::AtMostOnce && matches(plain, &made.topic)
                };
                if !was_subscribed || !profile.filters.iter().any(wants) {
                    continue;
                }
                let had = match &self.shares[client] {
                    Some(share) => self.shared_seen.get(share).is_some_and(|seen| seen.contains_key(&message)),
                    None => session.seen.contains_key(&message),
                };
                // A message of a shared subscription that moved to a member expires for the shared subscription all the same.
                let told = || match &self.shares[client] {
                    Some(_) => profile.filters.iter().any(|(filter, _)| expiries.is_told(message, filter)),
                    None => expiries.is_told(message, &profile.id),
                };
                if !had && (made.expiry_s.is_none() || !told()) {
                    return Err(format!(
                        "m{message} ({:?} by {} on {}) was acknowledged and never came to {}",
                        made.qos, profiles[made.publisher].id, made.topic, profile.id
                    ));
                }
            }
        }
        Ok(())
    }
}
