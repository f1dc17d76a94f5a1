//! Which process of this machine listens at an address: from `/proc/net/tcp` (proc(5)) to the socket's inode, and from there
//! to whoever has it open.
//!
//! Servers that fork let their children inherit the socket, so many have it open; the one that opened it is that whose
//! parent is no such server. Sockets of other users' processes are seen by root alone, those behind another network
//! namespace (a container's forwarder) not at all.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use freshet_testbed::process;

/// State `LISTEN` in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The process that listens there, if it is one of this machine and can be seen.
pub(super) fn listener(host: &str, port: u16) -> Option<u32> {
    let addresses: Vec<IpAddr> = (host, port).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    let here: Vec<IpAddr> = addresses.into_iter().filter(|address| is_here(*address)).collect();
    let mut inodes = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let listening = text.lines().filter_map(listening).filter(|(address, _)| address.port() == port);
        let reached = |at: IpAddr| at.is_unspecified() || here.contains(&at.to_canonical());
        inodes
            .extend(listening.filter(|(address, _)| !here.is_empty() && reached(address.ip())).map(|(_, inode)| inode));
    }
    opener(&holders(&inodes))
}

/// An address of this machine is one that a socket can be bound to.
fn is_here(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Address and inode of a line, if it is a listening socket's.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words of 32 bits in the machine's own order.
    let word = |index: usize| Some(u32::from_str_radix(address.get(index * 8..index * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let address = if address.len() == 8 {
        IpAddr::V4(Ipv4Addr::from(word(0)?))
    } else {
        let mut bytes = [0; 16];
        for (index, place) in bytes.chunks_exact_mut(4).enumerate() {
            place.copy_from_slice(&word(index)?);
        }
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Some((SocketAddr::new(address, port), fields.get(9)?.parse().ok()?))
}

/// Processes that have one of these sockets open.
fn holders(inodes: &BTreeSet<u64>) -> Vec<process::Process> {
    let links: BTreeSet<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let holds = |process: &process::Process| {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else { return false };
        let open = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
        open.into_iter().any(|link| link.to_str().is_some_and(|link| links.contains(link)))
    };
    if links.is_empty() {
        return Vec::new();
    }
    process::all().unwrap_or_default().into_iter().filter(holds).collect()
}

/// Of those that have a socket open, the one that opened it: its parent has not, or is another program (a service manager
/// that hands sockets to its services).
fn opener(holders: &[process::Process]) -> Option<u32> {
    let parent = |child: &process::Process| holders.iter().find(|holder| holder.pid == child.parent);
    let first =
        |child: &&process::Process| parent(child).is_none_or(|parent| program(parent.pid) != program(child.pid));
    let first: Vec<u32> = holders.iter().filter(first).map(|process| process.pid).collect();
    // Of a service manager and its service the service.
    first.iter().copied().filter(|pid| *pid != 1).min().or(first.first().copied())
}

/// The program's name, of up to 15 bytes: `comm` in proc(5).
pub(super) fn program(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_from_the_tables_of_the_kernel() {
        let line = "   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 9264267 1 0 100 0 0 10 0";
        assert_eq!(listening(line), Some(("127.0.0.1:5432".parse().unwrap(), 9_264_267)));
        let six = "   1: 00000000000000000000000001000000:1538 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 42 1 0 100 0 0 10 0";
        assert_eq!(listening(six), Some(("[::1]:5432".parse().unwrap(), 42)));
        let connected = line.replace(" 0A ", " 01 ");
        assert_eq!(listening(&connected), None);
        assert_eq!(listening("  sl  local_address rem_address   st tx_queue"), None);
    }

    #[test]
    fn addresses_of_other_machines_are_not_here() {
        assert!(is_here("127.0.0.1".parse().unwrap()) && is_here("::1".parse().unwrap()));
        // TEST-NET-1 of RFC 5737: nobody's.
        assert!(!is_here("192.0.2.1".parse().unwrap()));
        assert_eq!(listener("192.0.2.1", 5432), None);
    }
}
