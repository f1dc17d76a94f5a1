//! A real server on the loopback interface with behaviour set by the test, and its client.
//!
//! A request is one byte: `o` after a connection is opened, `?` for a transaction. The answer is one byte too: `.` for success, and `!` for a failure
//! after which the connection can still be used.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::client::Client;
use super::super::recorder::Recorder;
use crate::driver::Failure;

/// The server's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    Success,
    Failure,
    /// Closes the connection without an answer.
    Close,
    /// Keeps the connection open without an answer.
    Never,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// Whether it is the first of its connection.
    pub(super) opens: bool,
    /// Number of earlier transactions on all connections.
    pub(super) before: u64,
    /// Number of earlier transactions on this connection.
    pub(super) before_here: u64,
}

/// Starts a server that runs until the test's process ends.
pub(super) fn serve(answer: impl Fn(Request) -> Answer + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, asked) = (Arc::new(answer), Arc::new(AtomicU64::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, asked) = (Arc::clone(&answer), Arc::clone(&asked));
            std::thread::spawn(move || serve_one(stream.unwrap(), answer.as_ref(), &asked));
        }
    });
    address
}

fn serve_one(mut stream: TcpStream, answer: &dyn Fn(Request) -> Answer, asked: &AtomicU64) {
    stream.set_nodelay(true).unwrap();
    let (mut byte, mut before_here) = ([0], 0);
    while stream.read_exact(&mut byte).is_ok() {
        let opens = byte == *b"o";
        let before = asked.fetch_add(u64::from(!opens), Ordering::Relaxed);
        let answer = match answer(Request { opens, before, before_here }) {
            Answer::Success => b".",
            Answer::Failure => b"!",
            Answer::Close => return,
            Answer::Never => continue,
        };
        before_here += u64::from(!opens);
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}

/// A client whose transactions are one statement each.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) address: SocketAddr,
    pub(super) opened: AtomicU64,
    pub(super) rolled_back: AtomicU64,
    /// Milliseconds for which the next transaction blocks its thread.
    pub(super) hold_up: AtomicU64,
    /// Whether answers are there at once, as those of a server are that runs before the client does again.
    pub(super) at_once: bool,
}

impl Asking {
    pub(super) fn new(address: SocketAddr) -> Self {
        let none = || AtomicU64::new(0);
        Self { address, opened: none(), rolled_back: none(), hold_up: none(), at_once: false }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: tokio::net::TcpStream,
    recorder: Rc<RefCell<Recorder>>,
}

impl Connection {
    async fn ask(&mut self, request: u8) -> Result<(), Failure> {
        let mut answer = [0];
        let asked = async {
            self.stream.write_all(&[request]).await?;
            self.stream.read_exact(&mut answer).await
        };
        asked.await.map_err(|error| Failure::connection(&error))?;
        let (code, text) = ("40001".to_owned(), "the server says no".to_owned());
        if answer == *b"." { Ok(()) } else { Err(Failure { code, text, usable: true, retry: true }) }
    }
}

impl Client for Asking {
    type Connection = Connection;

    fn target(&self) -> String {
        format!("the double at {}", self.address)
    }

    async fn open(&self, _number: usize, recorder: &Rc<RefCell<Recorder>>) -> Result<Connection, Failure> {
        let stream = tokio::net::TcpStream::connect(self.address).await.map_err(|error| Failure::connection(&error))?;
        stream.set_nodelay(true).map_err(|error| Failure::connection(&error))?;
        let mut connection = Connection { stream, recorder: Rc::clone(recorder) };
        connection.ask(b'o').await?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(connection)
    }

    async fn reopen(&self, connection: &mut Connection, recorder: &Rc<RefCell<Recorder>>) -> Result<(), Failure> {
        *connection = self.open(0, recorder).await?;
        Ok(())
    }

    async fn run(&self, connection: &mut Connection) -> Result<(), Failure> {
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(self.hold_up.swap(0, Ordering::Relaxed)));
        if !self.at_once {
            connection.ask(b'?').await?;
        }
        connection.recorder.borrow_mut().statement(0, began, 1);
        Ok(())
    }

    async fn roll_back(&self, _connection: &mut Connection) -> Result<(), Failure> {
        self.rolled_back.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
