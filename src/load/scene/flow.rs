//! Publishers and subscribers at work for a time: pairs, one to many, many to one, a shared subscription; and the same over several servers
//! one of which goes away.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;

use super::verdict::{Books, Rules};
use super::{Identity, Names, Post, SETUP_WITHIN, conclude, join_all, mine, serve};
use crate::load::client::{Client, Session};
use crate::load::crew::{self, Crew, FINISH, Halt, Line, Setting, Step, enter_at};
use crate::load::gate::Gate;
use crate::load::judge::{Arrivals, Track};
use crate::load::latency::Latency;
use crate::load::numbering::Numbering;
use crate::load::pace::{Paced, Schedule, keep_pace};
use crate::load::publisher::Publisher;
use crate::load::report::Outcome;
use crate::load::silence::Silence;
use crate::load::stamp::{Template, topic};
use crate::load::subscriber::{Ledger, Subscriber};
use crate::load::thread::{Phase, Thread};
use crate::load::units::seconds;
use crate::load::{Failure, FlowPlan, Mark, Observer, Shape};
use crate::mqtt::QoS;

const READY: Step = 1;
const GO: Step = 2;
const STOP: Step = 3;
/// For all to part.
const PART_WITHIN: Duration = Duration::from_secs(15);
/// Name of the shared subscription.
const GROUP: &str = "bench";

/// What all threads know.
struct Job {
    plan: FlowPlan,
    names: Arc<Names>,
    /// Of all publishers.
    gates: Arc<[Arc<Gate>]>,
}

pub(super) async fn play(
    plan: &FlowPlan,
    names: Arc<Names>,
    setting: Setting,
    outcome: &mut Outcome,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    let threads = setting.threads;
    let gates = (0..plan.shape.publishers()).map(|_| Arc::new(Gate::default())).collect();
    let job = Arc::new(Job { plan: plan.clone(), names, gates });
    let mut crew = crew::start(setting, move |thread, line| work(Arc::clone(&job), thread, line))?;
    let played = measure(plan, &mut crew, observer).await;
    crew.end();
    crew.order(STOP);
    if crew.begin.is_some() && crew.failures.is_empty() {
        crew.say("draining");
        // Before, a thread may still send.
        _ = crew.all_done(STOP, PART_WITHIN).await;
        let copies = plan.shape.copies() as u64;
        // What does not come is the verdict's.
        _ = crew.until(plan.drain, |totals| totals.under_way() == 0 && totals.received >= totals.acked * copies).await;
    }
    let parts: Vec<Part> = crew.finish(PART_WITHIN).await;
    report(plan, &crew, parts, outcome);
    conclude(&mut crew, threads, plan.rate.is_some(), outcome);
    match played {
        Ok(Err(failure)) => return Err(failure),
        Err(Halt::TooLong) => outcome.faults.push("connecting and subscribing took too long".into()),
        Ok(Ok(())) | Err(Halt::Failed | Halt::Interrupted) => {}
    }
    Ok(())
}

async fn measure(plan: &FlowPlan, crew: &mut Crew<Part>, observer: &mut dyn Observer) -> Result<Result<(), Failure>, Halt> {
    crew.say("connecting");
    crew.all_done(READY, SETUP_WITHIN).await?;
    if let Err(failure) = observer.at(Mark::Ready) {
        return Ok(Err(failure));
    }
    crew.say("warming up");
    crew.order(GO);
    crew.run_for(plan.warm_up).await?;
    crew.say("measuring");
    crew.begin();
    let seen = observer.at(Mark::Begin);
    let ran = if seen.is_ok() { crew.run_for(plan.duration).await } else { Ok(()) };
    crew.end();
    let seen = seen.and(observer.at(Mark::End));
    ran.map(|()| seen)
}

/// What one thread reports.
#[derive(Default)]
struct Part {
    books: Books,
    publishers: Vec<Silence>,
    subscribers: Vec<Silence>,
    returns: Latency,
}

fn report(plan: &FlowPlan, crew: &Crew<Part>, parts: Vec<Part>, outcome: &mut Outcome) {
    let rules = Rules { qos: plan.qos, ordered: !matches!(plan.shape, Shape::Shared { .. }) };
    let totals = crew.totals();
    let (mut publishers, mut subscribers, mut returns) = (Latency::new(), Latency::new(), Latency::new());
    let window = crew.begin.as_ref().zip(crew.end.as_ref());
    if let Some((begin, end)) = window {
        let elapsed = seconds(end.at_ns.saturating_sub(begin.at_ns)).max(1e-9);
        let rate = |after: u64, before: u64| after.saturating_sub(before) as f64 / elapsed;
        outcome.add("received_per_s", "messages received", "per second", rate(end.totals.received, begin.totals.received));
        outcome.add("sent_per_s", "messages sent", "per second", rate(end.totals.sent, begin.totals.sent));
        outcome.add("measured_s", "measured", "s", elapsed);
        outcome.add(
            "measured_messages",
            "messages received in that time",
            "",
            end.totals.received.saturating_sub(begin.totals.received) as f64,
        );
    }
    outcome.add("sent", "sent in all", "", totals.sent as f64);
    if plan.qos != QoS::AtMostOnce {
        outcome.add("acknowledged", "acknowledged in all", "", totals.acked as f64);
        outcome.add("refused", "refused in all", "", totals.refused as f64);
    }
    outcome.add("received", "received in all", "", totals.received as f64);
    let mut books = Vec::new();
    for part in parts {
        books.push(part.books);
        if let Some((begin, end)) = window {
            let longest = |silence: &Silence| silence.longest_ns(begin.at_ns, end.at_ns);
            part.publishers.iter().for_each(|silence| publishers.record(longest(silence)));
            part.subscribers.iter().for_each(|silence| subscribers.record(longest(silence)));
        }
        returns.add(part.returns);
    }
    let verdict = Books::judge(books);
    verdict.report(rules, outcome);
    if crew.failures.is_empty() {
        verdict.accuse(rules, outcome);
    }
    outcome.times.push(("latency", "to be sent until received", crew.times.latency.times()));
    if plan.qos != QoS::AtMostOnce {
        outcome.times.push(("acknowledged", "to be sent until acknowledged", crew.times.acknowledged.times()));
    }
    if plan.failover {
        outcome.add("connections_lost", "connections lost", "", totals.lost as f64);
        outcome.times.push(("reconnect", "until connected again", returns.times()));
        if plan.qos != QoS::AtMostOnce {
            outcome.times.push(("publisher_gap", "publishers: longest without an acknowledgement", publishers.times()));
        }
        outcome.times.push(("subscriber_gap", "subscribers: longest without a message", subscribers.times()));
    }
}

async fn work(job: Arc<Job>, thread: Rc<Thread>, mut line: Line) -> Result<Part, Failure> {
    let mut end = line.clone();
    let crowd = tokio::select! {
        crowd = Crowd::gather(&job, &thread) => crowd?,
        _ = end.wait(FINISH) => return Ok(Part::default()),
    };
    let returns = Rc::new(RefCell::new(Latency::new()));
    let mut tasks = Vec::new();
    let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
    for (number, client) in crowd.subscribers {
        let machine = Rc::new(RefCell::new(job.subscriber(number, &crowd.together)));
        let gate = thread.new_gate();
        let post = Post {
            identity: job.identify_subscriber(number),
            qos: job.plan.qos,
            session: job.session(),
            machine: Rc::clone(&machine),
            gate,
            returns: job.plan.failover.then(|| Rc::clone(&returns)),
        };
        subscribers.push(machine);
        tasks.push(spawn_local(serve(Rc::clone(&thread), line.clone(), Arc::clone(&job.names), post, client)));
    }
    let mut paced = Vec::new();
    for (number, client) in crowd.publishers {
        let Some(gate) = job.gates.get(number) else { continue };
        thread.adopt(gate);
        let mut publisher = job.publisher(number, gate, thread.run);
        publisher.narrow(client.receive_maximum);
        let machine = Rc::new(RefCell::new(publisher));
        let post = Post {
            identity: job.identify_publisher(number),
            qos: job.plan.qos,
            session: Session { receive_maximum: None, ..job.session() },
            machine: Rc::clone(&machine),
            gate: Arc::clone(gate),
            returns: job.plan.failover.then(|| Rc::clone(&returns)),
        };
        paced.extend(machine.borrow().schedule.map(|schedule| Paced { gate: Arc::clone(gate), schedule }));
        publishers.push(machine);
        tasks.push(spawn_local(serve(Rc::clone(&thread), line.clone(), Arc::clone(&job.names), post, client)));
    }
    line.done(READY).await;
    if line.wait(GO).await {
        let start_ns = thread.clock.now_ns();
        for publisher in &publishers {
            if let Some(schedule) = &mut publisher.borrow_mut().schedule {
                schedule.start_ns = start_ns;
            }
        }
        paced.iter_mut().for_each(|paced| paced.schedule.start_ns = start_ns);
        thread.enter(Phase::Going);
        if !paced.is_empty() {
            let (thread, line) = (Rc::clone(&thread), line.clone());
            spawn_local(async move {
                if let Err(failure) = keep_pace(thread, paced).await {
                    line.failed(failure);
                }
            });
        }
        enter_at(&thread, &mut line, STOP, Phase::Stopping).await;
        line.done(STOP).await;
        line.wait(FINISH).await;
    }
    thread.enter(Phase::Finishing);
    join_all(tasks, PART_WITHIN).await;
    let mut part = Part { returns: returns.replace(Latency::new()), ..Part::default() };
    for publisher in publishers {
        let publisher = publisher.borrow();
        part.books.add_publisher(&publisher);
        part.publishers.push(publisher.silence);
    }
    for subscriber in subscribers {
        let mut subscriber = subscriber.borrow_mut();
        part.books.add_subscriber(&mut subscriber, true);
        part.subscribers.push(subscriber.silence);
    }
    Ok(part)
}

/// One thread's clients, connected and subscribed.
struct Crowd {
    subscribers: Vec<(usize, Client)>,
    publishers: Vec<(usize, Client)>,
    /// What came to the members of a shared subscription on this thread.
    together: Rc<RefCell<Vec<Arrivals>>>,
}

impl Crowd {
    async fn gather(job: &Job, thread: &Thread) -> Result<Self, Failure> {
        let Job { plan, names, .. } = job;
        let session = job.session();
        let subscribers = names
            .open_all(thread, mine(thread, plan.shape.subscribers()), &session, plan.qos, |number| {
                job.identify_subscriber(number)
            })
            .await?;
        let publishers = names
            .open_all(thread, mine(thread, plan.shape.publishers()), &session, plan.qos, |number| job.identify_publisher(number))
            .await?;
        let together = match plan.shape {
            Shape::Shared { publishers, .. } => vec![Arrivals::default(); publishers],
            _ => Vec::new(),
        };
        Ok(Self { subscribers, publishers, together: Rc::new(RefCell::new(together)) })
    }
}

impl Job {
    fn session(&self) -> Session {
        let receive_maximum = self.plan.receive_maximum;
        match self.plan.session_expiry_s {
            0 => Session { receive_maximum, ..Session::CLEAN },
            expiry_s => Session { receive_maximum, ..Session::kept(expiry_s) },
        }
    }

    /// A publisher and the subscriber of its messages are at different servers where there are several.
    fn identify_publisher(&self, number: usize) -> Identity {
        Identity { server: number, id: self.names.client("pub-", number), filter: None }
    }

    fn identify_subscriber(&self, number: usize) -> Identity {
        let prefix = &self.names.topics;
        let filter = match self.plan.shape {
            Shape::Pairs { .. } => topic(prefix, number),
            Shape::FanOut { .. } | Shape::FanIn { .. } => format!("{prefix}/+"),
            Shape::Shared { .. } => format!("$share/{GROUP}/{prefix}/+"),
        };
        Identity { server: number + 1, id: self.names.client("sub-", number), filter: Some(filter) }
    }

    fn publisher(&self, number: usize, gate: &Arc<Gate>, run: u32) -> Publisher {
        let Self { plan, names, .. } = self;
        let template = Template::new(names.target.version, plan.qos, false, &names.topics, plan.payload_bytes, run);
        let stream = u32::try_from(number).unwrap_or(u32::MAX);
        let numbering = Numbering::One { stream, topic: stream };
        let mut publisher = Publisher::new(plan.qos, numbering, template, plan.in_flight, Arc::clone(gate));
        publisher.copies = plan.shape.copies() as u64;
        publisher.until_received = plan.waits_for_receipts();
        publisher.schedule = plan.rate.map(|rate| Schedule::new(rate, plan.shape.publishers(), number));
        publisher
    }

    fn subscriber(&self, number: usize, together: &Rc<RefCell<Vec<Arrivals>>>) -> Subscriber {
        let Self { plan, names, gates } = self;
        let ledger = match plan.shape {
            Shape::Pairs { .. } => {
                Ledger::Ordered { first: u32::try_from(number).unwrap_or(u32::MAX), tracks: vec![Track::default()] }
            }
            Shape::FanOut { publishers, .. } | Shape::FanIn { publishers, .. } => {
                Ledger::Ordered { first: 0, tracks: vec![Track::default(); publishers] }
            }
            Shape::Shared { .. } => Ledger::Any { first: 0, arrivals: Rc::clone(together) },
        };
        let mut subscriber = Subscriber::new(ledger, plan.payload_bytes, names.target.version);
        if plan.waits_for_receipts() {
            subscriber.waiting = Some((0, Arc::clone(gates)));
        }
        subscriber
    }
}
