//! The end of a node, in good order: not ready, no new clients, leadership to others, clients parted with at a rate, goodbye to the cluster,
//! everything on the disk. It does not leave the cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_rt::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Broker, POLL};
use crate::actor::hub::HubItem;
use crate::actor::parting::{self, Whom};
use crate::cluster::handle::{GOODBYE, HAND_OVER};
use crate::mqtt::ReasonCode;
use crate::replica::ShardId;

/// Kept of the time for what follows the parting with clients; of a short time a third.
const RESERVE: Duration = Duration::from_secs(4);
/// In haste, the whole may take so long.
const HASTE: Duration = Duration::from_secs(3);
/// Clients that did not leave in time get this long to be told.
const LAST_WORD: Duration = Duration::from_millis(500);
/// The event log may take so long to write what it was told.
const LAST_LINES: Duration = Duration::from_millis(500);
/// What connections left to be stored is waited for so long.
const SETTLE: Duration = Duration::from_secs(1);

/// What is done in this order; for the log.
const STAGES: [&str; 7] = [
    "the delay before clients are parted with",
    "handing leadership over",
    "parting with clients",
    "storing the ends of connections",
    "the goodbye to the other nodes",
    "flushing",
    "closing HTTP",
];

impl Broker {
    /// Stops within the configured time. `haste`: no delay, no rate, and 3 s at most.
    pub async fn stop(self, haste: CancellationToken) {
        let allowed = self.shutdown.timeout;
        let until = Instant::now() + allowed;
        let stage = AtomicUsize::new(0);
        let in_time = async {
            tokio::select! {
                () = sleep(allowed) => {}
                () = async { haste.cancelled().await; sleep(HASTE).await } => {}
            }
        };
        let stopped = tokio::select! {
            () = self.stop_in_order(&haste, until, &stage) => true,
            () = in_time => false,
        };
        if stopped {
            if let Some(admin) = self.admin {
                admin.finish().await;
            }
            let events = self.node.events.clone();
            _ = actix_rt::task::spawn_blocking(move || events.flush(LAST_LINES)).await;
            return;
        }
        tracing::warn!(
            unfinished = STAGES.get(stage.load(Ordering::Relaxed)),
            clients = self.node.connections.load(Ordering::Relaxed),
            leads = ?self.cluster.led(),
            commands_not_stored = self.pending(),
            "the time to stop is over: what is unfinished is left; nothing acknowledged is lost by that"
        );
    }

    async fn stop_in_order(&self, haste: &CancellationToken, until: Instant, stage: &AtomicUsize) {
        let begins = |number| stage.store(number, Ordering::Relaxed);
        let hasty = |what: Duration| async move {
            tokio::select! {
                () = sleep(what) => {}
                () = haste.cancelled() => {}
            }
        };
        let reserve = RESERVE.min(self.shutdown.timeout / 3);
        self.health.set_draining();
        self.cluster.begin_stop();
        hasty(self.shutdown.delay).await;
        for listener in &self.listeners {
            listener.stop();
        }
        begins(1);
        // First, so that what clients still send is stored without a change of leader in between.
        self.in_cluster(HAND_OVER.min(reserve), |cluster| async move { cluster.hand_over().await }).await;
        begins(2);
        let parting = until.checked_sub(reserve);
        let parted = async {
            parting::part_with(&self.node, Whom::All, parting, || true).await;
        };
        tokio::select! {
            () = parted => {}
            () = hasty(parting.map_or(Duration::ZERO, |by| by.saturating_duration_since(Instant::now()))) => {}
        }
        if self.node.connections.load(Ordering::Relaxed) > 0 {
            for hub in self.node.hubs() {
                hub.post(HubItem::CloseAll { reason_code: ReasonCode::ServerShuttingDown, tell_shard: true });
            }
            self.wait(LAST_WORD, || self.node.connections.load(Ordering::Relaxed) == 0).await;
        }
        begins(3);
        self.wait(SETTLE.min(reserve), || self.pending() == 0).await;
        begins(4);
        self.in_cluster(GOODBYE.min(reserve), |cluster| async move { cluster.say_goodbye().await }).await;
        begins(5);
        let cluster = self.cluster.clone();
        let _ = self.runtime.spawn(async move { cluster.close().await }).await;
        begins(6);
        for http in &self.http {
            http.stop().await;
        }
        self.declared.abort();
        self.overload.abort();
        self.credentials.iter().chain(&self.keys).for_each(actix_rt::task::JoinHandle::abort);
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        // Beside this thread: a disk that hangs must not hold up the end of the time allowed.
        let storage = std::sync::Arc::clone(&self.storage);
        if let Err(error) = actix_rt::task::spawn_blocking(move || storage.close()).await {
            tracing::warn!(%error, "the storage was not closed cleanly");
        }
    }

    async fn in_cluster<F>(&self, allowed: Duration, work: impl FnOnce(crate::cluster::Cluster) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = self.runtime.spawn(work(self.cluster.clone()));
        let _ = timeout(allowed, work).await;
    }

    async fn wait(&self, allowed: Duration, done: impl Fn() -> bool) {
        let until = Instant::now() + allowed;
        while !done() && Instant::now() < until {
            sleep(POLL).await;
        }
    }

    /// Commands of this node that have no outcome yet.
    fn pending(&self) -> usize {
        (0..self.cluster.shards()).map(|shard| self.cluster.pending(ShardId(shard))).sum()
    }
}
