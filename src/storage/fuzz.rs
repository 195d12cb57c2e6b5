//! What a disk gives back: sealed values, journals of the engine, records of the replicated state.

use bytes::Bytes;

use super::journal_check::{Proof, proof_within};
use super::record::{seal, unseal};
use crate::fuzzing::Draw;
use crate::replica::{ShardId, State};

const KEY: &[u8] = b"key";

pub fn stored_record(data: &[u8]) {
    let mut draw = Draw::new(data);
    match draw.below(4) {
        0 => envelopes(&mut draw),
        1 => {
            // A broken batch first, as the caller has found it.
            for proof in [Proof::Numbered(KEY), Proof::Key(KEY)] {
                let rest = draw.clone().rest();
                assert!(proof_within(rest, proof).is_none_or(|at| (1..rest.len()).contains(&at)));
            }
        }
        _ => records(&mut draw),
    }
}

fn envelopes(draw: &mut Draw<'_>) {
    let (key, at, bit) = (draw.bytes(), draw.u16(), draw.byte());
    let value = draw.rest();
    let mut stored = seal(key, value);
    assert_eq!(unseal(key, &stored), Ok(value));
    let at = usize::from(at) % stored.len();
    stored[at] ^= 1 << (bit & 7);
    assert!(unseal(key, &stored).is_err());
    // As it is, it is an envelope by chance of one in four billion.
    let _ = unseal(key, value);
}

/// Records that decode make a state, and that state has the same records again.
fn records(draw: &mut Draw<'_>) {
    let mut state = State::new(ShardId(0));
    while !draw.is_done() {
        let (key, value) = (draw.bytes(), draw.bytes());
        let _ = state.load(key, value);
    }
    state.finish_load();
    let _ = (state.next_expiry_ms(), state.queued_count(), state.take_changes());
    let kept: Vec<_> = state.records().map(|(key, value)| (key, Bytes::from(value))).collect();
    let mut again = State::new(ShardId(0));
    for (key, value) in &kept {
        again.load(key, value).expect("what the state wrote");
    }
    again.finish_load();
    assert_eq!(again.digest(), state.digest());
    assert_eq!(again.next_expiry_ms(), state.next_expiry_ms());
    assert_eq!(again.queued_count(), state.queued_count());
}
