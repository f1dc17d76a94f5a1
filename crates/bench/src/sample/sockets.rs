//! Finds the process on this machine that listens at an address: from `/proc/net/tcp` (proc(5)) to the socket's inode, and from there to the process
//! that has it open.
//!
//! Servers that fork let their children inherit the socket, so many processes have it open. The one that opened it is the one whose parent does not
//! have it. Sockets of other users' processes are visible to root only. Those in another network namespace (a container's forwarder) are not visible.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use freshet_testbed::process;
use procfs::net::TcpState;
use procfs::process::FDTarget;

/// The process that listens at the address, if it is on this machine and visible.
pub(super) fn listener(host: &str, port: u16) -> Option<u32> {
    let addresses: Vec<IpAddr> = (host, port).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    let here: Vec<IpAddr> = addresses.into_iter().filter(|address| is_here(*address)).collect();
    if here.is_empty() {
        return None;
    }
    let sockets = [procfs::net::tcp(), procfs::net::tcp6()].into_iter().flatten().flatten();
    let reached = |at: IpAddr| at.is_unspecified() || here.contains(&at.to_canonical());
    let reached = |at: SocketAddr| at.port() == port && reached(at.ip());
    let listening = sockets.filter(|socket| socket.state == TcpState::Listen && reached(socket.local_address));
    opener(&holders(&listening.map(|socket| socket.inode).collect()))
}

/// An address is one of this machine if a socket can be bound to it.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Processes that have one of these sockets open.
fn holders(inodes: &BTreeSet<u64>) -> Vec<process::Process> {
    let holds = |process: &process::Process| {
        let open = process::opened(process.pid).and_then(|process| Ok(process.fd()?));
        let mut targets = open.into_iter().flatten().flatten().map(|descriptor| descriptor.target);
        targets.any(|target| matches!(target, FDTarget::Socket(inode) if inodes.contains(&inode)))
    };
    if inodes.is_empty() {
        return Vec::new();
    }
    process::all().unwrap_or_default().into_iter().filter(holds).collect()
}

/// Of the processes that have a socket open, the one that opened it. Its parent does not have the socket, or is another program (a service manager
/// that passes sockets to its services).
fn opener(holders: &[process::Process]) -> Option<u32> {
    let parent = |child: &process::Process| holders.iter().find(|holder| holder.pid == child.parent);
    let first =
        |child: &&process::Process| parent(child).is_none_or(|parent| program(parent.pid) != program(child.pid));
    let first: Vec<u32> = holders.iter().filter(first).map(|process| process.pid).collect();
    // Of a service manager and its service, the service.
    first.iter().copied().filter(|pid| *pid != 1).min().or(first.first().copied())
}

/// The program's name, up to 15 bytes: `comm` in proc(5).
pub(super) fn program(pid: u32) -> String {
    process::opened(pid).and_then(|process| Ok(process.stat()?.comm)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_are_not_here() {
        assert!(is_here("127.0.0.1".parse().unwrap()) && is_here("::1".parse().unwrap()));
        // TEST-NET-1 of RFC 5737, which is not in use.
        assert!(!is_here("192.0.2.1".parse().unwrap()));
        assert_eq!(listener("192.0.2.1", 5432), None);
    }
}
