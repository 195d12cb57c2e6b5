//! A digest of the replicated state, to compare nodes.

use super::state::State;

impl State {
    /// A digest of everything replicated: equal on all nodes at the same applied index. Reads all of it: for checks, not for each
    /// entry. Depends on the record formats, so nodes of different versions can't be compared.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest(0xcbf2_9ce4_8422_2325);
        for (key, value) in self.records() {
            digest.write(&key);
            digest.write(&value);
        }
        digest.0
    }
}

/// Multiply-and-rotate over words of eight bytes; not for adversaries.
struct Digest(u64);

impl Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}
