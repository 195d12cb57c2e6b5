//! Each connection's CONNECTED and DISCONNECTED events come once, and in turn.

use std::collections::BTreeSet;

use super::super::client::Profile;

#[derive(Default)]
struct Life {
    connects_sent: usize,
    connacks: usize,
    /// Events that came.
    connected: usize,
    is_connected: bool,
    /// It came before the watcher had its SUBACK, and no event of it was seen yet: that of its first connection's begin may never be.
    may_miss_one: bool,
    missed_one: bool,
}

pub(super) struct Lifecycles {
    lives: Vec<Life>,
    /// Payloads, and the Packet Identifiers they came with.
    seen: BTreeSet<(String, u16)>,
    watched: bool,
}

impl Lifecycles {
    pub(super) fn new(profiles: &[Profile]) -> Self {
        Self { lives: profiles.iter().map(|_| Life::default()).collect(), seen: BTreeSet::new(), watched: false }
    }

    pub(super) fn connect_sent(&mut self, client: usize) {
        let life = &mut self.lives[client];
        life.may_miss_one |= !self.watched && life.connects_sent == 0;
        life.connects_sent += 1;
    }

    pub(super) fn connected(&mut self, client: usize) {
        self.lives[client].connacks += 1;
    }

    pub(super) fn subscribed(&mut self, profile: &Profile) {
        self.watched |= is_watcher(profile);
    }

    pub(super) fn delivered(&mut self, profiles: &[Profile], topic: &str, payload: &str, packet_id: u16) -> Result<(), String> {
        if !topic.starts_with("$client-events/") {
            return Err(format!("an event on {topic}"));
        }
        let name = topic.rsplit('/').next().unwrap_or_default();
        let Some(client) = profiles.iter().position(|profile| profile.id == name) else {
            return Err(format!("an event of {name}, whom nobody knows"));
        };
        // What comes again with its identifier was not acknowledged yet. (Two connections may have the same stamp: a leader whose clock is
        // behind what was stamped before lets time stand still.)
        if !self.seen.insert((payload.to_owned(), packet_id)) {
            return Ok(());
        }
        let life = &mut self.lives[client];
        let connects = payload.contains("\"Event type\":\"CONNECTED\"");
        if std::mem::take(&mut life.may_miss_one) && !connects {
            // The end of a connection whose begin nobody watched.
            life.missed_one = true;
            life.is_connected = true;
        }
        if connects == life.is_connected {
            return Err(format!("{name} is told to be {} twice in a row", if connects { "connected" } else { "disconnected" }));
        }
        life.is_connected = connects;
        life.connected += usize::from(connects);
        if life.connected > life.connects_sent {
            return Err(format!("{} CONNECTED events of {name}, which sent {} CONNECTs", life.connected, life.connects_sent));
        }
        Ok(())
    }

    pub(super) fn at_rest(&self, profiles: &[Profile], online: &[usize]) -> Result<(), String> {
        for (client, life) in self.lives.iter().enumerate() {
            let name = &profiles[client].id;
            let missed = usize::from(life.may_miss_one || life.missed_one);
            if life.connected + missed < life.connacks {
                return Err(format!("{} CONNECTED events of {name}, which was accepted {} times", life.connected, life.connacks));
            }
            if !life.may_miss_one && life.is_connected != online.contains(&client) {
                return Err(format!("the last event of {name} says connected: {}", life.is_connected));
            }
        }
        Ok(())
    }
}

fn is_watcher(profile: &Profile) -> bool {
    profile.filters.iter().any(|(filter, _)| filter.starts_with("$client-events"))
}
