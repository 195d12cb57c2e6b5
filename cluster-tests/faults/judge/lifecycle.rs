//! Each connection has one CONNECTED and one DISCONNECTED, in turn. A client whose events are judged numbers its attempts in a user property of
//! its CONNECT, which its event repeats.

use std::collections::HashSet;

use troupemq::mqtt::packet::Publish;

use super::life::{Connection, Life, Lives, Outcome};
use super::{Fault, Rule};
use crate::harness::client::user_property;
use crate::harness::events::Event;

/// The user property.
pub const ATTEMPT: &str = "attempt";

/// The attempt that was connected, or `None` for a disconnect.
type Told = Vec<Option<usize>>;

pub fn check(lives: &Lives, watcher: &str, faults: &mut Vec<Fault>) {
    let Some(watching) = lives.clients.get(watcher) else { return };
    let messages: Vec<&Publish> =
        watching.delivered.iter().filter(|delivered| !delivered.again).map(|delivered| &delivered.message).collect();
    let events: Vec<(Event, &Publish)> = messages
        .iter()
        .filter(|message| message.topic.starts_with("$client-events/"))
        .map(|message| (Event::of(message), *message))
        .collect();
    for (id, life) in &lives.clients {
        let attempts = attempts(life);
        if attempts.is_empty() {
            continue;
        }
        let of_client = events.iter().filter(|(event, _)| event.client_id == **id);
        let told: Told = of_client
            .map(|(event, message)| event.connected.then(|| user_property(message, ATTEMPT)?.parse().ok()).flatten())
            .collect();
        for (rule, what) in faults_of(&attempts, &told) {
            faults.push(Fault { rule, what: format!("{id}: {what}; told {told:?}") });
        }
    }
}

/// The connections that were numbered.
fn attempts(life: &Life) -> Vec<(usize, &Connection)> {
    let number = |connection: &Connection| {
        let properties = &connection.connect.properties.user_properties;
        properties.iter().find(|(name, _)| &**name == ATTEMPT)?.1.parse::<usize>().ok()
    };
    life.connections.iter().filter_map(|connection| Some((number(connection)?, connection))).collect()
}

fn faults_of(attempts: &[(usize, &Connection)], told: &[Option<usize>]) -> Vec<(Rule, String)> {
    let mut faults = Vec::new();
    for (index, event) in told.iter().enumerate() {
        if event.is_some() != index.is_multiple_of(2) {
            faults.push((Rule::Lifecycle, format!("event {index} is out of turn")));
            return faults;
        }
    }
    if !told.len().is_multiple_of(2) {
        faults.push((Rule::LifecycleMissing, "the last DISCONNECTED has not come".to_owned()));
    }
    let connected: Vec<usize> = told.iter().flatten().copied().collect();
    // A CONNECT that its client gave up may be served late, and take over a later one.
    let answered = |number: &usize| attempts.iter().any(|(other, connection)| other == number && connection.accepted());
    let in_order: Vec<usize> = connected.iter().copied().filter(answered).collect();
    if !in_order.is_sorted() || connected.iter().collect::<HashSet<_>>().len() < connected.len() {
        faults.push((Rule::Lifecycle, "attempts told twice or out of order".to_owned()));
    }
    for (number, connection) in attempts {
        match (connection.outcome, connected.contains(number)) {
            (Outcome::Accepted(_), false) => {
                // Later ones were told: it will not come any more.
                let rule =
                    if in_order.last().is_some_and(|last| last > number) { Rule::Lifecycle } else { Rule::LifecycleMissing };
                faults.push((rule, format!("accepted attempt {number} was not told")));
            }
            (Outcome::Refused, true) => faults.push((Rule::Lifecycle, format!("refused attempt {number} was told as connected"))),
            _ => {}
        }
    }
    faults
}
