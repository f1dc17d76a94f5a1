//! The client side of a session: its socket, and how far its messages have been read.

use freshet_sql::TraceParent;
use freshet_types::Reason;

use crate::peer::{Input, Peer};
use crate::postgres::session::long_text::{LongText, Shows};
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::unseen::UnseenExecution;

/// How the client side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It has not, as far as messages say.
    Open,
    /// The client has sent `Terminate`, or a message for which the server ends the session: nothing after it is read.
    Goodbye,
    /// The server was told that no more messages come.
    Told,
}

/// The batch of the extended protocol whose `Sync` has not been read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenBatch {
    /// None of its messages was sent.
    None,
    /// It passes, for this reason.
    Passes(Reason),
    /// Its first messages were sent, and are not answered yet.
    Leads,
    /// One of those has failed: the rest is skipped.
    Skipped,
}

/// The client side.
#[derive(Debug)]
pub(super) struct ClientSide {
    socket: Peer,
    /// Bytes of the current message that pass without being parsed.
    rest: usize,
    /// They are dropped: the message has its answer.
    is_dropped: bool,
    /// The text of that message, as far as it was read.
    long_text: Option<LongText>,
    batch: OpenBatch,
    /// A batch was answered up to a `Flush`, and the server has no open batch: Freshet answers the client's `Sync`.
    ends_by_itself: bool,
    unseen: UnseenExecution,
    ending: Ending,
    /// The trace of the statement at the start of the input, while there are spans.
    trace: Option<TraceParent>,
}

impl ClientSide {
    pub(super) fn new(socket: Peer) -> Self {
        Self {
            socket,
            rest: 0,
            is_dropped: false,
            long_text: None,
            batch: OpenBatch::None,
            ends_by_itself: false,
            unseen: UnseenExecution::default(),
            ending: Ending::Open,
            trace: None,
        }
    }

    /// The socket, for the loop that waits for both sides.
    pub(super) fn socket(&mut self) -> &mut Peer {
        &mut self.socket
    }

    /// Received bytes that are not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.socket.input.bytes()
    }

    /// The number of bytes received in total.
    pub(super) fn traffic(&self) -> u64 {
        self.socket.traffic
    }

    pub(super) fn consume(&mut self, count: usize) {
        self.socket.input.consume(count);
    }

    pub(super) fn set_trace(&mut self, trace: Option<TraceParent>) {
        self.trace = trace;
    }

    pub(super) fn take_trace(&mut self) -> Option<TraceParent> {
        self.trace.take()
    }

    /// Takes out what has come while its messages are looked at. [`Self::put_back`] must follow.
    pub(super) fn take_input(&mut self) -> Input {
        self.socket.input.take()
    }

    pub(super) fn put_back(&mut self, input: Input) {
        self.socket.input = input;
    }

    /// The output buffer, to append to.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.socket.output.put(bytes);
    }

    /// The output.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.socket.output.buffer()
    }

    /// Whether the output has reached its limit.
    pub(super) fn is_high(&self) -> bool {
        self.socket.output.is_high()
    }

    /// Whether the client has closed its direction.
    pub(super) fn has_ended(&self) -> bool {
        self.socket.ended
    }

    /// Whether something is still to be sent to it.
    pub(super) fn has_output(&self) -> bool {
        self.socket.has_output()
    }

    /// Whether it goes on, without TLS.
    pub(super) fn is_plain(&self) -> bool {
        !self.socket.ended && !self.socket.socket().is_encrypted()
    }

    /// The connection, for another process.
    pub(super) fn take_descriptor(&mut self) -> std::io::Result<std::os::fd::OwnedFd> {
        self.socket.unplug().into_descriptor()
    }

    // --- messages ------------------------------------------------------------------------------------------

    /// Whether a message is partly forwarded.
    pub(super) fn is_within_message(&self) -> bool {
        self.rest > 0
    }

    /// The message at the start of the input passes.
    pub(super) fn begin_message(&mut self, bytes: usize) {
        self.rest = bytes;
    }

    /// The message at the start of the input is dropped, as far as it has come and what is still to come of it.
    pub(super) fn drop_message(&mut self, bytes: usize) {
        let received = bytes.min(self.received().len());
        self.consume(received);
        self.rest = bytes - received;
        self.is_dropped = self.rest > 0;
    }

    /// The text of the message at the start of the input passes in pieces.
    pub(super) fn expect_long_text(&mut self, text: Option<LongText>) {
        self.long_text = text;
    }

    /// Moves the received bytes of the current message: returns their number, and what they show of its text.
    pub(super) fn move_rest(&mut self, server: &mut ServerConnection) -> (usize, Shows) {
        let input = self.socket.input.bytes();
        let bytes = input.get(..self.rest).unwrap_or(input);
        let count = bytes.len();
        let shows = self.long_text.as_mut().map(|text| text.read(bytes)).unwrap_or_default();
        if self.batch != OpenBatch::Skipped && !self.is_dropped {
            server.put(bytes);
        }
        self.socket.input.consume(count);
        self.rest -= count;
        if self.rest == 0 {
            self.is_dropped = false;
            self.long_text = None;
        }
        (count, shows)
    }

    // --- batches -------------------------------------------------------------------------------------------

    pub(super) fn batch(&self) -> &OpenBatch {
        &self.batch
    }

    pub(super) fn begin_batch(&mut self, batch: OpenBatch) {
        self.batch = batch;
    }

    /// Its `Sync` was sent, or its first messages were answered.
    pub(super) fn end_batch(&mut self) {
        self.batch = OpenBatch::None;
    }

    /// Whether a batch is open of which messages have passed.
    pub(super) fn passes_batch(&self) -> bool {
        matches!(self.batch, OpenBatch::Passes(_))
    }

    /// Whether the first messages of a batch are not answered yet.
    pub(super) fn leads_batch(&self) -> bool {
        self.batch == OpenBatch::Leads
    }

    /// The rest of a batch is skipped.
    pub(super) fn skips_batch(&self) -> bool {
        self.batch == OpenBatch::Skipped
    }

    /// A batch has been answered up to a `Flush`, or is ended by Freshet: whether its `Sync`, still to come, is answered here.
    pub(super) fn set_ends_by_itself(&mut self, ends: bool) {
        self.ends_by_itself = ends;
    }

    /// Whether Freshet answers the next `Sync`.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.ends_by_itself
    }

    /// The last execution, if the client can notice that the server did not see it.
    pub(super) fn unseen(&self) -> &UnseenExecution {
        &self.unseen
    }

    pub(super) fn unseen_mut(&mut self) -> &mut UnseenExecution {
        &mut self.unseen
    }

    // --- the end -------------------------------------------------------------------------------------------

    /// The client has sent `Terminate`, or a message with the same effect.
    pub(super) fn say_goodbye(&mut self) {
        self.ending = Ending::Goodbye;
    }

    /// The server was told that no more messages come.
    pub(super) fn end_is_told(&mut self) {
        self.ending = Ending::Told;
    }

    /// Whether no message has ended the client side.
    pub(super) fn is_open(&self) -> bool {
        self.ending == Ending::Open
    }

    /// Whether no more messages are read, but the server was not told.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.ending == Ending::Goodbye
    }
}
