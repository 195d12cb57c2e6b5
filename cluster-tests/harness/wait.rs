//! Waiting for conditions.

use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(20);

/// Asks until the answer is there; panics with `what` when `within` has passed.
#[track_caller]
pub fn until<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        std::thread::sleep(POLL);
    }
}

/// The same where asking waits.
pub async fn until_async<T>(what: &str, within: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}
