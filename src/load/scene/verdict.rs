//! What all threads' reports come to: nothing lost, nothing doubled, all in order?

use std::collections::HashMap;

use crate::load::judge::{Arrivals, Sent, Track};
use crate::load::publisher::Publisher;
use crate::load::report::Outcome;
use crate::load::subscriber::{Ledger, Subscriber};
use crate::load::units::show;
use crate::mqtt::QoS;

/// What one thread's clients have.
#[derive(Default)]
pub(super) struct Books {
    pub(super) sent: HashMap<u32, Sent>,
    /// By subscriber: the first stream, and what came of it and those after it.
    ordered: Vec<(u32, Vec<Track>)>,
    /// Of all subscribers that hear for each other.
    together: Option<(u32, Vec<Arrivals>)>,
    /// Of each subscriber that hears all in any order.
    apart: Vec<(u32, Vec<Arrivals>)>,
    foreign: u64,
    sessions_lost: u64,
}

/// What is required of the order and of doubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) qos: QoS,
    pub(super) ordered: bool,
}

/// The sums.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
    pub(super) foreign: u64,
    pub(super) sessions_lost: u64,
}

impl Books {
    pub(super) fn add_publisher(&mut self, publisher: &Publisher) {
        publisher.report(&mut self.sent);
        self.sessions_lost += publisher.sessions_lost;
    }

    /// `shares`: it hears for the others too.
    pub(super) fn add_subscriber(&mut self, subscriber: &mut Subscriber, shares: bool) {
        self.foreign += subscriber.foreign;
        self.sessions_lost += subscriber.sessions_lost;
        match &mut subscriber.ledger {
            Ledger::Ordered { first, tracks } => self.ordered.push((*first, std::mem::take(tracks))),
            Ledger::Any { first, arrivals } if shares => {
                // The first of the thread hands in for all of it.
                self.together.get_or_insert_with(|| (*first, arrivals.borrow().clone()));
            }
            Ledger::Any { first, arrivals } => self.apart.push((*first, arrivals.take())),
        }
    }

    fn merge(&mut self, other: Self) {
        for (stream, theirs) in other.sent {
            let ours = self.sent.entry(stream).or_default();
            ours.count = ours.count.max(theirs.count);
            ours.uncertain.extend(theirs.uncertain);
        }
        self.ordered.extend(other.ordered);
        self.apart.extend(other.apart);
        self.foreign += other.foreign;
        self.sessions_lost += other.sessions_lost;
        match (&mut self.together, other.together) {
            (Some((_, ours)), Some((_, theirs))) => ours.iter_mut().zip(&theirs).for_each(|(ours, theirs)| ours.merge(theirs)),
            (None, theirs) => self.together = theirs,
            (Some(_), None) => {}
        }
    }

    /// What all threads' books come to.
    pub(super) fn judge(parts: impl IntoIterator<Item = Self>) -> Verdict {
        let mut all = Self::default();
        parts.into_iter().for_each(|part| all.merge(part));
        let mut verdict = Verdict { foreign: all.foreign, sessions_lost: all.sessions_lost, ..Verdict::default() };
        let nothing = Sent::default();
        let sent = |first: u32, at: usize| {
            let stream = u32::try_from(at).ok().and_then(|at| first.checked_add(at));
            stream.and_then(|stream| all.sent.get(&stream)).unwrap_or(&nothing)
        };
        for (first, tracks) in &all.ordered {
            for (at, track) in tracks.iter().enumerate() {
                let Sent { count, uncertain } = sent(*first, at);
                verdict.lost += track.lost(*count, uncertain);
                verdict.doubled += track.doubled;
                verdict.out_of_order += track.out_of_order;
            }
        }
        for (first, arrivals) in all.together.iter().chain(&all.apart) {
            for (at, came) in arrivals.iter().enumerate() {
                let Sent { count, uncertain } = sent(*first, at);
                verdict.lost += came.lost(*count, uncertain);
                verdict.doubled += came.doubled;
            }
        }
        verdict
    }
}

impl Verdict {
    pub(super) fn report(&self, rules: Rules, outcome: &mut Outcome) {
        let lost = if rules.qos == QoS::AtMostOnce { "messages lost" } else { "acknowledged messages lost" };
        outcome.add("lost", lost, "", self.lost as f64);
        outcome.add("doubled", "messages doubled", "", self.doubled as f64);
        outcome.add("out_of_order", "messages out of order", "", self.out_of_order as f64);
        if self.foreign > 0 {
            outcome.notes.push(format!("{} messages were not of this run", show(self.foreign as f64)));
        }
    }

    /// Adds what must not be; not for a scene that failed anyway, where the sums say little.
    pub(super) fn accuse(&self, rules: Rules, outcome: &mut Outcome) {
        // Nobody promised anything for QoS 0.
        if rules.qos != QoS::AtMostOnce {
            outcome.fault_if(self.lost, "acknowledged messages lost");
        }
        if rules.qos == QoS::AtLeastOnce {
            if self.doubled > 0 {
                outcome.notes.push(format!("{} messages came more than once, as QoS 1 may", show(self.doubled as f64)));
            }
        } else {
            outcome.fault_if(self.doubled, "messages doubled");
        }
        if rules.ordered {
            outcome.fault_if(self.out_of_order, "messages out of order");
        }
        outcome.fault_if(self.sessions_lost, "sessions that were to be kept were lost");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was sent of one stream, all of it acknowledged.
    fn all_sent(count: u64) -> Sent {
        Sent { count, ..Sent::default() }
    }

    fn tracks(came: &[u64]) -> Vec<Track> {
        let mut track = Track::default();
        came.iter().for_each(|n| _ = track.take(*n));
        vec![track]
    }

    fn arrivals(came: &[u64]) -> Vec<Arrivals> {
        let mut one = Arrivals::default();
        came.iter().for_each(|n| _ = one.take(*n));
        vec![one]
    }

    #[test]
    fn publishers_and_subscribers_of_different_threads_are_judged_together() {
        let publisher = Books { sent: HashMap::from([(7, all_sent(3))]), ..Books::default() };
        let subscriber = Books { ordered: vec![(7, tracks(&[0, 2])), (7, tracks(&[0, 1, 2, 2]))], ..Books::default() };
        let verdict = Books::judge([subscriber, publisher]);
        assert_eq!(verdict, Verdict { lost: 1, doubled: 1, ..Verdict::default() });
    }

    #[test]
    fn members_of_a_group_hear_for_each_other_and_subscribers_of_retained_messages_do_not() {
        let sent = || HashMap::from([(0, all_sent(4))]);
        let members =
            [&[0, 2][..], &[1, 3, 3]].map(|came| Books { sent: sent(), together: Some((0, arrivals(came))), ..Books::default() });
        assert_eq!(Books::judge(members), Verdict { doubled: 1, ..Verdict::default() });
        let readers =
            [&[3, 0, 2, 1][..], &[1, 3]].map(|came| Books { sent: sent(), apart: vec![(0, arrivals(came))], ..Books::default() });
        assert_eq!(Books::judge(readers), Verdict { lost: 2, ..Verdict::default() });
    }

    #[test]
    fn each_qos_is_accused_of_what_it_must_not_do() {
        let verdict = Verdict { lost: 1, doubled: 1, out_of_order: 1, ..Verdict::default() };
        let faults = |qos, ordered| {
            let mut outcome = Outcome::default();
            verdict.accuse(Rules { qos, ordered }, &mut outcome);
            outcome.faults.join(", ")
        };
        assert_eq!(faults(QoS::AtMostOnce, true), "1 messages doubled, 1 messages out of order");
        assert_eq!(faults(QoS::AtLeastOnce, true), "1 acknowledged messages lost, 1 messages out of order");
        assert_eq!(faults(QoS::ExactlyOnce, false), "1 acknowledged messages lost, 1 messages doubled");
        let mut outcome = Outcome::default();
        Verdict { sessions_lost: 2, ..Verdict::default() }.accuse(Rules { qos: QoS::AtMostOnce, ordered: true }, &mut outcome);
        assert_eq!(outcome.faults, ["2 sessions that were to be kept were lost"]);
    }
}
