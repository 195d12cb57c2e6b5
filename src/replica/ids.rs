//! Identities that commands carry.

use serde::{Deserialize, Serialize};

/// A node, by the hash of its stable name.
pub type NodeId = u64;

/// One run of a node's process: larger for each start. Connections and submissions of an earlier run are void.
pub type Incarnation = u64;

/// A Raft group that owns a part of the clients, shared subscriptions and retained messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The shard that owns a key (client id, retained topic, or shared subscription in full) among `shards` of them.
    /// The function is part of the data format: FNV-1a 64, then modulo.
    pub fn of(key: &str, shards: u16) -> Self {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let mixed = hash ^ (hash >> 32);
        Self(u16::try_from(mixed % u64::from(shards.max(1))).unwrap_or(0))
    }
}

/// One network connection in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionRef {
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Unique within the incarnation.
    pub connection: u64,
}

#[cfg(test)]
mod tests {
    use super::ShardId;

    #[test]
    fn the_owner_of_a_key_never_changes() {
        // Stored data relies on these.
        let cases = [("", 6, 3), ("client-1", 6, 0), ("$share/g/t/+", 6, 1), ("client-1", 1, 0), ("client-1", 0, 0)];
        for (key, shards, owner) in cases {
            assert_eq!(ShardId::of(key, shards), ShardId(owner), "{key}");
        }
    }

    #[test]
    fn keys_spread_evenly() {
        let mut owned = [0_u32; 6];
        for n in 0..6000 {
            owned[usize::from(ShardId::of(&format!("device-{n:06}"), 6).0)] += 1;
        }
        assert!(owned.iter().all(|count| (850..1150).contains(count)), "{owned:?}");
    }
}
