//! Messages of mixed expiry in the queues of sessions that are away: how long after it expired each is read from `$expired`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime;
use tokio::task::LocalSet;
use troupemq::mqtt::QoS;
use troupemq::mqtt::packet::Publish;

use crate::Failure;
use crate::analyst::{Analyst, LIVE_S, SESSION_S};
use crate::client;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::{Report, Times};
use crate::publishers::{Message, Next, Publishers};
use crate::settings::{Settings, addon};

const P99_GOAL_MS: f64 = 1000.0;
/// After the last has expired.
const ALL_WITHIN: Duration = Duration::from_secs(60);

/// What the analyst saw: how often each message came, and how late.
#[derive(Default)]
struct Seen {
    times: Vec<u32>,
    delays: Times,
    /// From expiry to `hmq-exp-timestamp`.
    noticed: Times,
}

pub fn run(settings: &Settings, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    let more = addon("expired-messages-topic", true);
    let shape = Shape { nodes, queue_max: settings.messages + 1_000, more: &more, ..Shape::default() };
    let trio = Trio::start_as(&settings.program, &shape)?;
    trio.wait_spread()?;
    let addresses = trio.mqtt();
    let server = addresses[nodes - 1];
    let reader = |session_s| {
        let seen = Arc::new(Mutex::new(Seen { times: vec![0; settings.messages], ..Seen::default() }));
        let sees = Arc::clone(&seen);
        let analyst = Analyst::start(server, session_s, Some("$expired/#"), move |message| sees.lock().unwrap().take(message))?;
        Ok::<_, Failure>((analyst, seen))
    };
    let readers = [(reader(LIVE_S)?, "session ends with its connection"), (reader(SESSION_S)?, "session persists")];
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let (filled, last) = LocalSet::new().block_on(&runtime, async {
        for number in 0..settings.sessions {
            let mut client = client::connect(addresses[number % nodes], &format!("away-{number}"), false, SESSION_S).await?;
            client.subscribe(&topic(number), QoS::AtLeastOnce).await?;
            client.disconnect().await?;
        }
        let filling = Instant::now();
        let last = Rc::new(Cell::new(0));
        let next = messages(settings, &last);
        Publishers::start(settings.publishers, settings.window, &addresses, &next).await?.finish().await?;
        Ok::<_, Failure>((filling.elapsed(), last.get()))
    })?;
    let all_by = Duration::from_millis(last.saturating_sub(wall_ms())) + ALL_WITHIN;
    let all_by = Instant::now() + all_by;
    let mut missing = false;
    for ((analyst, _), _) in &readers {
        missing |= analyst.wait_for(settings.messages as u64, all_by.saturating_duration_since(Instant::now())).is_none();
    }
    eprintln!("      filled in {:.1} s, done after {:.1} s", filled.as_secs_f64(), began.elapsed().as_secs_f64());
    let (from, to) = settings.expiry_s;
    for ((analyst, seen), name) in readers {
        analyst.finish()?;
        let seen = seen.lock().unwrap();
        let wrong = seen.times.iter().filter(|times| **times != 1).count();
        if missing || wrong > 0 {
            return Err(format!("{wrong} of {} messages did not come once to an analyst whose {name}", settings.messages).into());
        }
        let what = format!(
            "`$expired`, {} messages queued, {from} to {to} s each, {nodes} node(s): expiry to arrival at an analyst whose {name}",
            settings.messages
        );
        report.times(&what, "TroupeMQ", &seen.delays, Some(P99_GOAL_MS));
        report.times("of that, until the message was out of its queue", "TroupeMQ", &seen.noticed, None);
    }
    Ok(())
}

/// Messages for all sessions in turn. In each its number, and when it expires by the publisher's clock: the broker's begins a little later, so
/// delays come out a little too long. `last`: when all have.
fn messages(settings: &Settings, last: &Rc<Cell<u64>>) -> Next {
    let draws = RefCell::new(StdRng::seed_from_u64(settings.seed));
    let (number, last) = (Cell::new(0), Rc::clone(last));
    let (total, sessions, payload_bytes, (from, to)) =
        (settings.messages, settings.sessions, settings.payload_bytes, settings.expiry_s);
    Rc::new(move || {
        let this = number.get();
        if this == total {
            return None;
        }
        number.set(this + 1);
        let expiry_s = draws.borrow_mut().random_range(from..=to);
        let expires_ms = wall_ms() + u64::from(expiry_s) * 1000;
        last.set(last.get().max(expires_ms));
        let mut payload = [this as u64, expires_ms].map(u64::to_be_bytes).as_flattened().to_vec();
        payload.resize(payload_bytes, b'.');
        Some(Message { topic: topic(this % sessions), payload, expiry_s: Some(expiry_s) })
    })
}

impl Seen {
    fn take(&mut self, message: &Publish) -> bool {
        let number =
            |at: usize| message.payload.get(at..at + 8).and_then(|eight| <[u8; 8]>::try_from(eight).ok()).map(u64::from_be_bytes);
        let (Some(this), Some(expires_ms)) = (number(0), number(8)) else { return false };
        let Some(times) = usize::try_from(this).ok().and_then(|this| self.times.get_mut(this)) else { return false };
        *times += 1;
        self.delays.push(Duration::from_millis(wall_ms().saturating_sub(expires_ms)));
        let told = message.properties.user_properties.iter().find(|(name, _)| name == "hmq-exp-timestamp");
        if let Some(at_ms) = told.and_then(|(_, value)| value.parse::<u64>().ok()) {
            self.noticed.push(Duration::from_millis(at_ms.saturating_sub(expires_ms)));
        }
        true
    }
}

fn topic(session: usize) -> String {
    format!("q/{session}")
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
