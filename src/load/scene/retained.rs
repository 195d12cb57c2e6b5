//! Retained messages, and new subscribers that get all of them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_local;

use super::offline::per_second;
use super::verdict::{Books, Rules};
use super::{Identity, Names, Post, SETUP_WITHIN, conclude, join_all, mine, serve};
use crate::load::client::Session;
use crate::load::counters::add;
use crate::load::crew::{self, Crew, FINISH, Halt, Line, Setting, Step};
use crate::load::judge::Arrivals;
use crate::load::numbering::{Numbering, share};
use crate::load::publisher::Publisher;
use crate::load::report::Outcome;
use crate::load::stamp::Template;
use crate::load::subscriber::{Ledger, Subscriber};
use crate::load::thread::{Phase, Thread};
use crate::load::{Failure, Mark, Observer, RetainedPlan};
use crate::mqtt::QoS;
use crate::mqtt::packet::RetainHandling;

const READY: Step = 1;
const FILL: Step = 2;
const SUBSCRIBE: Step = 3;
const CLEAN: Step = 4;
/// For all to part.
const PART_WITHIN: Duration = Duration::from_secs(15);
/// Retained messages are published so that it is known that they are kept.
const FILL_QOS: QoS = QoS::AtLeastOnce;

struct Job {
    plan: RetainedPlan,
    names: Arc<Names>,
}

pub(super) async fn play(
    plan: &RetainedPlan,
    names: Arc<Names>,
    setting: Setting,
    outcome: &mut Outcome,
    observer: &mut dyn Observer,
) -> Result<(), Failure> {
    let threads = setting.threads;
    let job = Arc::new(Job { plan: plan.clone(), names });
    let mut crew = crew::start(setting, move |thread, line| work(Arc::clone(&job), thread, line))?;
    let mut rates = Rates::default();
    let played = measure(plan, &mut crew, observer, &mut rates).await;
    crew.end();
    let totals = crew.totals();
    if !plan.keep && totals.sent > 0 && crew.failures.is_empty() {
        crew.say("cleaning up");
        crew.order(CLEAN);
        // On the way out: an interrupt cuts it short, too.
        let cleaned =
            crew.until(plan.drain, |now| now.acked + now.refused >= totals.acked + totals.refused + plan.messages as u64).await;
        if cleaned.is_err() {
            outcome.notes.push("not all retained messages could be removed".into());
        }
    }
    let parts: Vec<Books> = crew.finish(PART_WITHIN).await;
    outcome.add("fill_per_s", "messages retained", "per second", rates.fill);
    outcome.add("received_per_s", "messages to new subscribers", "per second", rates.read);
    outcome.add("retained", "messages retained in all", "", rates.filled as f64);
    outcome.add("refused", "refused", "", totals.refused as f64);
    outcome.add("received", "received", "", totals.received as f64);
    let rules = Rules { qos: plan.qos, ordered: false };
    let verdict = Books::judge(parts);
    verdict.report(rules, outcome);
    if crew.failures.is_empty() && rates.subscribed {
        verdict.accuse(rules, outcome);
        // Retained is retained, whatever the QoS it comes with.
        if plan.qos == QoS::AtMostOnce {
            outcome.fault_if(verdict.lost, "retained messages lost");
        }
    }
    outcome.times.push(("acknowledged", "sent until acknowledged", crew.times.acknowledged.times()));
    conclude(&mut crew, threads, false, outcome);
    match played {
        Ok(Err(failure)) => return Err(failure),
        Err(Halt::TooLong) => outcome.faults.push("it took too long".into()),
        Ok(Ok(())) | Err(Halt::Failed | Halt::Interrupted) => {}
    }
    Ok(())
}

#[derive(Default)]
struct Rates {
    fill: f64,
    filled: u64,
    read: f64,
    subscribed: bool,
}

async fn measure(
    plan: &RetainedPlan,
    crew: &mut Crew<Books>,
    observer: &mut dyn Observer,
    rates: &mut Rates,
) -> Result<Result<(), Failure>, Halt> {
    crew.say("connecting");
    crew.all_done(READY, SETUP_WITHIN).await?;
    if let Err(failure) = observer.at(Mark::Ready) {
        return Ok(Err(failure));
    }
    crew.say("publishing retained messages");
    let began = crew.reading();
    let began_ns = began.at_ns;
    crew.order(FILL);
    let messages = plan.messages as u64;
    crew.until(plan.drain, |totals| totals.acked + totals.refused >= messages).await?;
    let filled = crew.totals();
    rates.fill = per_second(filled.acked, began_ns, filled.last_acked_ns);
    rates.filled = filled.acked;
    crew.note_interval(began);
    if let Err(failure) = observer.at(Mark::Filled) {
        return Ok(Err(failure));
    }
    crew.say("subscribing");
    crew.begin();
    let began_ns = crew.clock.now_ns();
    if let Err(failure) = observer.at(Mark::Begin) {
        return Ok(Err(failure));
    }
    crew.order(SUBSCRIBE);
    rates.subscribed = true;
    let wanted = filled.acked * plan.subscribers as u64;
    let read = crew.until(plan.drain, |totals| totals.received >= wanted).await;
    crew.end();
    let totals = crew.totals();
    rates.read = per_second(totals.received, began_ns, totals.last_received_ns);
    if read == Err(Halt::Failed) || read == Err(Halt::Interrupted) {
        read?;
    }
    Ok(observer.at(Mark::End))
}

async fn work(job: Arc<Job>, thread: Rc<Thread>, mut line: Line) -> Result<Books, Failure> {
    let mut end = line.clone();
    let mut stage = Stage::default();
    let played = tokio::select! {
        played = job.play(&thread, &mut line, &mut stage) => played,
        _ = end.wait(FINISH) => Ok(()),
    };
    thread.enter(Phase::Finishing);
    stage.tasks.append(&mut stage.readers);
    join_all(stage.tasks, PART_WITHIN).await;
    let mut books = Books::default();
    stage.publishers.iter().for_each(|publisher| books.add_publisher(&publisher.borrow()));
    stage.subscribers.iter().for_each(|subscriber| books.add_subscriber(&mut subscriber.borrow_mut(), false));
    played.map(|()| books)
}

/// Who has entered.
#[derive(Default)]
struct Stage {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    readers: Vec<tokio::task::JoinHandle<()>>,
    publishers: Vec<Rc<RefCell<Publisher>>>,
    subscribers: Vec<Rc<RefCell<Subscriber>>>,
}

impl Job {
    async fn play(&self, thread: &Rc<Thread>, line: &mut Line, stage: &mut Stage) -> Result<(), Failure> {
        let Self { plan, names } = self;
        let mut readers = names
            .open_all(thread, mine(thread, plan.subscribers), &self.reader_session(), plan.qos, |number| {
                self.identify("sub-", number)
            })
            .await?;
        let publishers = self.publish(thread, line, stage, "pub-", plan.payload_bytes).await?;
        stage.publishers.extend(publishers);
        line.done(READY).await;
        if line.wait(FILL).await {
            thread.enter(Phase::Going);
        }
        // An interrupt may skip it.
        if line.wait(SUBSCRIBE).await {
            for (_, client) in &mut readers {
                client.ask_to_subscribe(&self.filter(), plan.qos, RetainHandling::Send).await?;
            }
        }
        for (number, client) in readers {
            let arrivals = Rc::new(RefCell::new(vec![Arrivals::default(); plan.publishers]));
            let subscriber = Subscriber::new(Ledger::Any { first: 0, arrivals }, plan.payload_bytes, names.target.version);
            let machine = Rc::new(RefCell::new(subscriber));
            stage.subscribers.push(Rc::clone(&machine));
            let (identity, session) = (self.identify("sub-", number), self.reader_session());
            let post = Post { identity, qos: plan.qos, session, machine, gate: thread.new_gate(), returns: None };
            stage.readers.push(spawn_local(serve(Rc::clone(thread), line.clone(), Arc::clone(names), post, client)));
        }
        if line.wait(CLEAN).await {
            // They would hear of what is removed.
            for reader in stage.readers.drain(..) {
                reader.abort();
                add(&thread.counters.parted, 1);
            }
            self.publish(thread, line, stage, "clean-", 0).await?;
            line.wait(FINISH).await;
        }
        Ok(())
    }

    /// Connects this thread's publishers, which publish to each topic once the thread goes; without a payload that removes what is retained.
    async fn publish(
        &self,
        thread: &Rc<Thread>,
        line: &Line,
        stage: &mut Stage,
        role: &str,
        payload_bytes: usize,
    ) -> Result<Vec<Rc<RefCell<Publisher>>>, Failure> {
        let Self { plan, names } = self;
        let clients = names
            .open_all(thread, mine(thread, plan.publishers), &Session::CLEAN, FILL_QOS, |number| self.identify(role, number))
            .await?;
        let mut publishers = Vec::new();
        for (number, client) in clients {
            let template = Template::new(names.target.version, FILL_QOS, true, &names.topics, payload_bytes, thread.run);
            let stream = u32::try_from(number).unwrap_or(u32::MAX);
            let step = u32::try_from(plan.publishers).unwrap_or(u32::MAX);
            let numbering = Numbering::Topics { stream, first: stream, step };
            let mut publisher = Publisher::new(FILL_QOS, numbering, template, plan.in_flight, thread.new_gate());
            publisher.limit = share(plan.messages, plan.publishers, number) as u64;
            publisher.narrow(client.receive_maximum);
            let gate = Arc::clone(&publisher.gate);
            let machine = Rc::new(RefCell::new(publisher));
            publishers.push(Rc::clone(&machine));
            let (identity, session) = (self.identify(role, number), Session::CLEAN);
            let post = Post { identity, qos: FILL_QOS, session, machine, gate, returns: None };
            stage.tasks.push(spawn_local(serve(Rc::clone(thread), line.clone(), Arc::clone(names), post, client)));
        }
        Ok(publishers)
    }

    fn identify(&self, role: &str, number: usize) -> Identity {
        Identity { server: number, id: self.names.client(role, number), filter: None }
    }

    fn reader_session(&self) -> Session {
        Session { receive_maximum: self.plan.receive_maximum, ..Session::CLEAN }
    }

    fn filter(&self) -> String {
        self.plan.filter.clone().unwrap_or_else(|| format!("{}/#", self.names.topics))
    }
}
