//! One shard's proposer: packs what arrived while earlier proposals were in flight into the next entry.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use openraft::raft::responder::ProgressResponder;
use tokio::sync::mpsc;

use crate::cluster::raft::{Payload, Raft, TypeConfig};
use crate::cluster::shard_clock::ShardClock;
use crate::replica::{Batch, Proposal};

use super::estimate::{BYTES_MAX, COMMANDS_MAX, command_bytes};

/// Batches waiting to be proposed; each origin has only a few on their way.
const QUEUE_BATCHES_MAX: usize = 1024;
/// One hides nothing, two hide the flush, more only make entries smaller.
const IN_FLIGHT_MAX: usize = 2;
/// Before a proposal is made again that a leader without its quorum, or about to hand over, refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

type Completion = openraft::type_config::alias::OneshotReceiverOf<TypeConfig, openraft::raft::ClientWriteResult<TypeConfig>>;

/// Where batches for the shard are handed in, at its leader.
#[derive(Clone)]
pub struct Proposer {
    queue: mpsc::Sender<Batch>,
}

impl Proposer {
    pub fn new() -> (Self, mpsc::Receiver<Batch>) {
        let (queue, batches) = mpsc::channel(QUEUE_BATCHES_MAX);
        (Self { queue }, batches)
    }

    /// False where the queue is full. A batch that is taken but not proposed is sent again by its origin.
    pub fn offer(&self, batch: Batch) -> bool {
        self.queue.try_send(batch).is_ok()
    }
}

/// A proposal and the news of it.
struct InFlight {
    proposal: Arc<Proposal>,
    completion: Completion,
}

/// Proposes until all proposers are gone or the group stopped.
pub async fn run(raft: Raft, clock: Arc<ShardClock>, mut queue: mpsc::Receiver<Batch>) {
    let mut waiting: VecDeque<Batch> = VecDeque::new();
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    loop {
        while waiting.len() < QUEUE_BATCHES_MAX
            && let Ok(batch) = queue.try_recv()
        {
            waiting.push_back(batch);
        }
        if !raft.is_leader() {
            // Whoever leads now gets them from their origins.
            waiting.clear();
        }
        while !waiting.is_empty() && in_flight.len() < IN_FLIGHT_MAX {
            let Some(next) = propose(&raft, Arc::new(pack(&mut waiting, clock.now_ms()))).await else { return };
            in_flight.push_back(next);
        }
        let room = in_flight.len() < IN_FLIGHT_MAX;
        tokio::select! {
            biased;
            batch = queue.recv(), if room => match batch {
                Some(batch) => waiting.push_back(batch),
                None => return,
            },
            done = oldest(&mut in_flight) => {
                let Some(proposed) = in_flight.pop_front() else { continue };
                if done {
                    continue;
                }
                match propose_again(&raft, proposed, &mut in_flight).await {
                    Some(again) => in_flight = again,
                    None => return,
                }
            }
        }
    }
}

/// `None` where the group has stopped.
async fn propose(raft: &Raft, proposal: Arc<Proposal>) -> Option<InFlight> {
    let (responder, completion) = ProgressResponder::complete_only();
    raft.client_write_ff(Payload::Shard(Arc::clone(&proposal)), Some(responder)).await.ok()?;
    Some(InFlight { proposal, completion })
}

/// A leader refuses while it has no lease yet, or is about to hand over: what was refused goes again, and with it what came
/// after (it may have been let through, and then the replica ignored it as out of order). A leader no more forgets them.
async fn propose_again(raft: &Raft, refused: InFlight, later: &mut VecDeque<InFlight>) -> Option<VecDeque<InFlight>> {
    let mut again = vec![refused.proposal];
    for next in later.drain(..) {
        let _ = next.completion.await;
        again.push(next.proposal);
    }
    tokio::time::sleep(REFUSED_PAUSE).await;
    let mut in_flight = VecDeque::new();
    if raft.is_leader() {
        for proposal in again {
            in_flight.push_back(propose(raft, proposal).await?);
        }
    }
    Some(in_flight)
}

/// Waits for the oldest proposal (forever if there is none); false where it was refused.
async fn oldest(in_flight: &mut VecDeque<InFlight>) -> bool {
    match in_flight.front_mut() {
        Some(next) => matches!((&mut next.completion).await, Ok(Ok(_))),
        None => std::future::pending().await,
    }
}

/// Takes batches for one entry, of this time: at least one, then as many as fit.
fn pack(waiting: &mut VecDeque<Batch>, at_ms: u64) -> Proposal {
    let mut batches = Vec::new();
    let mut commands = 0;
    let mut bytes = 0;
    while let Some(next) = waiting.front() {
        commands += next.commands.len();
        bytes += next.commands.iter().map(command_bytes).sum::<usize>();
        if !batches.is_empty() && (commands > COMMANDS_MAX || bytes > BYTES_MAX) {
            break;
        }
        batches.extend(waiting.pop_front());
    }
    Proposal { at_ms, batches }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Command;

    fn batch(first_seq: u64, commands: usize) -> Batch {
        let commands = Arc::new(vec![Command::Expire { limit: 1 }; commands]);
        Batch { node: 1, incarnation: 1, first_seq, commands }
    }

    #[test]
    fn batches_are_packed_in_order_up_to_the_limit() {
        let mut waiting: VecDeque<_> = [batch(1, 200), batch(201, 300), batch(501, 100)].into();
        let first = pack(&mut waiting, 7);
        assert_eq!(first.batches.iter().map(|b| b.first_seq).collect::<Vec<_>>(), [1, 201]);
        assert_eq!(first.at_ms, 7);
        let second = pack(&mut waiting, 7);
        assert_eq!(second.batches.iter().map(|b| b.first_seq).collect::<Vec<_>>(), [501]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_batch_over_the_limit_goes_alone() {
        let mut waiting: VecDeque<_> = [batch(1, COMMANDS_MAX * 2), batch(2000, 1)].into();
        assert_eq!(pack(&mut waiting, 7).batches.len(), 1);
    }
}
