//! openraft's network over the peer transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream};
use futures_util::{FutureExt, StreamExt};
use openraft::entry::RaftEntry;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};

use crate::cluster::chance;
use crate::cluster::group::group_name;
use crate::cluster::transport::{CallError, Transport};
use crate::replica::NodeId;

use super::rpc::{Request, Response};
use super::snapshot::{ChunkReader, SnapshotData};
use super::transfers::Progress;
use super::type_config::{PeerNode, SnapshotMeta, TypeConfig, Vote};

/// An append with entries may wait for a flush on a busy disk; a dead link ends it at once anyway.
const APPEND_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// Appends of one group on their way to one peer. Those of all groups together must fit into the queue of a link.
const APPENDS_IN_FLIGHT_MAX: usize = 8;
/// Installing reads the whole state, for as long as that takes; a receiver that dies breaks the link, which ends the call at once.
const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// One chunk on its way and onto a busy disk. The whole may take any time.
const SNAPSHOT_CHUNK_TIMEOUT: Duration = Duration::from_secs(60);

type AppendError = RPCError<TypeConfig>;
/// Answers to a stream of appends, in its order.
type Appended<'s> = BoxStream<'s, Result<StreamAppendResult<TypeConfig>, AppendError>>;

/// Makes the callers of one group; without a transport (a cluster of one) none is ever asked for.
pub struct Network {
    pub transport: Option<Arc<Transport>>,
    pub node: NodeId,
    pub group: u16,
    /// See `Group::set_may_vote`.
    pub may_vote: Arc<AtomicBool>,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Caller;

    async fn new_client(&mut self, target: NodeId, node: &PeerNode) -> Caller {
        if let Some(transport) = &self.transport {
            transport.ensure_peer(&node.name, &node.address);
        }
        let may_vote = Arc::clone(&self.may_vote);
        Caller { transport: self.transport.clone(), node: self.node, group: self.group, target, may_vote }
    }
}

/// Calls one peer for one group.
pub struct Caller {
    transport: Option<Arc<Transport>>,
    node: NodeId,
    group: u16,
    target: NodeId,
    may_vote: Arc<AtomicBool>,
}

impl Caller {
    async fn call(&self, kind: RPCTypes, request: Request, timeout: Duration) -> Result<Response, RPCError<TypeConfig>> {
        if request.is_for_election() && !self.may_vote.load(Ordering::Relaxed) {
            return Err(Unreachable::from_string("this replica has no vote: it does not stand for election").into());
        }
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

    /// Puts an append on its way, before this returns; what is awaited is the answer.
    fn begin_append<'s>(
        &'s self,
        rpc: AppendEntriesRequest<TypeConfig>,
        timeout: Duration,
    ) -> BoxFuture<'s, Result<StreamAppendResult<TypeConfig>, AppendError>> {
        let prev = rpc.prev_log_id;
        let last = rpc.entries.last().map_or(prev, |entry| Some(entry.log_id()));
        let mut call = self.call(RPCTypes::AppendEntries, Request::Append(rpc), timeout).boxed();
        // A call queues its frame when it is polled first.
        let answered = (&mut call).now_or_never();
        async move {
            let answer = match answered {
                Some(answer) => answer?,
                None => call.await?,
            };
            match answer {
                Response::Append(AppendEntriesResponse::Conflict) if prev.is_none() => Err(wrong_answer()),
                Response::Append(response) => Ok(response.into_stream_result(prev, last)),
                _ => Err(wrong_answer()),
            }
        }
        .boxed()
    }

    /// Sends all chunks, each when the one before was taken; returns how many.
    async fn send_chunks(&self, transfer: u64, reader: &mut ChunkReader) -> Result<u32, RPCError<TypeConfig>> {
        let mut ordinal = 0;
        let mut progress = Progress::default();
        tracing::info!(group = group_name(self.group), to = self.target, "sends a snapshot");
        loop {
            let records = match reader.next().await {
                Ok(Some(records)) => records,
                // The receiver learns of the transfer by its first chunk.
                Ok(None) if ordinal == 0 => Vec::new(),
                Ok(None) => {
                    tracing::info!(group = group_name(self.group), to = self.target, %progress, "sent a snapshot, waits for it to be installed");
                    return Ok(ordinal);
                }
                Err(error) => return Err(NetworkError::new(&error).into()),
            };
            let last = records.is_empty();
            let bytes = records.iter().map(|(key, value)| key.len() + value.len()).sum();
            if progress.add(records.len(), bytes) {
                tracing::info!(group = group_name(self.group), to = self.target, %progress, "sends a snapshot");
            }
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
        // No number of an earlier life of this process, of which the receiver may hold a part.
        let transfer = chance::random::<u64>();
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

    /// Sends the next appends while earlier ones wait for the follower's flush: its next flush takes them all, and the news of what is
    /// committed does not wait for a flush at all. The peer takes appends in the order of the one connection they come on; answers are
    /// matched by number, and told in that order.
    fn stream_append<'s, S>(&'s mut self, input: S, option: RPCOption) -> BoxFuture<'s, Result<Appended<'s>, AppendError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let this: &'s Self = self;
        let timeout = option.hard_ttl().max(APPEND_TIMEOUT_MIN);
        let answers = input.map(move |rpc| this.begin_append(rpc, timeout)).buffered(APPENDS_IN_FLIGHT_MAX);
        let answers = stream::unfold(Some(answers.boxed()), |answers| async {
            let mut answers = answers?;
            let answer = answers.next().await?;
            // What was sent after one that failed is taken back by beginning anew.
            let goes_on = matches!(answer, Ok(Ok(_)));
            Some((answer, goes_on.then_some(answers)))
        });
        std::future::ready(Ok(answers.boxed())).boxed()
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
