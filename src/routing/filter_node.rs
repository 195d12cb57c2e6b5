//! The subscriptions of one Topic Filter: normal ones, and the shared ones by ShareName.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;

use super::route::RouteKey;
use super::small_set::{Iter, SmallSet};
use crate::mqtt::packet::SubscriptionOptions;
use crate::mqtt::{GroupId, QoS};

/// One subscription of one client, found by the client's route.
#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) route: RouteKey,
    pub(super) options: SubscriptionOptions,
    pub(super) identifier: Option<NonZeroU32>,
}

impl PartialEq for Subscriber {
    fn eq(&self, other: &Self) -> bool {
        self.route == other.route
    }
}

impl Eq for Subscriber {}

impl Hash for Subscriber {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.route.hash(state);
    }
}

impl Borrow<RouteKey> for Subscriber {
    fn borrow(&self) -> &RouteKey {
        &self.route
    }
}

/// All subscriptions of one filter. The owner removes a node that became empty.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "few filters have shared subscriptions: the others pay one word for them")]
pub(super) struct FilterNode {
    subscribers: SmallSet<Subscriber>,
    groups: Option<Box<BTreeMap<Arc<str>, Group>>>,
}

/// A shared subscription.
#[derive(Debug)]
pub(super) struct Group {
    id: GroupId,
    members: SmallSet<Subscriber>,
    /// Members by granted QoS, so that a match need not look at them.
    by_qos: [u32; 3],
    /// It is there without members too, and takes messages of any QoS above 0 for those to come.
    declared: bool,
}

/// What an insertion did.
#[derive(Debug)]
pub(super) struct Inserted {
    /// False where a subscription was replaced.
    pub(super) new: bool,
    /// The ShareName as stored, to be shared by whoever remembers it.
    pub(super) share: Option<Arc<str>>,
    /// The shared subscription that got its first member.
    pub(super) group_made: Option<GroupId>,
}

/// What a removal did.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) existed: bool,
    /// The shared subscription that lost its last member.
    pub(super) group_gone: Option<GroupId>,
}

impl FilterNode {
    pub(super) fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.groups.is_none()
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.subscribers.len()
    }

    pub(super) fn subscribers(&self) -> Iter<'_, Subscriber> {
        self.subscribers.iter()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().flat_map(|groups| groups.values())
    }

    pub(super) fn group(&self, share: &str) -> Option<&Group> {
        self.groups.as_ref()?.get(share)
    }

    pub(super) fn get(&self, share: Option<&str>, route: &RouteKey) -> Option<&Subscriber> {
        match share {
            None => self.subscribers.get(route),
            Some(share) => self.group(share)?.members.get(route),
        }
    }

    /// Adds or replaces [MQTT-3.8.4-3] the subscription of a client.
    pub(super) fn insert(&mut self, share: Option<&str>, filter: &str, subscriber: Subscriber) -> Inserted {
        let Some(share) = share else {
            return Inserted { new: self.subscribers.insert(subscriber).is_none(), share: None, group_made: None };
        };
        let groups = self.groups.get_or_insert_default();
        let (share, made) = match groups.get_key_value(share) {
            Some((name, _)) => (Arc::clone(name), false),
            None => (Arc::from(share), true),
        };
        let group = groups.entry(Arc::clone(&share)).or_insert_with(|| Group::new(&share, filter));
        let group_made = made.then(|| group.id.clone());
        Inserted { new: group.insert(subscriber), share: Some(share), group_made }
    }

    /// Makes a group stay without members, or not; tells whether it is there now.
    pub(super) fn set_declared(&mut self, share: &str, filter: &str, declared: bool) -> bool {
        if !declared {
            let Some(groups) = &mut self.groups else { return false };
            let Some(group) = groups.get_mut(share) else { return false };
            group.declared = false;
            if group.members.is_empty() {
                groups.remove(share);
                if groups.is_empty() {
                    self.groups = None;
                }
                return false;
            }
            return true;
        }
        let groups = self.groups.get_or_insert_default();
        groups.entry(Arc::from(share)).or_insert_with(|| Group::new(share, filter)).declared = true;
        true
    }

    pub(super) fn remove(&mut self, share: Option<&str>, route: &RouteKey) -> Removed {
        let Some(share) = share else {
            return Removed { existed: self.subscribers.remove(route).is_some(), group_gone: None };
        };
        let Some(groups) = &mut self.groups else { return Removed::default() };
        let Some(group) = groups.get_mut(share) else { return Removed::default() };
        let existed = group.remove(route);
        if group.declared || !group.members.is_empty() {
            return Removed { existed, group_gone: None };
        }
        let group_gone = groups.remove(share).map(|group| group.id);
        if groups.is_empty() {
            self.groups = None;
        }
        Removed { existed, group_gone }
    }
}

impl Group {
    fn new(share: &str, filter: &str) -> Self {
        let id = GroupId { share: share.into(), filter: filter.into() };
        Self { id, members: SmallSet::Empty, by_qos: [0; 3], declared: false }
    }

    pub(super) fn id(&self) -> &GroupId {
        &self.id
    }

    pub(super) fn members(&self) -> Iter<'_, Subscriber> {
        self.members.iter()
    }

    pub(super) fn is_declared(&self) -> bool {
        self.declared
    }

    pub(super) fn highest_qos(&self) -> QoS {
        let [_, at_least_once, exactly_once] = self.by_qos;
        if exactly_once > 0 || self.declared {
            QoS::ExactlyOnce
        } else if at_least_once > 0 {
            QoS::AtLeastOnce
        } else {
            QoS::AtMostOnce
        }
    }

    /// Whether the member is new.
    fn insert(&mut self, member: Subscriber) -> bool {
        self.by_qos[member.options.qos as usize] += 1;
        let replaced = self.members.insert(member);
        if let Some(replaced) = &replaced {
            self.by_qos[replaced.options.qos as usize] -= 1;
        }
        replaced.is_none()
    }

    fn remove(&mut self, route: &RouteKey) -> bool {
        let removed = self.members.remove(route);
        if let Some(removed) = &removed {
            self.by_qos[removed.options.qos as usize] -= 1;
        }
        removed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_with_one_subscriber_needs_no_allocation_of_its_own() {
        assert_eq!(size_of::<Subscriber>(), 16);
        assert_eq!(size_of::<FilterNode>(), 24);
    }
}
