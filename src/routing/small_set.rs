//! A set that costs two words while it has one element and stays fast with a hundred thousand.
//!
//! Most filters have one subscriber and most clients a handful of filters, but nothing may be slow for the topic everybody
//! subscribes to: up to [`FEW_MAX`] elements are a vector that is searched, more are a hash set.

use std::borrow::Borrow;
use std::collections::{HashSet, hash_set};
use std::hash::Hash;
use std::{mem, slice};

use ahash::RandomState;

/// Elements up to which a set is a vector.
const FEW_MAX: usize = 32;

/// Elements by which a vector grows.
const FEW_STEP: usize = 4;

/// A hash set that fell to this many elements becomes a vector again; apart from `FEW_MAX` so that a set does not flutter.
const FEW_AGAIN: usize = 16;

/// A set whose elements are equal when their keys are (`T: Borrow<K>`).
#[derive(Debug, Default)]
#[expect(
    clippy::box_collection,
    reason = "the set is part of every filter and has one element in most: a thin pointer keeps it small"
)]
pub(super) enum SmallSet<T> {
    #[default]
    Empty,
    One(T),
    Few(Box<Vec<T>>),
    Many(Box<HashSet<T, RandomState>>),
}

impl<T: Eq + Hash> SmallSet<T> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(_) => 1,
            Self::Few(list) => list.len(),
            Self::Many(set) => set.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(super) fn get<K: Eq + Hash + ?Sized>(&self, key: &K) -> Option<&T>
    where
        T: Borrow<K>,
    {
        match self {
            Self::Empty => None,
            Self::One(only) => (only.borrow() == key).then_some(only),
            Self::Few(list) => list.iter().find(|element| (*element).borrow() == key),
            Self::Many(set) => set.get(key),
        }
    }

    /// Adds an element; returns the equal one that it replaces.
    pub(super) fn insert(&mut self, element: T) -> Option<T> {
        match self {
            Self::Many(set) => return set.replace(element),
            Self::One(only) if *only == element => return Some(mem::replace(only, element)),
            Self::Few(list) => {
                if let Some(known) = list.iter_mut().find(|known| **known == element) {
                    return Some(mem::replace(known, element));
                }
                if list.len() < FEW_MAX {
                    if list.len() == list.capacity() {
                        // Doubling would leave a third of all memory unused.
                        list.reserve_exact(FEW_STEP);
                    }
                    list.push(element);
                    return None;
                }
            }
            Self::Empty | Self::One(_) => {}
        }
        *self = match mem::take(self) {
            Self::Empty => Self::One(element),
            Self::One(first) => Self::Few(Box::new(vec![first, element])),
            Self::Few(list) => Self::Many(Box::new(list.into_iter().chain([element]).collect())),
            Self::Many(mut set) => {
                set.insert(element);
                Self::Many(set)
            }
        };
        None
    }

    pub(super) fn remove<K: Eq + Hash + ?Sized>(&mut self, key: &K) -> Option<T>
    where
        T: Borrow<K>,
    {
        match self {
            Self::Empty => None,
            Self::One(only) => {
                if (*only).borrow() != key {
                    return None;
                }
                match mem::take(self) {
                    Self::One(only) => Some(only),
                    Self::Empty | Self::Few(_) | Self::Many(_) => None,
                }
            }
            Self::Few(list) => {
                let at = list.iter().position(|element| element.borrow() == key)?;
                let removed = list.swap_remove(at);
                if list.len() == 1 {
                    *self = list.pop().map_or(Self::Empty, Self::One);
                }
                Some(removed)
            }
            Self::Many(set) => {
                let removed = set.take(key)?;
                if set.len() <= FEW_AGAIN {
                    *self = Self::Few(Box::new(set.drain().collect()));
                } else if set.capacity() / 8 > set.len() {
                    set.shrink_to(set.len() * 2);
                }
                Some(removed)
            }
        }
    }

    pub(super) fn iter(&self) -> Iter<'_, T> {
        match self {
            Self::Empty => Iter::List([].iter()),
            Self::One(only) => Iter::List(slice::from_ref(only).iter()),
            Self::Few(list) => Iter::List(list.iter()),
            Self::Many(set) => Iter::Set(set.iter()),
        }
    }
}

/// Elements in no particular order.
pub(super) enum Iter<'a, T> {
    List(slice::Iter<'a, T>),
    Set(hash_set::Iter<'a, T>),
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match self {
            Self::List(list) => list.next(),
            Self::Set(set) => set.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sorted(set: &SmallSet<u32>) -> Vec<u32> {
        set.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    #[test]
    fn a_set_keeps_its_elements_through_all_sizes_up_and_down() {
        let mut set = SmallSet::default();
        for n in 0..100_u32 {
            assert_eq!(set.insert(n), None);
            assert_eq!(set.insert(n), Some(n));
            assert_eq!(set.len(), n as usize + 1);
        }
        assert!(matches!(set, SmallSet::Many(_)));
        assert_eq!(sorted(&set), (0..100).collect::<Vec<_>>());
        for n in 0..100_u32 {
            assert_eq!(set.get(&n), Some(&n));
            assert_eq!(set.remove(&n), Some(n));
            assert_eq!(set.remove(&n), None);
            assert_eq!(sorted(&set), (n + 1..100).collect::<Vec<_>>());
        }
        assert!(set.is_empty());
    }

    #[test]
    fn a_set_that_shrank_is_a_vector_again() {
        let mut set = SmallSet::default();
        assert!((0..33).all(|n| set.insert(n).is_none()));
        assert!(matches!(set, SmallSet::Many(_)));
        assert!((0..17).all(|n| set.remove(&n).is_some()));
        assert!(matches!(set, SmallSet::Few(_)));
        assert!((17..32).all(|n| set.remove(&n).is_some()));
        assert!(matches!(set, SmallSet::One(32)));
    }
}
