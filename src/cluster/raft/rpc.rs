//! The remote calls of consensus, and their execution at the called node.

use std::collections::HashMap;
use std::time::Duration;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
    VoteResponse,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::replica::NodeId;
use crate::replica::state::Record;

use super::snapshot::SnapshotData;
use super::type_config::{Raft, SnapshotMeta, TypeConfig, Vote};

/// A transfer nobody continued for so long is forgotten.
const TRANSFER_IDLE_MAX: Duration = Duration::from_secs(60);
/// Transfers one group takes in at a time.
const TRANSFERS_MAX: usize = 4;

/// A call to a group's replica on another node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<TypeConfig>),
    PreVote(VoteRequest<TypeConfig>),
    TransferLeader(TransferLeaderRequest<TypeConfig>),
    /// A part of a snapshot; `ordinal` counts from 0 within the transfer.
    SnapshotChunk {
        transfer: u64,
        ordinal: u32,
        #[serde(with = "raw_records")]
        records: Vec<Record>,
    },
    /// All `chunks` were answered: install.
    SnapshotEnd {
        transfer: u64,
        chunks: u32,
        vote: Vote,
        meta: SnapshotMeta,
    },
}

/// Keys and values as runs of bytes: the same encoding as number by number, and many times faster.
mod raw_records {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::replica::state::Record;

    struct Raw<'a>(&'a [u8]);

    impl Serialize for Raw<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }

    pub(super) fn serialize<S: Serializer>(records: &[Record], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(records.iter().map(|(key, value)| (Raw(key), Raw(value))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Record>, D::Error> {
        let records: Vec<(Bytes, Bytes)> = Deserialize::deserialize(deserializer)?;
        Ok(records.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }
}

/// The answer to a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Response {
    Append(AppendEntriesResponse<TypeConfig>),
    Vote(VoteResponse<TypeConfig>),
    TransferLeader(TransferLeaderResponse<TypeConfig>),
    ChunkTaken,
    Snapshot(SnapshotResponse<TypeConfig>),
    /// Not done: the group is not running, may not vote yet, or the transfer is unknown.
    Refused(String),
}

/// Parts of snapshots that are being received by one group.
#[derive(Default)]
pub struct Transfers {
    open: Mutex<HashMap<(NodeId, u64), Transfer>>,
}

struct Transfer {
    records: Vec<Record>,
    chunks: u32,
    touched: Instant,
}

impl Transfers {
    /// Takes the next chunk in; false where it does not fit (lost ones, too many transfers): the sender begins anew.
    fn take_chunk(&self, from: NodeId, transfer: u64, ordinal: u32, mut records: Vec<Record>) -> bool {
        let mut open = self.open.lock();
        open.retain(|_, transfer| transfer.touched.elapsed() < TRANSFER_IDLE_MAX);
        if ordinal == 0 {
            // A sender has one transfer at a time: an earlier one of it was given up.
            open.retain(|(sender, _), _| *sender != from);
            if open.len() >= TRANSFERS_MAX {
                return false;
            }
            open.insert((from, transfer), Transfer { records, chunks: 1, touched: Instant::now() });
            return true;
        }
        match open.get_mut(&(from, transfer)) {
            Some(known) if known.chunks == ordinal => {
                known.records.append(&mut records);
                known.chunks += 1;
                known.touched = Instant::now();
                true
            }
            _ => false,
        }
    }

    fn finish(&self, from: NodeId, transfer: u64, chunks: u32) -> Option<Vec<Record>> {
        let found = self.open.lock().remove(&(from, transfer));
        match found {
            Some(known) if known.chunks == chunks => Some(known.records),
            _ => None,
        }
    }
}

/// Executes a call on this node's replica.
pub async fn execute(raft: &Raft, transfers: &Transfers, from: NodeId, request: Request) -> Response {
    match request {
        Request::Append(rpc) => raft.append_entries(rpc).await.map_or_else(refused, Response::Append),
        Request::Vote(rpc) => raft.vote(rpc).await.map_or_else(refused, Response::Vote),
        Request::PreVote(rpc) => raft.pre_vote(rpc).await.map_or_else(refused, Response::Vote),
        Request::TransferLeader(rpc) => raft.handle_transfer_leader(rpc).await.map_or_else(refused, Response::TransferLeader),
        Request::SnapshotChunk { transfer, ordinal, records } => {
            if transfers.take_chunk(from, transfer, ordinal, records) {
                Response::ChunkTaken
            } else {
                Response::Refused("snapshot chunk out of order".to_owned())
            }
        }
        Request::SnapshotEnd { transfer, chunks, vote, meta } => {
            let Some(records) = transfers.finish(from, transfer, chunks) else {
                return Response::Refused("snapshot transfer incomplete".to_owned());
            };
            let snapshot = openraft::Snapshot { meta, snapshot: SnapshotData::Records(records) };
            raft.install_full_snapshot(vote, snapshot).await.map_or_else(refused, Response::Snapshot)
        }
    }
}

fn refused(error: impl std::fmt::Display) -> Response {
    Response::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::raft::codec::{decode, encode};

    fn record(key: u8) -> Record {
        (vec![key], vec![key])
    }

    #[test]
    fn records_are_encoded_as_they_were_before_they_went_in_runs() {
        let records = vec![record(1), (vec![0; 300], vec![255; 70_000]), (Vec::new(), Vec::new())];
        let request = Request::SnapshotChunk { transfer: 1, ordinal: 2, records: records.clone() };
        let encoded = encode(&request).unwrap();
        let by_number = encode(&(4_u32, 1_u64, 2_u32, &records)).unwrap();
        assert_eq!(encoded, by_number);
        match decode(&encoded).unwrap() {
            Request::SnapshotChunk { records: decoded, .. } => assert_eq!(decoded, records),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn chunks_are_joined_in_order() {
        let transfers = Transfers::default();
        assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]));
        assert!(transfers.take_chunk(1, 9, 1, vec![record(2)]));
        assert_eq!(transfers.finish(1, 9, 2), Some(vec![record(1), record(2)]));
        assert_eq!(transfers.finish(1, 9, 2), None);
    }

    #[test]
    fn a_missing_chunk_and_a_wrong_count_are_noticed() {
        let transfers = Transfers::default();
        assert!(!transfers.take_chunk(1, 9, 1, vec![record(1)]));
        assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]));
        assert!(!transfers.take_chunk(1, 9, 2, vec![record(3)]));
        assert_eq!(transfers.finish(1, 9, 3), None);
    }

    #[test]
    fn a_new_transfer_of_a_sender_replaces_its_old_one() {
        let transfers = Transfers::default();
        assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]));
        assert!(transfers.take_chunk(1, 10, 0, vec![record(2)]));
        assert_eq!(transfers.finish(1, 9, 1), None);
        assert_eq!(transfers.finish(1, 10, 1), Some(vec![record(2)]));
    }
}
