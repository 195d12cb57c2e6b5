//! What a run went through: a simulator that never elects a leader proves nothing.

use std::collections::BTreeMap;
use std::fmt;

/// Counters by name; summed over runs.
#[derive(Debug, Clone, Default)]
pub struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    pub fn hit(&mut self, what: &'static str) {
        self.add(what, 1);
    }

    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            self.add(what, *count);
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in &self.0 {
            writeln!(f, "  {count:>12}  {what}")?;
        }
        Ok(())
    }
}
