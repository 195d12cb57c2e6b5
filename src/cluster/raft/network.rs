//! openraft's network over the peer transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
    VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use crate::cluster::transport::{CallError, Transport};
use crate::replica::NodeId;

use super::rpc::{Request, Response};
use super::snapshot::{ChunkReader, SnapshotData};
use super::type_config::{PeerNode, SnapshotMeta, TypeConfig, Vote};

/// An append with entries may wait for a flush on a busy disk; a dead link ends it at once anyway.
const APPEND_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Installing writes the whole state.
const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(300);
const SNAPSHOT_CHUNK_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the callers of one group; without a transport (a cluster of one) none is ever asked for.
pub struct Network {
    pub transport: Option<Arc<Transport>>,
    pub node: NodeId,
    pub group: u16,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Caller;

    async fn new_client(&mut self, target: NodeId, node: &PeerNode) -> Caller {
        if let Some(transport) = &self.transport {
            transport.ensure_peer(&node.name, &node.address);
        }
        Caller { transport: self.transport.clone(), node: self.node, group: self.group, target }
    }
}

/// Calls one peer for one group.
pub struct Caller {
    transport: Option<Arc<Transport>>,
    node: NodeId,
    group: u16,
    target: NodeId,
}

impl Caller {
    async fn call(&self, kind: RPCTypes, request: Request, timeout: Duration) -> Result<Response, RPCError<TypeConfig>> {
        let Some(transport) = &self.transport else {
            return Err(Unreachable::from_string("no peer transport").into());
        };
        match transport.call(self.target, self.group, request, timeout).await {
            Ok(Response::Refused(reason)) => Err(NetworkError::from_string(reason).into()),
            Ok(response) => Ok(response),
            Err(CallError::Timeout) => Err(Timeout { action: kind, id: self.node, target: self.target, timeout }.into()),
            Err(error @ CallError::Down) => Err(Unreachable::new(&error).into()),
            Err(error) => Err(NetworkError::new(&error).into()),
        }
    }

    /// Sends all chunks, each when the one before was taken; returns how many.
    async fn send_chunks(&self, transfer: u64, reader: &mut ChunkReader) -> Result<u32, RPCError<TypeConfig>> {
        let mut ordinal = 0;
        loop {
            let records = match reader.next().await {
                Ok(Some(records)) => records,
                // The receiver learns of the transfer by its first chunk.
                Ok(None) if ordinal == 0 => Vec::new(),
                Ok(None) => return Ok(ordinal),
                Err(error) => return Err(NetworkError::new(&error).into()),
            };
            let last = records.is_empty();
            let request = Request::SnapshotChunk { transfer, ordinal, records };
            match self.call(RPCTypes::InstallSnapshot, request, SNAPSHOT_CHUNK_TIMEOUT).await? {
                Response::ChunkTaken => {}
                _ => return Err(wrong_answer()),
            }
            ordinal += 1;
            if last {
                return Ok(ordinal);
            }
        }
    }

    async fn send_snapshot(
        &self,
        vote: Vote,
        meta: SnapshotMeta,
        data: SnapshotData,
    ) -> Result<SnapshotResponse<TypeConfig>, RPCError<TypeConfig>> {
        static TRANSFER: AtomicU64 = AtomicU64::new(1);
        let transfer = TRANSFER.fetch_add(1, Ordering::Relaxed);
        let SnapshotData::Reading(mut reader) = data else {
            return Err(NetworkError::from_string("the snapshot has no records to send").into());
        };
        let chunks = self.send_chunks(transfer, &mut reader).await?;
        let end = Request::SnapshotEnd { transfer, chunks, vote, meta };
        match self.call(RPCTypes::InstallSnapshot, end, SNAPSHOT_INSTALL_TIMEOUT).await? {
            Response::Snapshot(response) => Ok(response),
            _ => Err(wrong_answer()),
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Caller {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let timeout = if rpc.entries.is_empty() { option.hard_ttl() } else { option.hard_ttl().max(APPEND_TIMEOUT_MIN) };
        match self.call(RPCTypes::AppendEntries, Request::Append(rpc), timeout).await? {
            Response::Append(response) => Ok(response),
            _ => Err(wrong_answer()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RPCTypes::Vote, Request::Vote(rpc), option.hard_ttl()).await? {
            Response::Vote(response) => Ok(response),
            _ => Err(wrong_answer()),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RPCTypes::Vote, Request::PreVote(rpc), option.hard_ttl()).await? {
            Response::Vote(response) => Ok(response),
            _ => Err(wrong_answer()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<TypeConfig>,
        snapshot: SnapshotOf<TypeConfig, SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        tokio::select! {
            biased;
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, snapshot.meta, snapshot.snapshot) => sent.map_err(Into::into),
        }
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        match self.call(RPCTypes::TransferLeader, Request::TransferLeader(req), option.hard_ttl()).await? {
            Response::TransferLeader(response) => Ok(response),
            _ => Err(wrong_answer()),
        }
    }
}

fn wrong_answer() -> RPCError<TypeConfig> {
    NetworkError::from_string("the peer answered something else").into()
}
