//! Parts of a relay between Freshet and a server: each test decides what the relay delays.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

/// Listens until the process ends; `join` receives each client with a connection to the server. If the server refuses connections, so does the relay.
pub(crate) fn listen(
    server: SocketAddr,
    mut join: impl FnMut(TcpStream, TcpStream) -> Result<()> + Send + 'static,
) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Ok(server) = TcpStream::connect(server) {
                let _ = join(client, server);
            }
        }
    });
    Ok(address)
}

/// Forwards bytes both ways until either side ends; before each piece it calls a function, which may wait.
pub(crate) fn pass_on(
    client: TcpStream,
    server: TcpStream,
    of_client: impl FnMut(&[u8]) + Send + 'static,
    of_server: impl FnMut(&[u8]) + Send + 'static,
) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || copy(from_client, to_server, of_client));
    thread::spawn(move || copy(server, client, of_server));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        look(&chunk[..n]);
        if to.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    // Gone already, most likely.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
