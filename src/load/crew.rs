//! The threads that make the load, and the one who conducts them: orders go out, reports come back, and every wait has an end.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use tokio::time::MissedTickBehavior;

use super::Failure;
use super::clock::Clock;
use super::counters::{Counters, Pending, Totals};
use super::latency::Latency;
use super::progress::Progress;
use super::report::Slice;
use super::thread::{Phase, Thread};
use super::units::{millis, nanos, seconds};

/// Reports that wait to be read; a failure beyond is one of many.
const REPORTS_MAX: usize = 1024;
/// Slices of the series at most: a day of seconds.
const SLICES_MAX: usize = 86_400;
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// For the threads to part with their clients, beyond what each client takes.
const FINISH_WITHIN: Duration = Duration::from_secs(20);

/// What a thread is to do next; orders only advance.
pub(super) type Step = u8;
/// The step that ends all.
pub(super) const FINISH: Step = u8::MAX;

enum Report {
    Done(Step),
    Failed(Failure),
}

/// A thread's end of the line.
#[derive(Clone)]
pub(super) struct Line {
    orders: watch::Receiver<Step>,
    reports: mpsc::Sender<Report>,
}

impl Line {
    /// Waits for a step, or a later one; whether it is this one and not the end.
    pub(super) async fn wait(&mut self, step: Step) -> bool {
        match self.orders.wait_for(|given| *given >= step).await {
            Ok(given) => *given != FINISH || step == FINISH,
            // Nobody conducts any more.
            Err(_) => false,
        }
    }

    pub(super) async fn done(&self, step: Step) {
        _ = self.reports.send(Report::Done(step)).await;
    }

    pub(super) fn failed(&self, failure: Failure) {
        _ = self.reports.try_send(Report::Failed(failure));
    }
}

/// Why a scene does not go on as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    Failed,
    Interrupted,
    TooLong,
}

/// What is read at a border of measuring.
#[derive(Clone, Default)]
pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) totals: Totals,
    cpu_ns: Vec<Option<u64>>,
}

pub(super) struct Crew<P> {
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Vec<Arc<Counters>>,
    pub(super) failures: Vec<Failure>,
    pub(super) interrupted: bool,
    pub(super) series: Vec<Slice>,
    /// All times of the run so far.
    pub(super) times: Pending,
    pub(super) begin: Option<Reading>,
    pub(super) end: Option<Reading>,
    /// Beside what is between `begin` and `end`, where it counts whether the tool was busy.
    intervals: Vec<(Reading, Reading)>,
    threads: Vec<JoinHandle<Result<P, Failure>>>,
    orders: watch::Sender<Step>,
    reports: mpsc::Receiver<Report>,
    interrupt: Option<Signal>,
    hurry: bool,
    progress: Progress,
    slice: Duration,
    last: (u64, Totals),
    ticks: tokio::time::Interval,
}

pub(super) struct Setting {
    pub(super) threads: usize,
    pub(super) run: u32,
    pub(super) keep_alive_s: u16,
    pub(super) packet_bytes_max: usize,
    pub(super) slice: Duration,
    pub(super) progress: Progress,
}

/// Starts the threads; each runs `work`, with a runtime and clients of its own. To be called in a runtime.
pub(super) fn start<P, F, W>(setting: Setting, work: W) -> Result<Crew<P>, Failure>
where
    P: Send + 'static,
    F: Future<Output = Result<P, Failure>>,
    W: Fn(std::rc::Rc<Thread>, Line) -> F + Clone + Send + 'static,
{
    let clock = Arc::new(Clock::new());
    let (orders, given) = watch::channel(0);
    let (reporter, reports) = mpsc::channel(REPORTS_MAX);
    let (mut threads, mut counters) = (Vec::new(), Vec::new());
    for index in 0..setting.threads {
        let counted = Arc::new(Counters::new());
        counters.push(Arc::clone(&counted));
        let line = Line { orders: given.clone(), reports: reporter.clone() };
        let (clock, work) = (Arc::clone(&clock), work.clone());
        let Setting { threads: all, run, keep_alive_s, packet_bytes_max, .. } = setting;
        let body = move || {
            counted.belong_to_this_thread();
            let runtime =
                runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::local("start a runtime"))?;
            let thread = std::rc::Rc::new(Thread::new(index, all, run, keep_alive_s, packet_bytes_max, clock, counted));
            let outcome = LocalSet::new().block_on(&runtime, async {
                let beat = async { thread.beat().await };
                tokio::select! {
                    outcome = work(std::rc::Rc::clone(&thread), line.clone()) => outcome,
                    () = beat => Err(Failure::Protocol("the beat ended".into())),
                }
            });
            if let Err(failure) = &outcome {
                line.failed(failure.clone());
            }
            outcome
        };
        let started = std::thread::Builder::new().name(format!("load-{index}")).spawn(body);
        threads.push(started.map_err(Failure::local("start a thread"))?);
    }
    let mut ticks = tokio::time::interval_at((Instant::now() + setting.slice).into(), setting.slice);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    Ok(Crew {
        clock,
        counters,
        failures: Vec::new(),
        interrupted: false,
        series: Vec::new(),
        times: Pending { latency: Latency::new(), acknowledged: Latency::new(), lag: Latency::new() },
        begin: None,
        end: None,
        intervals: Vec::new(),
        threads,
        orders,
        reports,
        interrupt: signal(SignalKind::interrupt()).ok(),
        hurry: false,
        progress: setting.progress,
        slice: setting.slice,
        last: (0, Totals::default()),
        ticks,
    })
}

impl<P> Crew<P> {
    pub(super) fn totals(&self) -> Totals {
        Totals::of(self.counters.iter().map(|counters| &**counters))
    }

    pub(super) fn order(&self, step: Step) {
        self.orders.send_if_modified(|given| {
            let is_later = *given < step;
            *given = step.max(*given);
            is_later
        });
    }

    pub(super) fn say(&mut self, doing: &'static str) {
        self.progress.doing(doing);
    }

    /// Waits until every thread has reported this step as done.
    pub(super) async fn all_done(&mut self, step: Step, within: Duration) -> Result<(), Halt> {
        let mut left = self.threads.len();
        let until = Instant::now() + within;
        while left > 0 {
            match self.wait(until).await? {
                Some(Report::Done(done)) if done == step => left -= 1,
                Some(_) => {}
                None => return Err(Halt::TooLong),
            }
        }
        Ok(())
    }

    /// Lets the load go on for so long.
    pub(super) async fn run_for(&mut self, time: Duration) -> Result<(), Halt> {
        let until = Instant::now() + time;
        while self.wait(until).await?.is_some() {}
        Ok(())
    }

    /// The same, or until the condition holds.
    pub(super) async fn run_until(&mut self, time: Duration, mut holds: impl FnMut(&Totals) -> bool) -> Result<(), Halt> {
        let until = Instant::now() + time;
        while Instant::now() < until && !holds(&self.totals()) {
            self.wait(until.min(Instant::now() + LOOK)).await?;
        }
        Ok(())
    }

    /// Waits until the condition holds; `TooLong` once nothing has moved for `quiet`.
    pub(super) async fn until(&mut self, quiet: Duration, mut holds: impl FnMut(&Totals) -> bool) -> Result<(), Halt> {
        let mut before = self.totals();
        let mut moved = Instant::now();
        loop {
            let totals = self.totals();
            if holds(&totals) {
                return Ok(());
            }
            if totals != before {
                before = totals;
                moved = Instant::now();
            }
            if moved.elapsed() > quiet {
                return Err(Halt::TooLong);
            }
            self.wait(Instant::now() + LOOK).await?;
        }
    }

    /// Begins measuring.
    pub(super) fn begin(&mut self) {
        let reading = self.read(self.clock.begin());
        self.begin = Some(reading);
    }

    /// Ends measuring, if it began.
    pub(super) fn end(&mut self) {
        if self.begin.is_some() && self.end.is_none() {
            let reading = self.read(self.clock.end());
            self.end = Some(reading);
        }
    }

    /// Has the threads part with their clients, and gives what they report.
    pub(super) async fn finish(&mut self, within: Duration) -> Vec<P> {
        self.end();
        self.order(FINISH);
        let until = Instant::now() + within + FINISH_WITHIN;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until && !self.hurry {
            if self.wait(Instant::now() + LOOK).await.is_err() && self.hurry {
                break;
            }
        }
        self.tick();
        self.progress.end();
        let mut parts = Vec::new();
        for thread in std::mem::take(&mut self.threads) {
            if !thread.is_finished() {
                self.failures.push(Failure::Timeout { what: "end of a load thread", ms: (within + FINISH_WITHIN).as_millis() });
                continue;
            }
            match thread.join() {
                Ok(Ok(part)) => parts.push(part),
                // Reported already, unless nobody listened.
                Ok(Err(failure)) if self.failures.is_empty() => self.failures.push(failure),
                Ok(Err(_)) => {}
                Err(_) => self.failures.push(Failure::Protocol("a load thread panicked".into())),
            }
        }
        parts
    }

    /// A reading now, for [`Crew::note_interval`].
    pub(super) fn reading(&self) -> Reading {
        self.read(self.clock.now_ns())
    }

    /// Counts the time since this reading where it is asked whether the tool was busy.
    pub(super) fn note_interval(&mut self, since: Reading) {
        let now = self.reading();
        self.intervals.push((since, now));
    }

    /// The largest part of an interval that one thread was busy; `None` where that is not known.
    pub(super) fn busiest(&self) -> Option<f64> {
        let measured = self.begin.as_ref().zip(self.end.as_ref());
        let noted = self.intervals.iter().map(|(begin, end)| (begin, end));
        measured.into_iter().chain(noted).filter_map(|(begin, end)| busiest(begin, end)).reduce(f64::max)
    }
    /// One report, or `None` at that time.
    async fn wait(&mut self, until: Instant) -> Result<Option<Report>, Halt> {
        loop {
            if self.hurry {
                return Err(Halt::Interrupted);
            }
            let interrupted = async {
                match &mut self.interrupt {
                    Some(signal) => _ = signal.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = interrupted => {
                    // The second time all waits end.
                    self.hurry = self.interrupted;
                    self.interrupted = true;
                    return Err(Halt::Interrupted);
                }
                Some(report) = self.reports.recv() => match report {
                    Report::Failed(failure) => {
                        self.failures.push(failure);
                        return Err(Halt::Failed);
                    }
                    done @ Report::Done(_) => return Ok(Some(done)),
                },
                _ = self.ticks.tick() => self.tick(),
                () = tokio::time::sleep_until(until.into()) => return Ok(None),
            }
        }
    }

    /// Ends a slice of the series.
    fn tick(&mut self) {
        let now = self.clock.now_ns();
        let totals = self.totals();
        let mut slice = Pending { latency: Latency::new(), acknowledged: Latency::new(), lag: Latency::new() };
        for counters in &self.counters {
            let Pending { latency, acknowledged, lag } = counters.take_times();
            slice.latency.add(latency);
            slice.acknowledged.add(acknowledged);
            slice.lag.add(lag);
        }
        let (since, before) = self.last;
        let times = slice.latency.times();
        let per_second = |now: u64, before: u64, elapsed: f64| now.saturating_sub(before) as f64 / elapsed;
        let elapsed = seconds(now.saturating_sub(since)).max(1e-9);
        let row = Slice {
            at_ms: millis(now),
            measured: self.begin.is_some() && self.end.is_none(),
            connects: per_second(totals.connected, before.connected, elapsed),
            sent: per_second(totals.sent, before.sent, elapsed),
            acknowledged: per_second(totals.acked, before.acked, elapsed),
            received: per_second(totals.received, before.received, elapsed),
            connected: totals.connected.saturating_sub(totals.lost + totals.parted),
            p50_ms: times.p50,
            p99_ms: times.p99,
            max_ms: times.max,
        };
        self.progress.tick(&row, now);
        if self.series.len() < SLICES_MAX && now.saturating_sub(since) >= nanos(self.slice) / 2 {
            self.series.push(row);
        }
        self.times.latency.add(slice.latency);
        self.times.acknowledged.add(slice.acknowledged);
        self.times.lag.add(slice.lag);
        self.last = (now, totals);
    }

    fn read(&self, at_ns: u64) -> Reading {
        Reading { at_ns, totals: self.totals(), cpu_ns: self.counters.iter().map(|counters| counters.cpu_ns()).collect() }
    }
}

/// Enters a phase of the thread when a step is ordered; to be awaited beside the work.
pub(super) async fn enter_at(thread: &Thread, line: &mut Line, step: Step, phase: Phase) -> bool {
    let goes_on = line.wait(step).await;
    if goes_on {
        thread.enter(phase);
    }
    goes_on
}

/// The largest part of the time between two readings that one thread was busy.
fn busiest(begin: &Reading, end: &Reading) -> Option<f64> {
    let elapsed = end.at_ns.saturating_sub(begin.at_ns).max(1) as f64;
    let used =
        begin.cpu_ns.iter().zip(&end.cpu_ns).filter_map(|(begin, end)| Some(end.as_ref()?.saturating_sub(*begin.as_ref()?)));
    used.max().map(|ns| ns as f64 / elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_thread_counts_and_one_that_cannot_be_read_does_not() {
        let reading = |at_ns, cpu_ns: &[Option<u64>]| Reading { at_ns, cpu_ns: cpu_ns.to_vec(), ..Reading::default() };
        let begin = reading(1_000, &[Some(100), Some(200), None]);
        let end = reading(2_000, &[Some(500), Some(1_150), Some(9_000)]);
        assert_eq!(busiest(&begin, &end), Some(0.95));
        assert_eq!(busiest(&reading(0, &[None]), &reading(9, &[Some(5)])), None);
    }
}
