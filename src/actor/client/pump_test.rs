//! No turn of a client ends with something to do and nobody to wake it.

use std::future::poll_fn;
use std::io;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::Actor;

use super::*;
use crate::actor::node::Node;
use crate::actor::transport::ListenerName;
use crate::addon::AddonSettings;
use crate::addon::supervisor::AddonRenderer;
use crate::broker::settings as rooms;
use crate::telemetry::Metrics;

/// A socket on which nothing comes. It tells when it is read.
struct Silent(Option<oneshot::Sender<()>>);

impl Transport for Silent {
    fn poll_read(&mut self, _: &mut TaskContext<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        let _ = self.0.take().map(|read| read.send(()));
        Poll::Pending
    }

    fn poll_write(&mut self, _: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn local() -> Rc<Local> {
    let settings = crate::config::embedded_default().unwrap().settings;
    let metrics = Arc::new(Metrics::new().unwrap());
    let addons = AddonSettings::new(&settings.addons, settings.mqtt.message_expiry_max_s);
    let renderer = Arc::new(AddonRenderer::new(addons, Arc::clone(&metrics)));
    Local::new(Arc::new(Node::new(rooms::node(&settings), metrics, renderer)), 0)
}

fn accepted() -> Accepted {
    let listener = Arc::new(ListenerName { name: "tcp".into(), kind: "TCP Listener" });
    Accepted { peer_ip: None, peer_port: 0, local: None, listener_port: 1883, listener, secure: false, certificate: None }
}

/// An answer that comes while the turn is under way, after its reading: the answer to a CONNECT does where this thread was held up. The client was
/// not read in that turn and so nothing of its socket wakes it.
#[test]
fn a_client_that_may_be_read_again_at_the_end_of_its_turn_has_another() {
    let read = actix_rt::System::new().block_on(async {
        let (told, read) = oneshot::channel();
        let mut client = Client::new(&local(), Box::new(Silent(Some(told))), accepted());
        // Questions are looked at when a turn begins, and when it ends.
        client.storing_bytes = STORING_BYTES_MAX + 1;
        let mut looks = 0;
        let answer = poll_fn(move |_| {
            looks += 1;
            if looks < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        client.defer(answer, |(), client, _| client.storing_bytes = 0);
        client.start();
        tokio::time::timeout(Duration::from_secs(10), read).await
    });
    assert_eq!(read, Ok(Ok(())));
}
