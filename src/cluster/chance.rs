//! Randomness of this room: drawn here only, so that a simulated node can be given a seed.

use rand::Rng;
use rand::distr::{Distribution, StandardUniform};

/// The hasher of a map whose order of iteration others can see: any, and in a simulated node always the same.
pub fn hasher() -> ahash::RandomState {
    #[cfg(any(test, feature = "sim"))]
    if super::simulated::is_on() {
        return ahash::RandomState::with_seeds(1, 2, 3, 4);
    }
    ahash::RandomState::new()
}

/// A value drawn at random.
pub fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    #[cfg(any(test, feature = "sim"))]
    if let Some(drawn) = super::simulated::with_rng(|rng| rng.random()) {
        return drawn;
    }
    rand::rng().random()
}
