//! The client's side of a session: its socket, and how far what it sends has been read.

use freshet_sql::TraceParent;
use freshet_types::Reason;

use crate::peer::{Input, Peer};
use crate::postgres::session::long_text::{LongText, Shows};
use crate::postgres::session::server_connection::ServerConnection;
use crate::postgres::session::unseen::UnseenExecution;

/// How far the client's side has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Not by a message.
    Open,
    /// The client has sent `Terminate`, or what the server ends the session for: nothing after that is read.
    Goodbye,
    /// The server has been told that nothing more comes.
    Told,
}

/// The batch of the extended protocol whose `Sync` has not been read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpenBatch {
    /// None of its messages has been sent.
    None,
    /// It passes, for this reason.
    Passes(Reason),
    /// Its first messages have gone ahead, and are not answered yet.
    Leads,
    /// One of those has failed: the rest is skipped.
    Skipped,
}

/// The client's side.
#[derive(Debug)]
pub(super) struct ClientSide {
    socket: Peer,
    /// Bytes of its current message that pass unseen.
    rest: usize,
    /// The text of that message, of which only the beginning is known.
    long_text: Option<LongText>,
    batch: OpenBatch,
    /// A batch was answered up to a `Flush`, and the server knows of no open batch: the client's `Sync` is answered here.
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

    /// Bytes that have come and are not consumed.
    pub(super) fn received(&self) -> &[u8] {
        self.socket.input.bytes()
    }

    /// Bytes that have come in all.
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

    /// Appends to what is sent next.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.socket.output.put(bytes);
    }

    /// What is sent next.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        self.socket.output.buffer()
    }

    /// So much waits to be sent that no more is to be added.
    pub(super) fn is_high(&self) -> bool {
        self.socket.output.is_high()
    }

    /// The client sends nothing more.
    pub(super) fn has_ended(&self) -> bool {
        self.socket.ended
    }

    // --- messages ------------------------------------------------------------------------------------------

    /// The beginning of a message has been forwarded, and the rest has not come yet.
    pub(super) fn is_within_message(&self) -> bool {
        self.rest > 0
    }

    /// The message at the start of the input passes as it comes.
    pub(super) fn begin_message(&mut self, bytes: usize) {
        self.rest = bytes;
    }

    /// The text of the message at the start of the input passes in pieces.
    pub(super) fn expect_long_text(&mut self, text: Option<LongText>) {
        self.long_text = text;
    }

    /// Moves what is there of the current message: how many bytes that was, and what they show of its text.
    pub(super) fn move_rest(&mut self, server: &mut ServerConnection) -> (usize, Option<Shows>) {
        let input = self.socket.input.bytes();
        let bytes = input.get(..self.rest).unwrap_or(input);
        let count = bytes.len();
        let shows = self.long_text.as_mut().and_then(|text| text.read(bytes));
        if self.batch != OpenBatch::Skipped {
            server.put(bytes);
        }
        self.socket.input.consume(count);
        self.rest -= count;
        if self.rest == 0 || shows.is_some() {
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

    /// Its `Sync` has been sent, or its first messages have been answered.
    pub(super) fn end_batch(&mut self) {
        self.batch = OpenBatch::None;
    }

    /// A batch is open of which messages have passed.
    pub(super) fn passes_batch(&self) -> bool {
        matches!(self.batch, OpenBatch::Passes(_))
    }

    /// The first messages of a batch are not answered yet.
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

    /// The next `Sync` is answered here.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.ends_by_itself
    }

    /// The last execution, if the client can notice that the server has not seen it.
    pub(super) fn unseen(&self) -> &UnseenExecution {
        &self.unseen
    }

    pub(super) fn unseen_mut(&mut self) -> &mut UnseenExecution {
        &mut self.unseen
    }

    // --- the end -------------------------------------------------------------------------------------------

    /// The client has said goodbye, or is taken to have.
    pub(super) fn say_goodbye(&mut self) {
        self.ending = Ending::Goodbye;
    }

    /// The server has been told that nothing more comes.
    pub(super) fn end_is_told(&mut self) {
        self.ending = Ending::Told;
    }

    /// No message has ended the client's side.
    pub(super) fn is_open(&self) -> bool {
        self.ending == Ending::Open
    }

    /// Nothing more is read, and the server does not know yet.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.ending == Ending::Goodbye
    }
}
