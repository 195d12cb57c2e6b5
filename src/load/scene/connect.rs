//! Clients that connect, in a closed loop, at a rate or all at once, and stay.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::{JoinHandle, spawn_local};

use super::{Names, SETUP_WITHIN, conclude, forget, join_all, mine};
use crate::load::client::{Client, Session};
use crate::load::connection::Connection;
use crate::load::counters::add;
use crate::load::crew::{self, Crew, FINISH, Halt, Line, Setting, Step};
use crate::load::drive::{Idle, drive};
use crate::load::latency::Latency;
use crate::load::numbering::share;
use crate::load::pace::Metronome;
use crate::load::report::Outcome;
use crate::load::thread::{Phase, Thread};
use crate::load::units::{seconds, whole};
use crate::load::{ConnectPace, ConnectPlan, Failure, Mark, Observer};

const READY: Step = 1;
const GO: Step = 2;
/// For the threads to start.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Reasons kept apart.
const REASONS_MAX: usize = 20;
/// Pauses before another try differ by so many steps, lest all come back at once.
const SPREAD: u32 = 16;
/// For all to part.
const PART_WITHIN: Duration = Duration::from_secs(30);

pub(super) async fn play(
    plan: &ConnectPlan,
    names: Arc<Names>,
    setting: Setting,
    outcome: &mut Outcome,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    let threads = setting.threads;
    let (tells_resumed, before) = (names.target.is_tls(), names.target.resumes());
    let shared = plan.clone();
    let mut crew = crew::start(setting, move |thread, line| work(shared.clone(), Arc::clone(&names), thread, line))?;
    let storm = storm(plan, before, &mut crew, observer).await;
    let totals = crew.totals();
    let parts = crew.finish(PART_WITHIN).await;
    report(plan, tells_resumed, parts, outcome);
    outcome.add("lost", "connections lost while held", "", totals.lost as f64);
    conclude(&mut crew, threads, matches!(plan.pace, ConnectPace::Rate(_)), outcome);
    match storm {
        Ok(seen) => return seen,
        Err(Halt::TooLong) => outcome.faults.push("connecting took too long".into()),
        Err(Halt::Failed | Halt::Interrupted) => {}
    }
    Ok(())
}

async fn storm(
    plan: &ConnectPlan,
    before: bool,
    crew: &mut Crew<Part>,
    observer: &mut dyn Observer,
) -> Result<Result<(), Failure>, Halt> {
    crew.all_done(READY, if before { SETUP_WITHIN } else { READY_WITHIN }).await?;
    if let Err(failure) = observer.at(Mark::Ready) {
        return Ok(Err(failure));
    }
    crew.say("connecting");
    crew.begin();
    if let Err(failure) = observer.at(Mark::Begin) {
        return Ok(Err(failure));
    }
    crew.order(GO);
    crew.all_done(GO, SETUP_WITHIN.max(expected(plan) * 2)).await?;
    crew.end();
    if let Err(failure) = observer.at(Mark::End).and_then(|()| observer.at(Mark::Connected)) {
        return Ok(Err(failure));
    }
    crew.say("holding");
    // Where all are lost there is nothing to hold.
    crew.run_until(plan.hold, |totals| totals.connected > 0 && totals.lost >= totals.connected).await?;
    Ok(observer.at(Mark::Held))
}

fn spread(number: usize) -> u32 {
    u32::try_from(number % SPREAD as usize).unwrap_or(0)
}

/// How long the storm takes where the pace is given.
fn expected(plan: &ConnectPlan) -> Duration {
    match plan.pace {
        ConnectPace::Rate(rate) => Duration::from_millis(whole(plan.clients as f64 / rate * 1000.0)),
        ConnectPace::Handshakes(_) | ConnectPace::Burst => Duration::ZERO,
    }
}

fn report(plan: &ConnectPlan, tells_resumed: bool, parts: Vec<Part>, outcome: &mut Outcome) {
    let mut latency = Latency::new();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    let (mut first_ns, mut last_ns, mut turned_away, mut resumed) = (u64::MAX, 0, 0, 0);
    for part in parts {
        turned_away += part.turned_away;
        resumed += part.resumed;
        for (began_ns, took_ns) in part.handshakes {
            latency.record(took_ns);
            first_ns = first_ns.min(began_ns);
            last_ns = last_ns.max(began_ns + took_ns);
        }
        part.reasons.into_iter().for_each(|(reason, count)| *reasons.entry(reason).or_default() += count);
    }
    let times = latency.times();
    let elapsed = seconds(last_ns.saturating_sub(first_ns));
    let rate = if elapsed > 0.0 { times.count as f64 / elapsed } else { 0.0 };
    outcome.add("connects_per_s", "connects", "per second", rate);
    outcome.add("connected", "clients connected", "", times.count as f64);
    outcome.add(
        "not_connected",
        "clients not connected",
        "",
        plan.clients.saturating_sub(usize::try_from(times.count).unwrap_or(0)) as f64,
    );
    if plan.retry.is_some() {
        outcome.add("turned_away", "tries that were turned away", "", turned_away as f64);
    }
    if tells_resumed {
        outcome.add("resumed", "clients whose TLS session was resumed", "", resumed as f64);
    }
    outcome.add("elapsed_s", "from the first SYN to the last CONNACK", "s", elapsed);
    outcome.times.push(("connect", "SYN to CONNACK", times));
    outcome.faults.extend(reasons.into_iter().map(|(reason, count)| format!("{count} clients: {reason}")));
}

/// What one thread reports.
struct Part {
    /// Begin, and time to the CONNACK; nanoseconds.
    handshakes: Vec<(u64, u64)>,
    turned_away: u64,
    /// Clients that were let in after a handshake that was not a full one.
    resumed: u64,
    /// Why clients were not let in or were lost.
    reasons: BTreeMap<String, u64>,
}

/// One thread's clients.
struct Crowd {
    plan: ConnectPlan,
    names: Arc<Names>,
    thread: Rc<Thread>,
    numbers: RefCell<Box<dyn Iterator<Item = usize>>>,
    handshakes: RefCell<Vec<(u64, u64)>>,
    reasons: RefCell<BTreeMap<String, u64>>,
    held: RefCell<Vec<JoinHandle<()>>>,
    under_way: Cell<usize>,
    /// Tries that ended with a client outside.
    turned_away: Cell<u64>,
    resumed: Cell<u64>,
}

async fn work(plan: ConnectPlan, names: Arc<Names>, thread: Rc<Thread>, mut line: Line) -> Result<Part, Failure> {
    let numbers: Box<dyn Iterator<Item = usize>> = Box::new(mine(&thread, plan.clients));
    let crowd = Rc::new(Crowd {
        plan,
        names,
        thread: Rc::clone(&thread),
        numbers: RefCell::new(numbers),
        handshakes: RefCell::default(),
        reasons: RefCell::default(),
        held: RefCell::default(),
        under_way: Cell::new(0),
        turned_away: Cell::new(0),
        resumed: Cell::new(0),
    });
    if crowd.names.target.resumes() {
        crowd.fetch_tickets().await;
    }
    line.done(READY).await;
    if line.wait(GO).await {
        thread.enter(Phase::Going);
        let mut end = line.clone();
        tokio::select! {
            connected = Rc::clone(&crowd).connect_all() => {
                connected?;
                line.done(GO).await;
                line.wait(FINISH).await;
            }
            _ = end.wait(FINISH) => {}
        }
    }
    thread.enter(Phase::Finishing);
    join_all(crowd.held.take(), PART_WITHIN).await;
    Ok(Part {
        handshakes: crowd.handshakes.take(),
        turned_away: crowd.turned_away.get(),
        resumed: crowd.resumed.get(),
        reasons: crowd.reasons.take(),
    })
}

impl Crowd {
    /// Each client comes and goes once before the storm, as a fleet has been there before it comes back: with a name of its own, so that no
    /// session that is kept ends. The first that is not let in is the last: the storm itself says what is wrong, and `resumed` who had no ticket.
    async fn fetch_tickets(&self) {
        let visit = |number: usize| async move {
            let id = self.names.client("before-", number);
            Client::open(&self.names.target, number, &id, &Session::CLEAN).await?.disconnect().await
        };
        let visits = stream::iter(mine(&self.thread, self.plan.clients)).map(visit);
        let _: Result<(), Failure> = visits.buffer_unordered(self.names.handshakes_of(&self.thread)).try_collect().await;
    }

    async fn connect_all(self: Rc<Self>) -> Result<(), Failure> {
        let at_once = match self.plan.pace {
            ConnectPace::Rate(rate) => return self.connect_at(rate).await,
            ConnectPace::Handshakes(all) => share(all, self.thread.threads, self.thread.index).max(1),
            ConnectPace::Burst => self.plan.clients,
        };
        let workers = at_once.min(share(self.plan.clients, self.thread.threads, self.thread.index));
        let tasks: Vec<_> = (0..workers).map(|_| spawn_local(Rc::clone(&self).connect_in_turn())).collect();
        for task in tasks {
            _ = task.await;
        }
        Ok(())
    }

    async fn connect_in_turn(self: Rc<Self>) {
        while let Some(number) = self.next_number() {
            let began_ns = self.thread.clock.now_ns();
            Rc::clone(&self).connect(number, began_ns).await;
        }
    }

    fn next_number(&self) -> Option<usize> {
        if self.thread.is_finishing() { None } else { self.numbers.borrow_mut().next() }
    }

    /// The open loop: times count from when a client was to connect.
    async fn connect_at(self: Rc<Self>, per_second: f64) -> Result<(), Failure> {
        let metronome = Metronome::new()?;
        let start_ns = self.thread.clock.now_ns();
        while let Some(number) = self.next_number() {
            let due_ns = start_ns + whole(number as f64 / per_second * 1e9);
            let now = self.thread.clock.now_ns();
            if due_ns > now {
                metronome.sleep(due_ns - now).await;
            }
            self.thread.counters.times.lock().lag.record(self.thread.clock.now_ns().saturating_sub(due_ns));
            self.under_way.set(self.under_way.get() + 1);
            let crowd = Rc::clone(&self);
            spawn_local(async move {
                Rc::clone(&crowd).connect(number, due_ns).await;
                crowd.under_way.set(crowd.under_way.get() - 1);
            });
            tokio::task::yield_now().await;
        }
        // Each attempt has an end of its own.
        while self.under_way.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn connect(self: Rc<Self>, number: usize, began_ns: u64) {
        let id = self.names.client("", number);
        let session = match self.plan.session_expiry_s {
            0 => Session::CLEAN,
            expiry_s => Session::kept(expiry_s),
        };
        let opened = loop {
            match (Client::open(&self.names.target, number, &id, &session).await, self.plan.retry) {
                (Err(failure), Some(pause)) if failure.is_passing() && !self.thread.is_finishing() => {
                    self.turned_away.set(self.turned_away.get() + 1);
                    tokio::time::sleep(pause + pause * spread(number) / (2 * SPREAD)).await;
                }
                (opened, _) => break opened,
            }
        };
        match opened {
            Ok(client) => {
                let took_ns = self.thread.clock.now_ns().saturating_sub(began_ns);
                add(&self.thread.counters.connected, 1);
                self.resumed.set(self.resumed.get() + u64::from(client.is_resumed()));
                self.thread.counters.times.lock().latency.record(took_ns);
                self.handshakes.borrow_mut().push((began_ns, took_ns));
                let held = spawn_local(Rc::clone(&self).hold(number, id, client));
                self.held.borrow_mut().push(held);
            }
            Err(failure) => {
                add(&self.thread.counters.failed, 1);
                self.note(&failure.to_string());
            }
        }
    }

    /// Until the thread finishes.
    async fn hold(self: Rc<Self>, number: usize, id: String, client: Client) {
        let gate = self.thread.new_gate();
        let kept = self.plan.session_expiry_s > 0 && !self.plan.keep;
        match drive(Connection::from(client), &RefCell::new(Idle), &gate, &self.thread).await {
            Ok(connection) => {
                add(&self.thread.counters.parted, 1);
                _ = connection.into_client().part(kept.then_some(0)).await;
                if kept && !self.names.target.version.is_v5() {
                    forget(&self.names, number, &id).await;
                }
            }
            Err(failure) => {
                add(&self.thread.counters.lost, 1);
                self.note(&format!("lost: {failure}"));
            }
        }
    }

    fn note(&self, reason: &str) {
        let mut reasons = self.reasons.borrow_mut();
        let reason = if reasons.len() < REASONS_MAX || reasons.contains_key(reason) { reason } else { "other reasons" };
        *reasons.entry(reason.to_owned()).or_default() += 1;
    }
}
