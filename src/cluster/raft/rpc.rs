//! The remote calls of consensus, and their execution at the called node.

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
    VoteResponse,
};
use serde::{Deserialize, Serialize};

use crate::replica::NodeId;
use crate::replica::state::Record;

use super::snapshot::SnapshotData;
use super::transfers::Transfers;
use super::type_config::{Raft, SnapshotMeta, TypeConfig, Vote};

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

impl Request {
    pub fn is_for_election(&self) -> bool {
        matches!(self, Self::Vote(_) | Self::PreVote(_))
    }
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

/// Executes a call on this node's replica.
pub async fn execute(raft: &Raft, transfers: &Transfers, from: NodeId, request: Request) -> Response {
    match request {
        Request::Append(rpc) => raft.append_entries(rpc).await.map_or_else(refused, Response::Append),
        Request::Vote(rpc) => raft.vote(rpc).await.map_or_else(refused, Response::Vote),
        Request::PreVote(rpc) => raft.pre_vote(rpc).await.map_or_else(refused, Response::Vote),
        Request::TransferLeader(rpc) => raft.handle_transfer_leader(rpc).await.map_or_else(refused, Response::TransferLeader),
        Request::SnapshotChunk { transfer, ordinal, records } => {
            match transfers.take_chunk(from, transfer, ordinal, records).await {
                Ok(true) => Response::ChunkTaken,
                Ok(false) => Response::Refused("snapshot chunk out of order".to_owned()),
                Err(error) => refused(error),
            }
        }
        Request::SnapshotEnd { transfer, chunks, vote, meta } => {
            let Some(received) = transfers.finish(from, transfer, chunks) else {
                return Response::Refused("snapshot transfer incomplete".to_owned());
            };
            let snapshot = openraft::Snapshot { meta, snapshot: SnapshotData::Received(received) };
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
}
