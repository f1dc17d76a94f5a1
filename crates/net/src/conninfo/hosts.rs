//! The lists `host`, `hostaddr` and `port`, made into addresses.

use std::path::PathBuf;

use super::settings::Settings;
use super::{Address, ConninfoError, Environment};

/// PostgreSQL's registered port.
const PORT_DEFAULT: u16 = 5432;
/// More hosts than this are a mistake.
const HOSTS_MAX: usize = 64;

/// The servers to try, in order. At least one.
pub(super) fn addresses(settings: &Settings, environment: &Environment) -> Result<Vec<Address>, ConninfoError> {
    let list = |name| settings.get(name).map(|value| value.split(',').collect::<Vec<_>>());
    let (names, ips) = (list("host"), list("hostaddr"));
    let count = ips.as_ref().or(names.as_ref()).map_or(1, Vec::len);
    if count > HOSTS_MAX {
        return Err(ConninfoError::Hosts(HOSTS_MAX));
    }
    let names = names.unwrap_or_else(|| vec![""; count]);
    let ips = ips.unwrap_or_else(|| vec![""; count]);
    if names.len() != count {
        return Err(ConninfoError::Count { name: "hostaddr", given: count, hosts: names.len() });
    }
    let ports = match list("port").as_deref() {
        None => vec![PORT_DEFAULT; count],
        Some([one]) => vec![port(one)?; count],
        Some(many) if many.len() == count => many.iter().map(|text| port(text)).collect::<Result<_, _>>()?,
        Some(many) => return Err(ConninfoError::Count { name: "port", given: many.len(), hosts: count }),
    };
    let entries = names.into_iter().zip(ips).zip(ports);
    entries.map(|((name, ip), port)| address(name, ip, port, environment)).collect()
}

fn address(name: &str, ip: &str, port: u16, environment: &Environment) -> Result<Address, ConninfoError> {
    if !ip.is_empty() {
        let name = if name.is_empty() { ip } else { name };
        let ip = ip.parse().map_err(|_| ConninfoError::HostAddr)?;
        return Ok(Address::Tcp { name: name.into(), ip: Some(ip), port });
    }
    if name.starts_with('/') {
        return Ok(Address::Unix { directory: PathBuf::from(name), port });
    }
    if name.starts_with('@') {
        return Err(ConninfoError::AbstractSocket);
    }
    if name.contains('@') {
        return Err(ConninfoError::AtSign);
    }
    if !name.is_empty() {
        return Ok(Address::Tcp { name: name.into(), ip: None, port });
    }
    let socket = Address::Unix { directory: environment.socket_directory().into(), port };
    let found = socket.socket_path().is_some_and(|path| path.exists());
    Ok(if found { socket } else { Address::Tcp { name: "localhost".into(), ip: None, port } })
}

fn port(text: &str) -> Result<u16, ConninfoError> {
    match text.trim_ascii() {
        "" => Ok(PORT_DEFAULT),
        number => number.parse().ok().filter(|port| *port != 0).ok_or(ConninfoError::Port),
    }
}
