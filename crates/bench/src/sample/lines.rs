//! The statistics of memcached and Redis, over their own text protocols.
//!
//! Formats: memcached's `doc/protocol.txt` ("Statistics"), Redis's `INFO` command. Both list a name and a value per line.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::result::Cache;

/// Time limit for connecting, sending the request and reading the whole answer.
const TIMEOUT: Duration = Duration::from_secs(3);
const LINES_MAX: usize = 10_000;
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Names and values, unchanged.
pub(super) type Values = BTreeMap<String, String>;

/// A connection to `host:port`, with a time limit for writes. `port` is used if the address has none.
pub(super) fn connect(place: &str, port: u16) -> Result<TcpStream> {
    let addresses = place.to_socket_addrs().or_else(|_| (place, port).to_socket_addrs());
    let address =
        addresses.with_context(|| place.to_owned())?.next().with_context(|| format!("{place}: no address"))?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("connecting to {place}"))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// The input of a connection until a time limit, and an error from then on. A limit for each read alone would let a peer that sends a byte now and
/// then delay the run for days.
pub(super) struct Answer {
    stream: TcpStream,
    deadline: Instant,
}

/// Connects and sends the request.
pub(super) fn request(place: &str, port: u16, text: &[u8]) -> Result<Answer> {
    let mut stream = connect(place, port)?;
    stream.write_all(text).with_context(|| format!("sending a request to {place}"))?;
    Ok(Answer { stream, deadline: Instant::now() + TIMEOUT })
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Reads memcached's `stats`.
pub(super) fn memcached(place: &str) -> Result<Values> {
    let answer = request(place, 11_211, b"stats\r\n")?;
    let mut values = Values::new();
    for line in BufReader::new(answer.take(ANSWER_BYTES_MAX)).lines().take(LINES_MAX) {
        let line = line.with_context(|| format!("reading {place}"))?;
        let mut words = line.trim_end().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("STAT"), Some(name), value) => {
                values.insert(name.to_owned(), value.unwrap_or_default().to_owned());
            }
            (Some("END"), None, None) => return Ok(values),
            _ => bail!("{place}: not an answer of memcached: {line}"),
        }
    }
    bail!("{place}: an answer without end")
}

/// Reads Redis's `INFO`: a bulk string with `$` and its length on the first line.
pub(super) fn redis(place: &str) -> Result<Values> {
    let answer = request(place, 6_379, b"*1\r\n$4\r\nINFO\r\n")?;
    let mut reader = BufReader::new(answer.take(ANSWER_BYTES_MAX));
    let mut head = String::new();
    reader.read_line(&mut head).with_context(|| format!("reading {place}"))?;
    let length = head.trim_end().strip_prefix('$').and_then(|length| length.parse::<u64>().ok());
    let length = length.with_context(|| format!("{place}: no answer to INFO: {}", head.trim_end()))?;
    ensure!(length < ANSWER_BYTES_MAX, "{place}: an answer of {length} bytes");
    let mut text = String::new();
    reader.take(length).read_to_string(&mut text).with_context(|| format!("reading {place}"))?;
    Ok(redis_values(&text))
}

fn redis_values(text: &str) -> Values {
    let pair = |line: &str| line.trim_end().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter_map(pair).collect()
}

fn number(values: &Values, name: &str) -> f64 {
    values.get(name).and_then(|value| finite(value)).unwrap_or_default()
}

/// A number that JSON can represent: neither infinite nor NaN.
pub(super) fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A get without a result becomes a request to the database. memcached does not know who stored the value afterwards.
pub(super) fn memcached_cache(values: &Values) -> Cache {
    Cache {
        hits: number(values, "get_hits"),
        fills: 0.0,
        passed: number(values, "get_misses"),
        evictions: number(values, "evictions"),
        entries: number(values, "curr_items"),
        bytes: number(values, "bytes"),
        ..Cache::default()
    }
}

/// The same for Redis. Its entries are listed by database, as `db0:keys=5,expires=0`.
pub(super) fn redis_cache(values: &Values) -> Cache {
    let keys = |(name, value): (&String, &String)| {
        let database = name.strip_prefix("db")?;
        database.parse::<u32>().ok()?;
        value.split(',').find_map(|part| part.strip_prefix("keys=")).and_then(finite)
    };
    Cache {
        hits: number(values, "keyspace_hits"),
        fills: 0.0,
        passed: number(values, "keyspace_misses"),
        evictions: number(values, "evicted_keys"),
        entries: values.iter().filter_map(keys).sum(),
        bytes: number(values, "used_memory"),
        ..Cache::default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_that_drips_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let dripping = std::thread::spawn(move || {
            let (mut peer, _) = listener.accept().unwrap();
            // It ends eventually. The wait for this has no deadline.
            (0..100).all(|_| {
                std::thread::sleep(Duration::from_millis(20));
                peer.write_all(b"x").is_ok()
            })
        });
        let mut answer = Answer { stream, deadline: Instant::now() + Duration::from_millis(200) };
        let error = answer.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        drop(answer);
        assert!(!dripping.join().unwrap(), "it sent everything");
    }

    #[test]
    fn numbers_are_finite() {
        let values = ["1e3", "NaN", "inf", "1e999", "x"].map(finite);
        assert_eq!(values, [Some(1_000.0), None, None, None, None]);
    }
}
