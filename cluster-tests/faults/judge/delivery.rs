//! What was acknowledged comes: with QoS 1 at least once, with QoS 2 exactly once; nothing comes more often than it was sent.

use std::collections::{BTreeMap, HashMap};

use troupemq::mqtt::QoS;

use super::life::{Life, Lives, Published};
use super::{Fault, Rule};

/// How often a message came to somebody.
#[derive(Default, Clone)]
struct Arrivals {
    /// As the application sees it.
    all: usize,
    /// Without what was sent again.
    separate: usize,
}

pub fn check(lives: &Lives, faults: &mut Vec<Fault>) {
    let arrivals: BTreeMap<&str, HashMap<&[u8], Arrivals>> =
        lives.clients.iter().map(|(id, life)| (&**id, arrivals(life))).collect();
    for (publisher, life) in &lives.clients {
        let keeps_session = life.connections.iter().all(super::life::Connection::lasts);
        for published in life.published.iter().filter(|published| published.message.qos != QoS::AtMostOnce) {
            for (subscriber, received) in &arrivals {
                let times = received.get(&published.message.payload[..]).cloned().unwrap_or_default();
                check_own(publisher, published, keeps_session, subscriber, &lives.clients[*subscriber], &times, faults);
            }
        }
        for published in life.published.iter().filter(|published| published.message.qos != QoS::AtMostOnce) {
            check_groups(publisher, published, keeps_session, lives, &arrivals, faults);
        }
    }
}

fn arrivals(life: &Life) -> HashMap<&[u8], Arrivals> {
    let mut arrivals: HashMap<&[u8], Arrivals> = HashMap::new();
    for delivered in &life.delivered {
        let message = &delivered.message;
        let of = arrivals.entry(&message.payload[..]).or_default();
        of.all += 1;
        of.separate += usize::from(!delivered.again);
    }
    arrivals
}

/// The subscriptions that the client has alone.
fn check_own(
    publisher: &str,
    published: &Published,
    keeps_session: bool,
    subscriber: &str,
    life: &Life,
    times: &Arrivals,
    faults: &mut Vec<Fault>,
) {
    let covering = life.subscribed.iter().filter(|one| one.shared().is_none() && one.matches(&published.message.topic));
    let Some(granted) = covering.clone().map(|one| one.granted).max() else { return };
    let in_force = covering.filter(|one| one.lasts).any(|one| one.covers(published));
    let what = describe(publisher, published);
    if in_force && published.acknowledged && times.all == 0 {
        faults.push(Fault { rule: Rule::Lost, what: format!("{what} has not come to {subscriber}") });
    }
    let exactly_once = published.message.qos == QoS::ExactlyOnce && granted == QoS::ExactlyOnce && keeps_session;
    let at_most = if exactly_once { 1 } else { published.sent };
    let counted = if exactly_once { times.all } else { times.separate };
    if counted > at_most {
        faults.push(Fault { rule: Rule::Twice, what: format!("{what} came {counted} times to {subscriber}") });
    }
}

/// Groups get each message once, whoever of them.
fn check_groups(
    publisher: &str,
    published: &Published,
    keeps_session: bool,
    lives: &Lives,
    arrivals: &BTreeMap<&str, HashMap<&[u8], Arrivals>>,
    faults: &mut Vec<Fault>,
) {
    let mut groups: BTreeMap<String, (bool, Arrivals, QoS)> = BTreeMap::new();
    for (member, life) in &lives.clients {
        for one in life.subscribed.iter().filter(|one| one.shared().is_some() && one.matches(&published.message.topic)) {
            let (in_force, total, granted) =
                groups.entry(one.filter.clone()).or_insert((false, Arrivals::default(), one.granted));
            *in_force |= one.lasts && one.covers(published);
            *granted = one.granted.min(*granted);
            let times = arrivals[&**member].get(&published.message.payload[..]).cloned().unwrap_or_default();
            if one.until_ms.is_none() {
                total.all += times.all;
            }
        }
    }
    let what = describe(publisher, published);
    for (group, (in_force, total, granted)) in groups {
        if in_force && published.acknowledged && total.all == 0 {
            faults.push(Fault { rule: Rule::Lost, what: format!("{what} has not come to anybody of {group}") });
        }
        let exactly_once = published.message.qos == QoS::ExactlyOnce && granted == QoS::ExactlyOnce && keeps_session;
        if exactly_once && total.all > 1 {
            faults.push(Fault { rule: Rule::Twice, what: format!("{what} came {} times to {group}", total.all) });
        }
    }
}

fn describe(publisher: &str, published: &Published) -> String {
    let Published { message, first_sent_ms, sent, acknowledged } = published;
    let (qos, topic, payload) = (message.qos, &message.topic, String::from_utf8_lossy(&message.payload));
    let acknowledged = if *acknowledged { "acknowledged" } else { "not acknowledged" };
    format!("{payload} of {publisher} on {topic} ({qos:?}, sent {sent} times, first at {first_sent_ms} ms, {acknowledged})")
}
