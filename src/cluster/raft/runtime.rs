//! The runtime openraft runs on: tokio, and where nodes may be simulated its randomness is that of `cluster::chance`.

use std::fmt;
use std::io;
use std::time::Duration;

use openraft::{AsyncRuntime, OptionalSend};

use crate::cluster::blocking::blocking;
#[cfg(any(test, feature = "sim"))]
use crate::cluster::chance;
#[cfg(any(test, feature = "sim"))]
use futures_util::FutureExt;
#[cfg(any(test, feature = "sim"))]
use openraft::rt::deterministic_rng::DeterministicRng;

#[allow(deprecated, reason = "the crate it moved to is no dependency of ours")]
type Tokio = openraft::impls::TokioRuntime;

/// openraft's tokio runtime but for chance, which decides when elections begin.
pub struct Runtime(Tokio);

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsyncRuntime for Runtime {
    type JoinError = <Tokio as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Tokio as AsyncRuntime>::Sleep;
    type Instant = <Tokio as AsyncRuntime>::Instant;
    type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Tokio as AsyncRuntime>::Timeout<R, T>;
    #[cfg(any(test, feature = "sim"))]
    type ThreadLocalRng = <DeterministicRng<Tokio> as AsyncRuntime>::ThreadLocalRng;
    #[cfg(not(any(test, feature = "sim")))]
    type ThreadLocalRng = <Tokio as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <Tokio as AsyncRuntime>::Mpsc;
    type Watch = <Tokio as AsyncRuntime>::Watch;
    type Oneshot = <Tokio as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Tokio::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Tokio::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Tokio::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(duration: Duration, future: F) -> Self::Timeout<R, F> {
        Tokio::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(deadline: Self::Instant, future: F) -> Self::Timeout<R, F> {
        Tokio::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        Tokio::is_panic(join_error)
    }

    #[cfg(not(any(test, feature = "sim")))]
    fn thread_rng() -> Self::ThreadLocalRng {
        Tokio::thread_rng()
    }

    #[cfg(any(test, feature = "sim"))]
    #[expect(clippy::expect_used, reason = "a future that awaits nothing is ready at its first poll")]
    fn thread_rng() -> Self::ThreadLocalRng {
        let draw = async { DeterministicRng::<Tokio>::thread_rng() };
        DeterministicRng::<Tokio>::scope(chance::random(), draw).now_or_never().expect("nothing is awaited")
    }

    fn new(threads: usize) -> Self {
        Self(Tokio::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }

    async fn spawn_blocking<F, T>(f: F) -> Result<T, io::Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        blocking(f).await.map_err(io::Error::other)
    }
}
