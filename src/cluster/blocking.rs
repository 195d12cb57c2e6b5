//! What waits for the disk runs beside the async threads; in a simulated node, which has one thread, at once.

use tokio::task::JoinError;

/// Runs `work` where it may block.
pub async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, JoinError> {
    #[cfg(any(test, feature = "sim"))]
    if super::simulated::is_on() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}

/// Runs `work`, for whose end nobody waits, where it may block.
pub fn beside(work: impl FnOnce() + Send + 'static) {
    #[cfg(any(test, feature = "sim"))]
    if super::simulated::is_on() {
        return work();
    }
    tokio::task::spawn_blocking(work);
}
