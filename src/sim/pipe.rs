//! A client's connection with a simulated node: two buffers that the Client actor and the simulated client share.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;

use crate::actor::Transport;

#[derive(Default)]
pub struct Pipe {
    to_node: BytesMut,
    to_client: BytesMut,
    /// The node closed its side, or its process is gone.
    pub node_closed: bool,
    client_closed: bool,
    waker: Option<Waker>,
}

/// The node's end.
pub struct NodeEnd(pub Rc<RefCell<Pipe>>);

impl Pipe {
    pub fn new() -> Rc<RefCell<Self>> {
        Rc::default()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.to_node.extend_from_slice(bytes);
        self.wake();
    }

    pub fn close(&mut self) {
        self.client_closed = true;
        self.wake();
    }

    /// What the node has written since.
    pub fn take(&mut self) -> BytesMut {
        self.to_client.split()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for NodeEnd {
    fn drop(&mut self) {
        self.0.borrow_mut().node_closed = true;
    }
}

impl Transport for NodeEnd {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.to_node.is_empty() {
            if pipe.client_closed {
                return Poll::Ready(Ok(0));
            }
            pipe.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.len().min(pipe.to_node.len());
        let bytes = pipe.to_node.split_to(count);
        buffer[..count].copy_from_slice(&bytes);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.borrow_mut();
        if pipe.client_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        pipe.to_client.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().node_closed = true;
        Poll::Ready(Ok(()))
    }
}
