//! The Will of a connection that did not end with DISCONNECT is published once, and of one that did, never. Only Wills without delay are judged;
//! their payload is their own.

use troupemq::mqtt::ReasonCode;
use troupemq::mqtt::packet::Will;

use super::life::{Connection, Lives, Outcome};
use super::{Fault, Rule};

/// DISCONNECT and its application may fall apart where a node is lost in between.
const NEAR_MS: u64 = 5_000;

pub fn check(lives: &Lives, watcher: &str, faults: &mut Vec<Fault>) {
    let Some(watching) = lives.clients.get(watcher) else { return };
    for (id, life) in &lives.clients {
        for connection in &life.connections {
            let Some(will) = connection.connect.will.as_ref().filter(|will| judged(will)) else { continue };
            let same =
                |message: &&troupemq::mqtt::packet::Publish| message.topic == will.topic && message.payload == will.payload;
            let came = watching
                .delivered
                .iter()
                .filter(|delivered| !delivered.again)
                .map(|delivered| &delivered.message)
                .filter(same)
                .count();
            let payload = String::from_utf8_lossy(&will.payload);
            let mut fault = |rule, what: String| faults.push(Fault { rule, what: format!("will {payload} of {id} {what}") });
            match expected(lives, connection) {
                _ if came > 1 => fault(Rule::Will, format!("came {came} times")),
                Expected::None if came > 0 => fault(Rule::Will, "came after DISCONNECT, or of a refused CONNECT".to_owned()),
                Expected::Once if came == 0 => {
                    fault(Rule::WillMissing, format!("has not come; its connection ended at {:?} ms", connection.ended_at_ms));
                }
                _ => {}
            }
        }
    }
}

fn judged(will: &Will) -> bool {
    will.properties.will_delay_interval.unwrap_or(0) == 0
}

enum Expected {
    None,
    Once,
    AtMostOnce,
}

fn expected(lives: &Lives, connection: &Connection) -> Expected {
    match (connection.outcome, connection.ended_at_ms, connection.said_goodbye) {
        (Outcome::Refused, ..) => Expected::None,
        (Outcome::Accepted(_), Some(at_ms), Some(ReasonCode::Success)) if !lives.fault_near(at_ms, NEAR_MS) => Expected::None,
        (Outcome::Accepted(_), Some(_), None) => Expected::Once,
        _ => Expected::AtMostOnce,
    }
}
