//! State that few connections or sessions have at any time: a pointer where there is none, since there are very many of them.

use std::collections::{BTreeSet, VecDeque};

/// A value that is its default, and takes no memory, until it is needed.
#[derive(Debug, Clone)]
pub struct Seldom<T>(Option<Box<T>>);

/// None and a default are the same: a value that was needed once keeps its memory.
impl<T: Default + PartialEq> PartialEq for Seldom<T> {
    fn eq(&self, other: &Self) -> bool {
        match (self.get(), other.get()) {
            (None, None) => true,
            (Some(one), Some(other)) => one == other,
            (Some(one), None) | (None, Some(one)) => *one == T::default(),
        }
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> Seldom<T> {
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// For a change that only makes sense where there is something.
    pub fn existing(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// Takes the value, and with it its memory.
    pub fn take(&mut self) -> T {
        self.0.take().map(|value| *value).unwrap_or_default()
    }

    pub fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T> Seldom<VecDeque<T>> {
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.len())
    }

    pub fn front(&self) -> Option<&T> {
        self.0.as_ref().and_then(|queue| queue.front())
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|queue| queue.iter())
    }

    pub fn push_back(&mut self, value: T) {
        self.get_mut().push_back(value);
    }
}

impl<T: Ord> Seldom<BTreeSet<T>> {
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|set| set.is_empty())
    }

    pub fn contains(&self, value: &T) -> bool {
        self.0.as_ref().is_some_and(|set| set.contains(value))
    }

    pub fn first(&self) -> Option<&T> {
        self.0.as_ref().and_then(|set| set.first())
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|set| set.iter())
    }

    pub fn insert(&mut self, value: T) -> bool {
        self.get_mut().insert(value)
    }

    pub fn remove(&mut self, value: &T) -> bool {
        self.existing().is_some_and(|set| set.remove(value))
    }

    pub fn pop_first(&mut self) -> Option<T> {
        self.existing().and_then(BTreeSet::pop_first)
    }
}

impl<T: Ord> FromIterator<T> for Seldom<BTreeSet<T>> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(Some(Box::new(values.into_iter().collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_set_is_as_one_that_never_held_anything() {
        let mut set = Seldom::<BTreeSet<u16>>::default();
        assert!(!set.remove(&1) && set.pop_first().is_none() && set.get().is_none());
        assert!(set.insert(1) && set != Seldom::default());
        assert!(set.remove(&1) && set.is_empty());
        assert_eq!((&set, Seldom::default()), (&Seldom::default(), set.clone()));
        assert_eq!(Seldom::from_iter([1]), {
            set.insert(1);
            set
        });
    }
}
