//! Items for an actor: a queue under a short lock, and one wake-up of the actor's task however many items wait.
//!
//! actix's own mailbox would take an envelope of the heap and two more passes for each wake-up, and its bound would count wake-ups, of which there
//! is one at most. An inbox refuses nothing; its sources are held back instead (`Node::is_pressed`, `congestion`, a connection's window,
//! `signal_bus`). While an actor works on what it took, the next batch gathers here: that is where fan-out gets its batches from.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use actix::fut::ActorFuture;
use actix::{Actor, AsyncContext, Context};
use parking_lot::Mutex;

/// Items waiting for one actor. There are as many as connections: a word more, and each takes the allocator's next size.
#[derive(Debug)]
pub struct Inbox<T> {
    waiting: Mutex<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    /// Wakes the actor; `None` until its first turn, in which it looks anyway.
    task: Option<Waker>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { waiting: Mutex::new(Waiting { items: Vec::new(), task: None }) }
    }
}

impl<T> Inbox<T> {
    /// Adds an item, and wakes the actor where it is the first: who is woken takes all there is.
    fn push(&self, item: T) {
        let task = {
            let mut waiting = self.waiting.lock();
            let Waiting { items, task } = &mut *waiting;
            if items.capacity() == 0 {
                // Most connections never have more waiting than this one, and there are many of them.
                items.reserve_exact(1);
            }
            items.push(item);
            task.as_ref().filter(|_| items.len() == 1).cloned()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Who is woken from now on. Called in the actor's turn before it looks whether something is there.
    pub fn register(&self, task: &Waker) {
        self.waiting.lock().task = Some(task.clone());
    }

    /// Moves all items into `into`, in order. The next push wakes the actor again.
    pub fn take(&self, into: &mut Vec<T>) {
        let items = &mut self.waiting.lock().items;
        if into.is_empty() {
            std::mem::swap(items, into);
        } else {
            into.append(items);
        }
        if items.capacity() > 4096 {
            items.shrink_to(64);
        }
    }

    /// Items waiting.
    pub fn len(&self) -> usize {
        self.waiting.lock().items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Posts items to an actor from any thread.
#[derive(Debug)]
pub struct Mail<T> {
    inbox: Arc<Inbox<T>>,
}

impl<T> Clone for Mail<T> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox) }
    }
}

impl<T> Mail<T> {
    pub fn new(inbox: Arc<Inbox<T>>) -> Self {
        Self { inbox }
    }

    /// Adds an item and wakes the actor. An actor that is gone loses its items with its inbox.
    pub fn post(&self, item: T) {
        self.inbox.push(item);
    }

    pub fn len(&self) -> usize {
        self.inbox.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }
}

/// An actor that is told things through an inbox.
pub trait Attends: Actor<Context = Context<Self>> + Unpin {
    type Item: 'static;

    fn inbox(&self) -> &Arc<Inbox<Self::Item>>;

    /// Takes what is in the inbox.
    fn on_mail(&mut self, ctx: &mut Context<Self>);
}

/// From now on the actor is told when something is in its inbox; called once, as it starts.
pub fn attend<A: Attends>(ctx: &mut Context<A>) {
    ctx.spawn(Attending { task: None });
}

/// Looks into the inbox whenever the actor's task is woken, for as long as the actor lives.
struct Attending {
    task: Option<Waker>,
}

impl<A: Attends> ActorFuture<A> for Attending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, actor: &mut A, ctx: &mut Context<A>, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.task.as_ref().is_none_or(|task| !task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
            actor.inbox().register(cx.waker());
        }
        if !actor.inbox().is_empty() {
            actor.on_mail(ctx);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Task {
        woken: AtomicU32,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_actor_is_woken_once_for_all_that_came_since_it_looked() {
        let (mail, task) = (Mail::new(Arc::new(Inbox::default())), Arc::new(Task::default()));
        let woken = || task.woken.load(Ordering::Relaxed);
        mail.post(0);
        mail.inbox.register(&Arc::clone(&task).into());
        assert_eq!((mail.len(), woken()), (1, 0), "in its first turn it looks without being woken");
        let mut taken = Vec::new();
        mail.inbox.take(&mut taken);
        for item in 1..=3 {
            mail.post(item);
        }
        assert_eq!((mail.len(), woken()), (3, 1));
        mail.inbox.take(&mut taken);
        assert!(mail.is_empty());
        mail.post(4);
        mail.inbox.take(&mut taken);
        assert_eq!((taken, woken()), (vec![0, 1, 2, 3, 4], 2));
    }

    /// Adds what it is told; ends at 0.
    struct Sum {
        inbox: Arc<Inbox<u32>>,
        sum: u32,
        done: Option<tokio::sync::oneshot::Sender<u32>>,
    }

    impl Actor for Sum {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            attend(ctx);
        }
    }

    impl Attends for Sum {
        type Item = u32;

        fn inbox(&self) -> &Arc<Inbox<u32>> {
            &self.inbox
        }

        fn on_mail(&mut self, _: &mut Self::Context) {
            let mut batch = Vec::new();
            self.inbox.take(&mut batch);
            self.sum += batch.iter().sum::<u32>();
            if batch.contains(&0) {
                let _ = self.done.take().map(|done| done.send(self.sum));
            }
        }
    }

    #[test]
    fn nothing_posted_from_another_thread_waits_for_good() {
        const ITEMS: u32 = 50_000;
        let inbox = Arc::new(Inbox::default());
        let mail = Mail::new(Arc::clone(&inbox));
        let sum = actix_rt::System::new().block_on(async move {
            let (done, answer) = tokio::sync::oneshot::channel();
            Sum { inbox, sum: 0, done: Some(done) }.start();
            let posting = std::thread::spawn(move || (0..=ITEMS).rev().for_each(|item| mail.post(item)));
            let sum = answer.await;
            posting.join().unwrap();
            sum
        });
        assert_eq!(sum, Ok(ITEMS * (ITEMS + 1) / 2));
    }
}
