//! Threads that compute what takes long, such as a password's hash, so that no arbiter waits for it. The line before them is bounded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::auth::{Answer, Computation};

/// Computations that may wait.
const LINE_MAX: usize = 1024;

struct Job {
    computation: Computation,
    answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    closed: bool,
}

type Shared = Arc<(Mutex<Line>, Condvar)>;

/// The threads; they end with it, once the line is empty.
pub(super) struct Pool(Shared);

impl Pool {
    /// Starts half as many threads as there are cores: a flood of logins leaves the others to the clients that are connected.
    pub(super) fn start() -> std::io::Result<Self> {
        let shared = Shared::default();
        let pool = Self(Arc::clone(&shared));
        let threads = thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        for number in 0..threads {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(format!("login-{number}")).spawn(move || work(&shared))?;
        }
        Ok(pool)
    }

    /// Has something computed; `None` where the line is full. The receiver hears nothing where the computation fails.
    pub(super) fn run(&self, computation: Computation) -> Option<oneshot::Receiver<Answer>> {
        let (line, wake) = &*self.0;
        let (answer, receiver) = oneshot::channel();
        {
            let mut line = line.lock();
            if line.jobs.len() >= LINE_MAX {
                return None;
            }
            line.jobs.push_back(Job { computation, answer });
        }
        wake.notify_one();
        Some(receiver)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let (line, wake) = &*self.0;
        line.lock().closed = true;
        wake.notify_all();
    }
}

fn work(shared: &Shared) {
    let (line, wake) = &**shared;
    loop {
        let job = {
            let mut line = line.lock();
            loop {
                match line.jobs.pop_front() {
                    Some(job) => break job,
                    None if line.closed => return,
                    None => wake.wait(&mut line),
                }
            }
        };
        // A client that has gone needs no answer.
        if job.answer.is_closed() {
            continue;
        }
        // One that panics costs its own answer, not the thread.
        let computation = std::panic::AssertUnwindSafe(job.computation);
        if let Ok(answer) = std::panic::catch_unwind(|| { computation }.0()) {
            _ = job.answer.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Refusal, Verdict};

    fn refuse() -> Answer {
        Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS))
    }

    #[test]
    fn what_does_not_fit_into_the_line_is_not_taken_and_the_rest_is_answered() {
        let pool = Pool::start().unwrap();
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock();
        let waits = || {
            let gate = Arc::clone(&gate);
            let computation: Computation = Box::new(move || {
                drop(gate.lock());
                refuse()
            });
            pool.run(computation)
        };
        let mut taken = Vec::new();
        // Those that threads hold already are not in the line any more.
        let threads = thread::available_parallelism().map_or(1, usize::from);
        while let Some(receiver) = waits() {
            taken.push(receiver);
            assert!(taken.len() <= LINE_MAX + threads);
        }
        assert!(taken.len() >= LINE_MAX);
        drop(held);
        for receiver in taken {
            assert!(matches!(receiver.blocking_recv(), Ok(Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)))));
        }
    }

    #[test]
    fn a_computation_that_panics_costs_its_own_answer() {
        let pool = Pool::start().unwrap();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..threads * 2 {
            assert!(pool.run(Box::new(|| panic!("a test"))).unwrap().blocking_recv().is_err());
        }
        assert!(pool.run(Box::new(refuse)).unwrap().blocking_recv().is_ok());
    }
}
