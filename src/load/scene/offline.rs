//! Sessions that are away while messages are queued for them, and come back for them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::spawn_local;

use super::verdict::{Books, Rules};
use super::{Identity, Names, Post, SESSION_S, SETUP_WITHIN, conclude, forget, join_all, mine, serve};
use crate::load::client::{Client, Session};
use crate::load::counters::add;
use crate::load::crew::{self, Crew, FINISH, Halt, Line, Setting, Step};
use crate::load::judge::Track;
use crate::load::numbering::{Numbering, share};
use crate::load::publisher::Publisher;
use crate::load::report::Outcome;
use crate::load::stamp::{Template, topic};
use crate::load::subscriber::{Ledger, Subscriber};
use crate::load::thread::{Phase, Thread};
use crate::load::units::seconds;
use crate::load::{Failure, Mark, Observer, OfflinePlan};

const READY: Step = 1;
const FILL: Step = 2;
const AWAY: Step = 3;
const COME_BACK: Step = 4;
/// For all to part.
const PART_WITHIN: Duration = Duration::from_secs(30);

struct Job {
    plan: OfflinePlan,
    names: Arc<Names>,
}

pub(super) async fn play(
    plan: &OfflinePlan,
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
    let parts: Vec<Books> = crew.finish(PART_WITHIN).await;
    let totals = crew.totals();
    outcome.add("fill_per_s", "messages queued", "per second", rates.fill);
    outcome.add("drain_per_s", "messages drained", "per second", rates.drain);
    outcome.add("sent", "sent", "", totals.sent as f64);
    outcome.add("acknowledged", "acknowledged", "", totals.acked as f64);
    outcome.add("refused", "refused", "", totals.refused as f64);
    outcome.add("received", "received", "", totals.received as f64);
    let rules = Rules { qos: plan.qos, ordered: true };
    let verdict = Books::judge(parts);
    verdict.report(rules, outcome);
    // Where the sessions never were to come back nothing was to arrive.
    if crew.failures.is_empty() && rates.came_back {
        verdict.accuse(rules, outcome);
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
    drain: f64,
    came_back: bool,
}

async fn measure(
    plan: &OfflinePlan,
    crew: &mut Crew<Books>,
    observer: &mut dyn Observer,
    rates: &mut Rates,
) -> Result<Result<(), Failure>, Halt> {
    let total = (plan.sessions * plan.messages) as u64;
    crew.say("making sessions");
    crew.all_done(READY, SETUP_WITHIN).await?;
    if let Err(failure) = observer.at(Mark::Ready) {
        return Ok(Err(failure));
    }
    crew.say("queueing");
    crew.begin();
    let began_ns = crew.clock.now_ns();
    if let Err(failure) = observer.at(Mark::Begin) {
        return Ok(Err(failure));
    }
    crew.order(FILL);
    crew.until(plan.drain, |totals| totals.acked + totals.refused >= total).await?;
    crew.end();
    let totals = crew.totals();
    rates.fill = per_second(totals.acked, began_ns, totals.last_acked_ns);
    let seen = observer.at(Mark::End);
    crew.order(AWAY);
    crew.all_done(AWAY, PART_WITHIN).await?;
    if let Err(failure) = seen.and_then(|()| observer.at(Mark::Filled)) {
        return Ok(Err(failure));
    }
    crew.say("draining");
    rates.came_back = true;
    let began = crew.reading();
    let began_ns = began.at_ns;
    crew.order(COME_BACK);
    let acked = totals.acked;
    // What does not come is the verdict's.
    let drained = crew.until(plan.drain, |totals| totals.received >= acked).await;
    let totals = crew.totals();
    crew.note_interval(began);
    rates.drain = per_second(totals.received, began_ns, totals.last_received_ns);
    if drained == Err(Halt::Failed) || drained == Err(Halt::Interrupted) {
        drained?;
    }
    Ok(observer.at(Mark::Drained))
}

pub(super) fn per_second(count: u64, began_ns: u64, ended_ns: u64) -> f64 {
    let elapsed = seconds(ended_ns.saturating_sub(began_ns));
    if elapsed > 0.0 { count as f64 / elapsed } else { 0.0 }
}

async fn work(job: Arc<Job>, thread: Rc<Thread>, mut line: Line) -> Result<Books, Failure> {
    let mut end = line.clone();
    let mut books = Books::default();
    let mut sessions = Vec::new();
    let played = tokio::select! {
        played = job.play(&thread, &mut line, &mut books, &mut sessions) => played,
        _ = end.wait(FINISH) => Ok(()),
    };
    thread.enter(Phase::Finishing);
    let (tasks, machines): (Vec<_>, Vec<_>) = sessions.into_iter().unzip();
    let came_back = !machines.is_empty();
    join_all(tasks, PART_WITHIN).await;
    for machine in &machines {
        books.add_subscriber(&mut machine.borrow_mut(), false);
    }
    if !came_back {
        job.forget_all(&thread).await;
    }
    played.map(|()| books)
}

type Returned = (tokio::task::JoinHandle<()>, Rc<RefCell<Subscriber>>);

impl Job {
    async fn play(
        &self,
        thread: &Rc<Thread>,
        line: &mut Line,
        books: &mut Books,
        sessions: &mut Vec<Returned>,
    ) -> Result<(), Failure> {
        let Self { plan, names } = self;
        self.make_sessions(thread).await?;
        let clients = names
            .open_all(thread, mine(thread, plan.publishers), &Session::CLEAN, plan.qos, |number| self.identify_publisher(number))
            .await?;
        line.done(READY).await;
        let (mut tasks, mut publishers) = (Vec::new(), Vec::new());
        for (number, client) in clients {
            let mut publisher = self.publisher(number, thread);
            publisher.narrow(client.receive_maximum);
            let gate = Arc::clone(&publisher.gate);
            let machine = Rc::new(RefCell::new(publisher));
            publishers.push(Rc::clone(&machine));
            let (identity, session) = (self.identify_publisher(number), Session::CLEAN);
            let post = Post { identity, qos: plan.qos, session, machine, gate, returns: None };
            tasks.push(spawn_local(serve(Rc::clone(thread), line.clone(), Arc::clone(names), post, client)));
        }
        if line.wait(FILL).await {
            thread.enter(Phase::Going);
        }
        let goes_on = line.wait(AWAY).await;
        for task in tasks {
            // All is acknowledged: nothing is cut off.
            task.abort();
            add(&thread.counters.parted, 1);
        }
        publishers.iter().for_each(|publisher| books.add_publisher(&publisher.borrow()));
        if !goes_on {
            return Ok(());
        }
        line.done(AWAY).await;
        if line.wait(COME_BACK).await {
            self.come_back(thread, line, sessions).await?;
            line.wait(FINISH).await;
        }
        Ok(())
    }

    async fn make_sessions(&self, thread: &Thread) -> Result<(), Failure> {
        let Self { plan, names } = self;
        let make = |number: usize| async move {
            let Identity { server, id, filter } = self.identify_session(number);
            let session = Session { clean_start: true, ..self.session() };
            let mut client = Client::open(&names.target, server, &id, &session).await?;
            client.subscribe(filter.as_deref().unwrap_or_default(), plan.qos).await?;
            client.part(None).await
        };
        stream::iter(mine(thread, plan.sessions)).map(make).buffer_unordered(names.handshakes_of(thread)).try_collect().await
    }

    async fn come_back(&self, thread: &Rc<Thread>, line: &Line, sessions: &mut Vec<Returned>) -> Result<(), Failure> {
        let Self { plan, names } = self;
        let open = |number: usize| async move {
            let Identity { server, id, .. } = self.identify_session(number);
            Ok::<_, Failure>((number, Client::open(&names.target, server, &id, &self.session()).await?))
        };
        let mut opened = stream::iter(mine(thread, plan.sessions)).map(open).buffer_unordered(names.handshakes_of(thread));
        while let Some((number, client)) = opened.try_next().await? {
            add(&thread.counters.connected, 1);
            let ledger = Ledger::Ordered { first: stream_of(number), tracks: vec![Track::default()] };
            let mut subscriber = Subscriber::new(ledger, plan.payload_bytes, names.target.version);
            subscriber.sessions_lost = u64::from(!client.session_present);
            let machine = Rc::new(RefCell::new(subscriber));
            let post = Post {
                identity: self.identify_session(number),
                qos: plan.qos,
                session: self.session(),
                machine: Rc::clone(&machine),
                gate: thread.new_gate(),
                returns: None,
            };
            // At once: the first comes back to a queue that waits, whoever else is still away.
            sessions.push((spawn_local(serve(Rc::clone(thread), line.clone(), Arc::clone(names), post, client)), machine));
        }
        Ok(())
    }

    /// Ends what was made where nobody came back.
    async fn forget_all(&self, thread: &Thread) {
        let forgetting = stream::iter(mine(thread, self.plan.sessions)).for_each_concurrent(
            self.names.handshakes_of(thread),
            |number| async move {
                let Identity { server, id, .. } = self.identify_session(number);
                forget(&self.names, server, &id).await;
            },
        );
        _ = tokio::time::timeout(PART_WITHIN, forgetting).await;
    }

    fn session(&self) -> Session {
        Session { receive_maximum: self.plan.receive_maximum, ..Session::kept(SESSION_S) }
    }

    fn identify_session(&self, number: usize) -> Identity {
        Identity { server: number, id: self.names.client("away-", number), filter: Some(topic(&self.names.topics, number)) }
    }

    fn identify_publisher(&self, number: usize) -> Identity {
        Identity { server: number, id: self.names.client("pub-", number), filter: None }
    }

    /// Publishes to every so many-th session in turn.
    fn publisher(&self, number: usize, thread: &Thread) -> Publisher {
        let Self { plan, names } = self;
        let count = share(plan.sessions, plan.publishers, number);
        let numbering = Numbering::Turns { first: stream_of(number), step: stream_of(plan.publishers), count: stream_of(count) };
        let template = Template::new(names.target.version, plan.qos, false, &names.topics, plan.payload_bytes, thread.run);
        let mut publisher = Publisher::new(plan.qos, numbering, template, plan.in_flight, thread.new_gate());
        publisher.limit = (count * plan.messages) as u64;
        publisher
    }
}

fn stream_of(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
