//! What is to be reached, as the issue says: what must be, and what is aimed at.

use crate::scene::Figure;

/// One border.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// So many times mosquitto's figure of the same run, or more.
    Times(f64),
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// `None` where mosquitto's figure is missing.
    pub fn is_met(self, ours: f64, theirs: Option<f64>) -> Option<bool> {
        Some(match self {
            Self::Times(times) => ours >= times * theirs?,
            Self::AtLeast(least) => ours >= least,
            Self::AtMost(most) => ours <= most,
        })
    }

    pub fn shown(self) -> String {
        let number = troupemq::load::show;
        match self {
            Self::Times(times) => format!("{times} x"),
            Self::AtLeast(least) => format!(">= {}", number(least)),
            Self::AtMost(most) => format!("<= {}", number(most)),
        }
    }
}

/// Must and goal of a figure, if it has them.
pub fn of(scene: &str, figure: &str) -> Option<(Bound, Bound)> {
    GOALS.iter().find(|(of, name, _, _)| *of == scene && *name == figure).map(|(_, _, must, goal)| (*must, *goal))
}

/// What a figure is, in the table's words: met, aim met, or missed.
pub fn verdict(scene: &str, figure: &str, ours: f64, theirs: Option<f64>) -> &'static str {
    let Some((must, goal)) = of(scene, figure) else { return "" };
    match (must.is_met(ours, theirs), goal.is_met(ours, theirs)) {
        (_, Some(true)) => "goal",
        (Some(true), _) => "must",
        (Some(false), _) => "**missed**",
        (None, _) => "-",
    }
}

use Bound::{AtLeast, AtMost, Times};

const GOALS: [(&str, &str, Bound, Bound); 32] = [
    ("connect", Figure::CONNECTS, Times(0.8), Times(1.1)),
    ("connect", Figure::CPU_CONNECT, AtMost(0.45), AtMost(0.30)),
    ("connect", Figure::MEMORY, AtMost(3.0), AtMost(2.0)),
    ("connect-kept", Figure::CONNECTS, Times(0.7), Times(1.1)),
    ("burst", Figure::CONNECT_P99, AtMost(300.0), AtMost(100.0)),
    ("pairs-0", Figure::MESSAGES, Times(2.0), Times(3.2)),
    ("pairs-0", Figure::CPU_MESSAGE, AtMost(3.3), AtMost(1.8)),
    ("pairs-1", Figure::MESSAGES, Times(4.0), Times(7.5)),
    ("pairs-1", Figure::CPU_MESSAGE, AtMost(5.0), AtMost(2.4)),
    ("pairs-2", Figure::MESSAGES, Times(4.0), Times(10.0)),
    ("pairs-2", Figure::CPU_MESSAGE, AtMost(8.0), AtMost(3.7)),
    ("paced-1", Figure::P50, AtMost(0.15), AtMost(0.06)),
    ("paced-1", Figure::P99, AtMost(1.0), AtMost(0.15)),
    ("paced-1", Figure::CPU_MESSAGE, AtMost(50.0), AtMost(34.0)),
    ("fanout-0", Figure::CPU_MESSAGE, AtMost(2.0), AtMost(1.1)),
    ("fanout-1", Figure::CPU_MESSAGE, AtMost(3.0), AtMost(1.3)),
    ("fanin-1", Figure::CPU_MESSAGE, AtMost(13.0), AtMost(8.5)),
    ("shared-1", Figure::CPU_MESSAGE, AtMost(14.0), AtMost(10.0)),
    ("retained-0", Figure::RETAINED, Times(1.0), Times(1.1)),
    ("retained-1", Figure::RETAINED, Times(1.0), Times(2.5)),
    ("offline", Figure::FILL, AtLeast(50_000.0), AtLeast(150_000.0)),
    ("offline", Figure::DRAIN, AtLeast(150_000.0), AtLeast(600_000.0)),
    ("offline", Figure::QUEUED_BYTES, AtMost(200.0), AtMost(100.0)),
    ("offline-kill", Figure::LOST_ACKNOWLEDGED, AtMost(0.0), AtMost(0.0)),
    ("three-connect", Figure::CONNECTS, AtLeast(6_000.0), AtLeast(9_000.0)),
    ("three-connect", Figure::CONNECT_P99, AtMost(60.0), AtMost(30.0)),
    ("three-connect-kept", Figure::CONNECTS, AtLeast(5_000.0), AtLeast(8_000.0)),
    ("three-connect-kept", Figure::CONNECT_P99, AtMost(60.0), AtMost(30.0)),
    ("three-pairs-1", Figure::MESSAGES, AtLeast(30_000.0), AtLeast(80_000.0)),
    ("three-pairs-1", Figure::DISORDER, AtMost(0.0), AtMost(0.0)),
    ("pairs-1", Figure::DISORDER, AtMost(0.0), AtMost(0.0)),
    ("pairs-2", Figure::DISORDER, AtMost(0.0), AtMost(0.0)),
];
