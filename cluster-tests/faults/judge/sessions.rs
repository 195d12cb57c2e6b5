//! Session Present is right, and a client id has one connection.

use troupemq::mqtt::Packet;

use super::life::{Connection, Life, Lives, Outcome, Passed};
use super::{Fault, Rule, Setting};

/// Due times have an accuracy of a second, and a client's clock is not the cluster's.
const EARLY_MS: u64 = 2_000;
/// The end of a connection is noticed so late where its node is lost, silently.
const LATE_MS: u64 = 25_000;

/// What was written to a client before may come so much later, where its link was cut meanwhile.
const UNDER_WAY_MS: u64 = 10_000;

/// Whether the broker has a session of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    No,
    Yes,
    Perhaps,
}

pub fn check(lives: &Lives, setting: &Setting, faults: &mut Vec<Fault>) {
    for (id, life) in &lives.clients {
        check_present(id, life, faults);
        check_one_connection(id, life, setting, faults);
    }
}

fn check_present(id: &str, life: &Life, faults: &mut Vec<Fault>) {
    let mut has = Has::No;
    let mut before: Option<&Connection> = None;
    for connection in &life.connections {
        has = at(has, before, connection.connect_at_ms);
        if let Outcome::Accepted(present) = connection.outcome {
            let wrong = match (connection.connect.clean_start, has) {
                (true, _) | (false, Has::No) => present,
                (false, Has::Yes) => !present,
                (false, Has::Perhaps) => false,
            };
            if wrong {
                let clean = if connection.connect.clean_start { ", Clean Start" } else { "" };
                let what = format!("{id} was told Session Present {present} at {} ms{clean}: {has:?}", connection.outcome_at_ms);
                faults.push(Fault { rule: Rule::SessionPresent, what });
            }
        }
        has = match connection.outcome {
            Outcome::Refused => has,
            Outcome::Accepted(_) => Has::Yes,
            Outcome::Unknown if connection.lasts() && has == Has::Yes => Has::Yes,
            Outcome::Unknown => Has::Perhaps,
        };
        if connection.outcome != Outcome::Refused {
            before = Some(connection);
        }
    }
}

/// What is left at a moment of the session that a connection had.
fn at(has: Has, before: Option<&Connection>, now_ms: u64) -> Has {
    let Some(before) = before.filter(|_| has != Has::No) else { return Has::No };
    if !before.lasts() {
        // A session that ends with its connection; whatever there was of an unknown one.
        return if before.accepted() { Has::No } else { Has::Perhaps };
    }
    let expiry_s =
        if before.connect.protocol.is_v5() { before.connect.properties.session_expiry_interval.unwrap_or(0) } else { u32::MAX };
    let gone_ms = before.ended_at_ms.map_or(0, |ended| now_ms.saturating_sub(ended));
    let expiry_ms = u64::from(expiry_s) * 1000;
    match gone_ms {
        gone if gone + EARLY_MS < expiry_ms => has,
        gone if gone > expiry_ms + LATE_MS => Has::No,
        _ => Has::Perhaps,
    }
}

/// Nothing that is sent on a connection that another has replaced is answered, and nothing comes on it but what was under way.
fn check_one_connection(id: &str, life: &Life, setting: &Setting, faults: &mut Vec<Fault>) {
    let accepted: Vec<&Connection> = life.connections.iter().filter(|connection| connection.accepted()).collect();
    for pair in accepted.windows(2) {
        let over_ms = pair[1].outcome_at_ms + setting.stale_connection_ms;
        let records = &pair[0].records;
        let asked = records.iter().filter(|(at_ms, passed)| *at_ms <= over_ms && matches!(passed, Passed::Sent(Packet::Pingreq)));
        let mut answers = records.iter().filter(|(_, passed)| matches!(passed, Passed::Received(Packet::Pingresp)));
        let late = answers.nth(asked.count()).or_else(|| {
            let came = |passed: &Passed| matches!(passed, Passed::Received(packet) if *packet != Packet::Pingresp);
            records.iter().find(|(at_ms, passed)| *at_ms > over_ms + UNDER_WAY_MS && came(passed))
        });
        if let Some((at_ms, _)) = late {
            let what = format!("{id} was still served at {at_ms} ms on a connection taken over at {} ms", pair[1].outcome_at_ms);
            faults.push(Fault { rule: Rule::OneConnection, what });
        }
    }
}
