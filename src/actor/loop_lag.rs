//! How late the node's threads are: a timer on each, and what it finds.
//!
//! A thread that is a moment late now and then does no harm, one that is late all the time makes every client wait: what counts for the overload
//! level is the mean of about the last second, what the histogram has is each look.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::clock;
use crate::telemetry::Metrics;

/// Between two looks.
const PERIOD_MS: u64 = 100;
const PERIOD: Duration = Duration::from_millis(PERIOD_MS);
/// Looks of which the mean is taken.
const LOOKS: u32 = 10;

/// The lag of all threads that are watched.
#[derive(Debug, Default)]
pub struct LoopLags(Mutex<Vec<Arc<Lag>>>);

/// One thread's.
#[derive(Debug)]
struct Lag {
    /// Of the last looks, microseconds.
    mean_us: AtomicU64,
    /// When the next look is due, monotonic.
    due_ms: AtomicU64,
}

impl Lag {
    /// The mean; a look that is overdue counts with what it has by now, or a thread that stands still would show nothing.
    fn mean(&self, now_ms: u64) -> Duration {
        let overdue_ms = now_ms.saturating_sub(self.due_ms.load(Ordering::Relaxed));
        let mean = Duration::from_micros(self.mean_us.load(Ordering::Relaxed));
        mean.max(Duration::from_millis(overdue_ms / u64::from(LOOKS)))
    }
}

impl LoopLags {
    /// The mean lag of the thread that has most.
    pub fn worst(&self, now_ms: u64) -> Duration {
        self.0.lock().iter().map(|lag| lag.mean(now_ms)).max().unwrap_or_default()
    }

    /// Watches the thread, or the runtime, that runs the future: as long as it does.
    pub fn watch(&self, arbiter: &str, metrics: &Metrics) -> impl Future<Output = ()> + Send + 'static {
        let due_ms = clock::now().mono_ms + PERIOD_MS;
        let lag = Arc::new(Lag { mean_us: AtomicU64::new(0), due_ms: AtomicU64::new(due_ms) });
        self.0.lock().push(Arc::clone(&lag));
        let histogram = metrics.vitals.loop_lag.with_label_values(&[arbiter]);
        async move {
            let mut looks = [Duration::ZERO; LOOKS as usize];
            for place in (0..looks.len()).cycle() {
                let due = Instant::now() + PERIOD;
                lag.due_ms.store(clock::now().mono_ms + PERIOD_MS, Ordering::Relaxed);
                sleep_until(due).await;
                let late = due.elapsed();
                histogram.observe(late.as_secs_f64());
                if let Some(look) = looks.get_mut(place) {
                    *look = late;
                }
                let mean = looks.iter().sum::<Duration>() / LOOKS;
                lag.mean_us.store(u64::try_from(mean.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_does_not_come_counts_too() {
        let lag = Lag { mean_us: AtomicU64::new(20_000), due_ms: AtomicU64::new(1_000) };
        for (now_ms, mean_ms) in [(500, 20), (1_000, 20), (1_150, 20), (2_000, 100), (11_000, 1_000)] {
            assert_eq!(lag.mean(now_ms), Duration::from_millis(mean_ms), "{now_ms}");
        }
    }

    #[actix_web::test]
    async fn a_thread_that_is_kept_busy_is_late() {
        let (lags, metrics) = (LoopLags::default(), Metrics::new().unwrap());
        let watched = actix_rt::spawn(lags.watch("0", &metrics));
        let busy = async {
            // Until it shows, not for a time: the machine may have other work.
            while lags.worst(clock::now().mono_ms) < Duration::from_millis(50) {
                #[expect(clippy::disallowed_methods, reason = "it is to block the thread")]
                std::thread::sleep(Duration::from_millis(250));
                tokio::task::yield_now().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), busy).await.unwrap();
        watched.abort();
        assert!(metrics.vitals.loop_lag.with_label_values(&["0"]).get_sample_sum() > 0.4);
    }
}
