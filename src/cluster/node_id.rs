//! Node ids: the hash of the stable name.

use crate::replica::NodeId;

/// FNV-1a 64 of the name; part of the data format.
pub fn node_id(name: &str) -> NodeId {
    name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_do_not_change() {
        assert_eq!(node_id(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(node_id("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
