//! A socket with its two buffers, both bounded.
//!
//! On the hit path a request costs one `recv` and one `send`: the read buffer is larger than the request, so a partial read shows that the socket is
//! drained without a second, failing `recv`.
//!
//! A read buffer belongs to the worker. A session borrows it while there is something to read: most sessions of a pool are idle, and two empty
//! buffers would be most of their memory.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use freshet_net::Socket;
use freshet_wire::postgres::frame;
use tokio::io::AsyncWrite;

/// First size of the read buffer.
const READ_BYTES_MIN: usize = 8 << 10;
/// The most that is read ahead: enough for the largest statement that is analysed.
pub(crate) const READ_BYTES_MAX: usize = 128 << 10;
/// Capacity that an empty write buffer keeps in any case, so that small answers and larger ones alternate without allocation.
const WRITE_BYTES_KEPT: usize = 2 << 10;
/// Bytes waiting to be written beyond which no more is produced.
pub(crate) const WRITE_BYTES_HIGH: usize = 256 << 10;
/// A fill is abandoned if its client does not receive the answer for this long: its memory is needed for other fills.
pub(crate) const STALL_MAX: Duration = Duration::from_secs(1);

/// Limit of unused read buffers that a worker keeps.
const SPARE_BUFFERS_MAX: usize = 64;

thread_local! {
    /// Buffers of `READ_BYTES_MIN`, initialised. A session never leaves its thread.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes received and not yet consumed.
#[derive(Debug)]
pub(crate) struct Input {
    /// Empty while nothing is read, otherwise initialised throughout; `start..end` is valid.
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn holding(bytes: &[u8]) -> Self {
        Self { data: bytes.to_vec(), start: 0, end: bytes.len() }
    }

    /// Returns the buffer to the worker if it is empty.
    fn lend_no_more(&mut self) {
        if self.start == self.end && !self.data.is_empty() {
            self.give_back();
        }
    }

    // Out of line: at a hit the question is asked three times, and answered with yes once.
    #[inline(never)]
    fn give_back(&mut self) {
        let data = std::mem::take(&mut self.data);
        SPARE.with_borrow_mut(|spare| {
            // One that has grown is not kept.
            if data.len() == READ_BYTES_MIN && spare.len() < SPARE_BUFFERS_MAX {
                spare.push(data);
            }
        });
    }

    /// Takes the input out while its messages are processed; it must be put back.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { data: Vec::new(), start: 0, end: 0 })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.data.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.get_mut(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    fn is_full(&self) -> bool {
        self.end - self.start >= READ_BYTES_MAX
    }

    /// Free space for a read: compacts first, then doubles up to the bound.
    fn spare(&mut self) -> &mut [u8] {
        if self.data.is_empty() {
            let spare = SPARE.with_borrow_mut(Vec::pop);
            self.data = spare.unwrap_or_else(|| vec![0; READ_BYTES_MIN]);
        } else if self.end == self.data.len() {
            if self.start > 0 {
                self.data.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.data.resize((self.data.len() * 2).clamp(READ_BYTES_MIN, READ_BYTES_MAX), 0);
            }
        }
        self.data.get_mut(self.end..).unwrap_or_default()
    }
}

/// Bytes to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    data: Vec<u8>,
    written: usize,
}

impl Output {
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.data.extend_from_slice(bytes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub(crate) fn is_high(&self) -> bool {
        self.data.len() - self.written >= WRITE_BYTES_HIGH
    }

    fn pending(&self) -> &[u8] {
        self.data.get(self.written..).unwrap_or_default()
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.data.len() {
            // Twice the capacity that is needed now: the memory of a large answer is freed.
            self.data.shrink_to((self.data.len() * 2).max(WRITE_BYTES_KEPT));
            self.data.clear();
            self.written = 0;
        }
    }
}

/// One end of a session.
#[derive(Debug)]
pub(crate) struct Peer {
    socket: Socket,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// TLS may buffer written bytes.
    unflushed: bool,
    /// The peer has closed its side.
    pub(crate) ended: bool,
    /// Bytes that have come.
    pub(crate) traffic: u64,
}

impl Peer {
    pub(crate) fn new(socket: Socket) -> Self {
        Self::with_input(socket, &[])
    }

    /// A socket of which some bytes were already read.
    pub(crate) fn with_input(socket: Socket, received: &[u8]) -> Self {
        let input = Input::holding(received);
        Self { socket, input, output: Output::default(), unflushed: false, ended: false, traffic: 0 }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn into_socket(self) -> Socket {
        self.socket
    }

    /// Without a connection: what is put waits for one.
    pub(crate) fn absent() -> Self {
        Self::new(Socket::absent())
    }

    /// Takes this connection.
    pub(crate) fn plug(&mut self, socket: Socket) {
        self.socket = socket;
        (self.ended, self.unflushed) = (false, false);
    }

    /// Gives the connection away, of which nothing is left to be read or sent.
    pub(crate) fn unplug(&mut self) -> Socket {
        std::mem::replace(&mut self.socket, Socket::absent())
    }

    /// Nothing has come, and the peer has not closed its side. Asks the socket.
    pub(crate) fn find_quiet(&mut self) -> bool {
        self.socket.find_quiet()
    }

    /// Belongs to no thread from here on, until [`Self::wake`]. Its buffers are empty.
    pub(crate) fn rest(&mut self) -> io::Result<()> {
        self.input.lend_no_more();
        self.socket.rest()
    }

    /// Belongs to this thread's worker, and to the running task.
    pub(crate) fn wake(&mut self) -> io::Result<()> {
        self.socket.wake()
    }

    /// Receives once if there is space. Ready: bytes arrived, or the peer closed its side.
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Mostly it is silent: three times of four at a hit.
        if self.find_silent() { Poll::Pending } else { self.poll_receive_most(cx, usize::MAX) }
    }

    /// Asks the socket without a call. True: nothing has come, and the task is woken when something does.
    fn find_silent(&mut self) -> bool {
        let is_silent = self.socket.is_silent();
        if is_silent {
            self.input.lend_no_more();
        }
        is_silent
    }

    /// The same, with a limit of bytes: those behind may be for another reader.
    pub(crate) fn poll_receive_most(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        if self.ended || self.input.is_full() || self.find_silent() {
            return Poll::Pending;
        }
        let spare = self.input.spare();
        let most = most.min(spare.len());
        let buffer = spare.get_mut(..most).unwrap_or_default();
        let count = match self.socket.poll_receive(cx, buffer) {
            Poll::Pending => {
                self.input.lend_no_more();
                return Poll::Pending;
            }
            // A failed peer sends nothing more either; what it sent before must still be delivered.
            Poll::Ready(Err(error))
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) =>
            {
                0
            }
            Poll::Ready(received) => received?,
        };
        self.input.end += count;
        self.traffic += count as u64;
        self.ended = count == 0;
        Poll::Ready(Ok(()))
    }

    /// Sends the output. Ready: everything is sent.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.output.is_empty() {
            let count = ready!(self.socket.poll_send(cx, self.output.pending()))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.output.advance(count);
            self.unflushed = self.socket.is_encrypted();
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until `count` bytes have arrived; false if the peer closed its side before.
    pub(crate) async fn receive_at_least(&mut self, count: usize) -> io::Result<bool> {
        while self.input.bytes().len() < count {
            if self.ended || self.input.is_full() {
                return Ok(false);
            }
            std::future::poll_fn(|cx| self.poll_receive(cx)).await?;
        }
        Ok(true)
    }

    /// Returns when the peer has closed its side.
    async fn gone(&mut self) {
        while !self.ended && !self.input.is_full() {
            if std::future::poll_fn(|cx| self.poll_receive(cx)).await.is_err() {
                return;
            }
        }
        if !self.ended {
            std::future::pending::<()>().await;
        }
    }

    /// The result of the work; None if the peer closed its side before.
    pub(crate) async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.gone() => None,
            done = work => Some(done),
        }
    }

    /// The next message, its tag and its body, of at most `body_max` bytes; None if the peer closed its side before.
    pub(crate) async fn receive_message(&mut self, body_max: usize) -> io::Result<Option<(u8, Vec<u8>)>> {
        if !self.receive_at_least(frame::HEADER_BYTES).await? {
            return Ok(None);
        }
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "invalid message length");
        let head = frame::header(self.input.bytes()).ok().flatten().ok_or_else(invalid)?;
        if head.frame_bytes > body_max + frame::HEADER_BYTES {
            return Err(invalid());
        }
        if !self.receive_at_least(head.frame_bytes).await? {
            return Ok(None);
        }
        let body = self.input.bytes().get(frame::HEADER_BYTES..head.frame_bytes).unwrap_or_default().to_vec();
        self.input.consume(head.frame_bytes);
        Ok(Some((head.tag, body)))
    }

    /// Whether there is output to send.
    pub(crate) fn has_output(&self) -> bool {
        self.unflushed || !self.output.is_empty()
    }

    /// Closes the sending side.
    pub(crate) async fn shut_down(&mut self) -> io::Result<()> {
        tokio::io::AsyncWriteExt::shutdown(&mut self.socket).await
    }

    /// Sends all output.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_send(cx)).await
    }
}
