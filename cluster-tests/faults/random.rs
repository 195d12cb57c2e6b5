//! Pseudo-random numbers that a seed repeats.

/// xorshift64; good enough to choose faults and their moments.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Seeds next to each other give sequences that have nothing in common.
    pub fn new(seed: u64) -> Self {
        let mixed = (seed ^ 0x5DEE_CE66_D1CE_4E5B).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self((mixed ^ mixed >> 29) | 1)
    }

    /// From 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }
}

/// A number from the environment.
pub fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
