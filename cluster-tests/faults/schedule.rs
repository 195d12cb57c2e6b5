//! What is done to nodes and links, one after the other, as a seed says.

use std::fmt;
use std::time::Duration;

use super::net::NODES;
use super::random::Random;

/// A node by what it does at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Where a publisher is connected.
    OfPublisher,
    /// Where a subscriber is connected.
    OfSubscriber,
    /// Leads the shard of a subscriber.
    ShardLeader,
    MetaLeader,
    Number(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// SIGKILL, and a start after that long.
    Kill(Role, Duration),
    /// Two at once; one goes on alone for that long.
    KillTwo(Role, Duration),
    KillAll(Duration),
    /// SIGKILL of a node whose last packets nobody hears: as a power cut.
    PowerCut(Role, Duration),
    /// SIGSTOP, SIGCONT.
    Pause(Role, Duration),
    /// From the other nodes, not from clients.
    Cut(Role, Duration),
    /// From everybody.
    Isolate(Role, Duration),
    CutPair(usize, usize, Duration),
    /// Nothing comes from the first to the second.
    OneWay(usize, usize, Duration),
    /// All links between nodes at once.
    Blip(Duration),
    /// A pair's link is slow, loses and doubles.
    Slow(usize, usize, Duration, Duration),
    /// All links are, those of clients too.
    SlowAll(Duration, Duration),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

const ROLES: [Role; 5] = [Role::OfPublisher, Role::OfSubscriber, Role::ShardLeader, Role::MetaLeader, Role::Number(0)];
/// Blips and pauses of less than any timeout, and of about every one there is.
const MOMENTS_MS: [u64; 8] = [5, 50, 200, 500, 1_000, 1_500, 2_500, 4_000];

/// So many steps, with the pauses before each.
pub fn draw(random: &mut Random, steps: usize) -> Vec<(Duration, Step)> {
    (0..steps).map(|_| (Duration::from_millis(random.below(2_000)), step(random))).collect()
}

fn step(random: &mut Random) -> Step {
    let role = match random.one_of(&ROLES) {
        Role::Number(_) => Role::Number(random.index(NODES)),
        role => role,
    };
    let a = random.index(NODES);
    let b = (a + 1 + random.index(NODES - 1)) % NODES;
    let moment = Duration::from_millis(random.one_of(&MOMENTS_MS));
    // Long enough to be declared dead (3 s), and sometimes to be without a majority for too long (10 s).
    let long = Duration::from_millis(random.one_of(&[2_000, 4_000, 6_000, 14_000]));
    let down = Duration::from_millis(random.one_of(&[0, 500, 3_000, 6_000]));
    let delay = Duration::from_millis(random.one_of(&[5, 50, 150, 400]));
    match random.below(16) {
        0..=2 => Step::Kill(role, down),
        3 => Step::KillTwo(role, down),
        4 => Step::KillAll(down),
        5 => Step::PowerCut(role, down),
        6 => Step::Pause(role, moment),
        7 => Step::Pause(role, long),
        8 => Step::Cut(role, long),
        9 => Step::Isolate(role, long),
        10 => Step::CutPair(a, b, long),
        11 => Step::OneWay(a, b, long),
        12 | 13 => Step::Blip(moment),
        14 => Step::Slow(a, b, delay, long),
        _ => Step::SlowAll(delay / 5, long),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_steps_and_another_has_others() {
        let of = |seed| draw(&mut Random::new(seed), 30);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn every_kind_of_step_is_drawn() {
        let steps = draw(&mut Random::new(3), 400);
        let kinds: std::collections::BTreeSet<String> =
            steps.iter().map(|(_, step)| format!("{step:?}").split('(').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(kinds.len(), 12, "{kinds:?}");
    }
}
