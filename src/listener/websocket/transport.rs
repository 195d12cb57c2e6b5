//! A WebSocket connection as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::{self, Control, Decoder};
use crate::actor::Transport;
use crate::actor::transport::BadFrame;
use crate::listener::stream::Heard;

/// Payload put into one frame at most, bytes.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Reads in a row that bring no payload (pings, empty frames) before others get their turn.
const READS_MAX: usize = 4;
/// Status code of a connection that has served its purpose.
const STATUS_NORMAL: u16 = 1000;

pub(in crate::listener) struct WebSocketTransport<S> {
    socket: S,
    decoder: Decoder,
    /// Frames that are not written yet: one with payload at most.
    out: Vec<u8>,
    written: usize,
    /// The answer to the last ping; older ones need none (RFC 6455 5.5.3).
    pong: Option<Vec<u8>>,
    /// The client's close frame, or its end, has come.
    read_closed: bool,
    close_sent: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketTransport<S> {
    pub(in crate::listener) fn new(socket: S) -> Self {
        Self {
            socket,
            decoder: Decoder::default(),
            out: Vec::new(),
            written: 0,
            pong: None,
            read_closed: false,
            close_sent: false,
        }
    }

    /// Writes the frames that wait.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
                match Pin::new(&mut self.socket).poll_write(cx, rest) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(count)) => self.written += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            // An idle connection owns no buffer.
            (self.out, self.written) = (Vec::new(), 0);
            let Some(pong) = self.pong.take().filter(|_| !self.close_sent) else { return Poll::Ready(Ok(())) };
            frame::encode(frame::PONG, &pong, &mut self.out);
        }
    }

    fn queue_close(&mut self, status: Option<u16>) {
        if !std::mem::replace(&mut self.close_sent, true) {
            let payload = status.map(u16::to_be_bytes);
            frame::encode(frame::CLOSE, payload.as_ref().map_or(&[], |code| code), &mut self.out);
        }
    }

    fn on_control(&mut self, control: Control) {
        match control {
            Control::Ping(payload) => self.pong = Some(payload),
            Control::Close(status) => {
                self.read_closed = true;
                self.queue_close(status);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Heard + Unpin> Transport for WebSocketTransport<S> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        for _ in 0..READS_MAX {
            if let Some(error) = self.decoder.failed() {
                // What came before it was handed on and may be answered until now.
                self.queue_close(Some(error.status()));
                let _ = self.poll_flush(cx);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, BadFrame(error.to_string()))));
            }
            if self.read_closed {
                // The answer to the client's close frame leaves first.
                return match self.poll_flush(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(_) => Poll::Ready(Ok(0)),
                };
            }
            let mut read = ReadBuf::new(buffer);
            match Pin::new(&mut self.socket).poll_read(cx, &mut read) {
                // What is in whole frames tells for itself: a ping is no sign of life of the MQTT client.
                Poll::Ready(Ok(())) => _ = self.socket.take_heard(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
            let came = read.filled_mut();
            if came.is_empty() {
                self.read_closed = true;
                return Poll::Ready(Ok(0));
            }
            let mut control = Vec::new();
            let count = self.decoder.decode(came, &mut control);
            for frame in control {
                self.on_control(frame);
            }
            // What cannot be written now goes with the next write; an error shows there, too.
            let _ = self.poll_flush(cx);
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn take_heard(&mut self) -> bool {
        self.socket.take_heard()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.drain(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        if self.close_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let payload = bytes.get(..bytes.len().min(FRAME_BYTES_MAX)).unwrap_or_default();
        frame::encode(frame::BINARY, payload, &mut self.out);
        match self.drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(payload.len())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.drain(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.socket).poll_flush(cx),
            other => other,
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue_close(Some(STATUS_NORMAL));
        match self.drain(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.socket).poll_shutdown(cx),
            other => other,
        }
    }
}

#[cfg(test)]
#[path = "transport_test.rs"]
mod tests;
