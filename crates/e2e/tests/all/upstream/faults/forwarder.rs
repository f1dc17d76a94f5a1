//! An address that leads to a server and can be moved to another one: a virtual IP, or a DNS entry. Open connections keep their server, as they do if
//! the old server stays alive.
//!
//! It knows the frames that servers send, and can corrupt one of a change stream.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use anyhow::{Context, Result};

/// Where to change a byte of a message of the stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Garble {
    /// The type of the frame, which should be CopyData.
    Frame,
    /// Its length.
    Length,
    /// What kind of copy data it is.
    Kind,
    /// What the output plugin says: the type of its message.
    Message,
}

/// The address. Connections end with the servers and clients.
pub(super) struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    garble: Mutex<Option<Garble>>,
}

impl Forwarder {
    pub(super) fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { target: Mutex::new(target), garble: Mutex::new(None) });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is down refuses; so does its address.
                if let Ok(server) = TcpStream::connect(*lock(&accepting.target)) {
                    let _ = join(client, server, &accepting);
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// The connection string of a database behind it.
    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://postgres:freshet@{}/{database}?sslmode=disable", self.address)
    }

    /// New connections lead there.
    pub(super) fn move_to(&self, target: SocketAddr) {
        *lock(&self.shared.target) = target;
    }

    /// Garbles the next row change.
    pub(super) fn garble(&self, what: Garble) {
        *lock(&self.shared.garble) = Some(what);
    }

    /// Whether it has been done.
    pub(super) fn has_garbled(&self) -> bool {
        lock(&self.shared.garble).is_none()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

fn join(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || forward(from, to));
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _ = answer(&server, &client, &shared);
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Frame by frame.
fn answer(mut server: &TcpStream, mut client: &TcpStream, shared: &Shared) -> Result<()> {
    loop {
        let mut head = [0; 5];
        server.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let mut frame = head.to_vec();
        frame.resize(usize::try_from(length)? + 1, 0);
        server.read_exact(frame.get_mut(5..).context("a length below 4")?)?;
        // XLogData: `w` and three numbers of 8 bytes before what the plugin says; `U` is an Update.
        let is_update = head[0] == b'd' && frame.get(5) == Some(&b'w') && frame.get(30) == Some(&b'U');
        if is_update && let Some(what) = lock(&shared.garble).take() {
            let at = match what {
                Garble::Frame => 0,
                Garble::Length => 1,
                Garble::Kind => 5,
                Garble::Message => 30,
            };
            frame[at] = 0xEE;
        }
        client.write_all(&frame)?;
    }
}
