//! The lower bound: a server that only reads a request and writes an answer of fixed sizes.
//!
//! Its cost is the kernel's cost of one exchange over a socket, so no server that reads and writes can be cheaper. Its threads wait with epoll and do
//! one read and one write for a request, without a runtime and without parsing. Connections are distributed over the threads in turn.
//!
//! It runs as a separate process (`freshet-bench echo`), so that its processor time is not part of the client's. The first line of its output is its
//! listening address.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// The most bytes of one read. Clients that pipeline more are served in several steps.
const BUFFER_BYTES: usize = 64 * 1024;
/// The most events taken from the kernel at once.
const EVENTS: usize = 128;

/// Serves for ever, on a thread for each processor, an answer of `answer` bytes to each `request` bytes.
pub fn serve(listen: SocketAddr, request: usize, answer: usize) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening at {listen}"))?;
    let mut out = io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    accept(&listener, Sizes::new(request, answer)?, threads)
}

/// The command that starts it. `program` is this program, which has the command `echo`.
pub(crate) fn command(program: &std::path::Path, request: usize, answer: usize) -> Command {
    let mut command = Command::new(program);
    command.args(["echo", "--listen", "127.0.0.1:0"]);
    command.args(["--request", &request.to_string(), "--answer", &answer.to_string()]);
    command
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    request: usize,
    answer: usize,
}

impl Sizes {
    fn new(request: usize, answer: usize) -> Result<Self> {
        ensure!(request > 0 && answer > 0, "requests and answers have at least one byte");
        Ok(Self { request, answer })
    }
}

/// Accepts connections and distributes them over the threads.
fn accept(listener: &TcpListener, sizes: Sizes, threads: usize) -> Result<()> {
    let workers: Vec<Arc<Worker>> =
        (0..threads.max(1)).map(|_| Worker::start(sizes)).collect::<Result<_>>().context("starting threads")?;
    for (number, worker) in (0..).zip(workers.iter().cycle()) {
        match listener.accept() {
            // A connection that is already closed does not matter.
            Ok((stream, _)) => drop(worker.take(number, stream)),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted || error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("accepting"),
        }
    }
    Ok(())
}

/// The connections of one thread.
#[derive(Debug)]
struct Worker {
    epoll: OwnedFd,
    /// Shared with the thread that accepts connections, which seldom locks it.
    connections: Mutex<HashMap<u64, Connection>>,
}

impl Worker {
    fn start(sizes: Sizes) -> Result<Arc<Self>> {
        let worker = Arc::new(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, connections: Mutex::default() });
        let this = Arc::clone(&worker);
        std::thread::Builder::new().name("echo".to_owned()).spawn(move || this.run(sizes))?;
        Ok(worker)
    }

    fn take(&self, number: u64, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = connections.entry(number).insert_entry(Connection { stream, read: 0, unsent: 0 });
        epoll::add(&self.epoll, &connection.get().stream, EventData::new_u64(number), EventFlags::IN)?;
        Ok(())
    }

    fn run(&self, sizes: Sizes) {
        let mut buffer = vec![0; BUFFER_BYTES.max(sizes.request)];
        let answers = vec![b'x'; BUFFER_BYTES.max(sizes.answer)];
        let mut events = Vec::<Event>::with_capacity(EVENTS);
        loop {
            events.clear();
            // If the call was interrupted, the list is empty, and the call is repeated.
            let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None);
            let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            for event in &events {
                let number = event.data.u64();
                let Some(connection) = connections.get_mut(&number) else { continue };
                let before = connection.wants();
                if connection.serve(sizes, &mut buffer, &answers).is_err() {
                    // Closing the connection removes it from the epoll set.
                    connections.remove(&number);
                } else if connection.wants() != before {
                    let _ = epoll::modify(&self.epoll, &connection.stream, event.data, connection.wants());
                }
            }
        }
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Bytes of an incomplete request.
    read: usize,
    /// Bytes of answers that the client does not accept yet.
    unsent: usize,
}

impl Connection {
    /// The connection reads only if the client reads its answers.
    fn wants(&self) -> EventFlags {
        if self.unsent > 0 { EventFlags::OUT } else { EventFlags::IN }
    }

    /// Reads once and answers the complete requests. An error or the end of input closes the connection.
    fn serve(&mut self, sizes: Sizes, buffer: &mut [u8], answers: &[u8]) -> io::Result<()> {
        if self.unsent == 0 {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.read += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            self.unsent = self.read / sizes.request * sizes.answer;
            self.read %= sizes.request;
        }
        while self.unsent > 0 {
            let piece = &answers[..self.unsent.min(answers.len())];
            match self.stream.write(piece) {
                Ok(count) => self.unsent -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(request: usize, answer: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || accept(&listener, Sizes { request, answer }, 2));
        address
    }

    fn ask(stream: &mut TcpStream, pieces: &[usize], answers: usize) {
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        for piece in pieces {
            stream.write_all(&vec![b'?'; *piece]).unwrap();
        }
        let mut read = vec![0; answers];
        stream.read_exact(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
    }

    /// Called when all expected bytes have arrived.
    fn leave(mut stream: TcpStream) {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn answers_have_the_right_size_however_requests_come() {
        let address = start(10, 7);
        let mut streams: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        for stream in &mut streams {
            ask(stream, &[10], 7);
            ask(stream, &[4, 6], 7);
            ask(stream, &[35], 21);
            ask(stream, &[5], 7);
        }
        streams.into_iter().for_each(leave);
    }

    #[test]
    fn a_client_that_does_not_read_gets_all_in_the_end() {
        let (request, answer, count) = (3, 1 << 20, 64);
        let mut stream = TcpStream::connect(start(request, answer)).unwrap();
        ask(&mut stream, &[request * count], answer * count);
        ask(&mut stream, &[request], answer);
        leave(stream);
    }
}
