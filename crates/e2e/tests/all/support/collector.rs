//! A small OpenTelemetry collector: it takes OTLP over HTTP as JSON, or behaves as badly as a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What it does with a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// It keeps it.
    Takes,
    /// It says this, and keeps nothing.
    Says(&'static str),
    /// It never answers.
    Hangs,
}

/// A request that was kept.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Value,
}

#[derive(Debug)]
struct State {
    answer: Answer,
    /// This signal is refused, whatever the answer is: `traces`, `metrics`.
    refused: Option<&'static str>,
    asked: usize,
    requests: Vec<Request>,
    /// Connections that never get an answer.
    hanging: Vec<TcpStream>,
}

/// The collector. It listens until the process ends.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Collector {
    pub(crate) fn start() -> Result<Self> {
        Self::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// An address that nobody listens at.
    pub(crate) fn free_address() -> Result<SocketAddr> {
        Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
    }

    pub(crate) fn at(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let (answer, requests, hanging) = (Answer::Takes, Vec::new(), Vec::new());
        let state = Arc::new(Mutex::new(State { answer, refused: None, asked: 0, requests, hanging }));
        let collector = Self { address: listener.local_addr()?, state: state.clone() };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // What is no request is forgotten.
                let _ = take(client, &state);
            }
        });
        Ok(collector)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, answer: Answer) {
        self.state().answer = answer;
    }

    /// Takes no such signal.
    pub(crate) fn refuse(&self, signal: &'static str) {
        self.state().refused = Some(signal);
    }

    /// Requests that have come, kept or not.
    pub(crate) fn asked(&self) -> usize {
        self.state().asked
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state().requests.clone()
    }

    /// All spans that have come.
    pub(crate) fn spans(&self) -> Vec<Value> {
        self.all(["resourceSpans", "scopeSpans", "spans"])
    }

    /// All metrics that have come, the newest last.
    pub(crate) fn metrics(&self) -> Vec<Value> {
        self.all(["resourceMetrics", "scopeMetrics", "metrics"])
    }

    fn all(&self, path: [&str; 3]) -> Vec<Value> {
        let mut all: Vec<Value> = self.requests().into_iter().map(|request| request.body).collect();
        for name in path {
            let lists = all.into_iter().filter_map(|value| value[name].as_array().cloned());
            all = lists.flatten().collect();
        }
        all
    }
}

fn take(mut client: TcpStream, state: &Mutex<State>) -> Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(reader.read_line(&mut head)? > 0, "no whole head");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).context("no length")?;
    let mut body = vec![0; length.parse()?];
    reader.read_exact(&mut body)?;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked += 1;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let is_refused = state.refused.is_some_and(|signal| path.ends_with(signal));
    let answer = match state.answer {
        _ if is_refused => "HTTP/1.1 404 Not Found\r\n\r\n",
        Answer::Takes => {
            let body = serde_json::from_slice(&body)?;
            state.requests.push(Request { head, body });
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        }
        Answer::Says(text) => text,
        Answer::Hangs => {
            state.hanging.push(client);
            return Ok(());
        }
    };
    Ok(client.write_all(answer.as_bytes())?)
}

/// The value of an attribute of a span or a point, as text.
pub(crate) fn attribute(of: &Value, key: &str) -> Option<String> {
    let attributes = of["attributes"].as_array()?;
    let value = &attributes.iter().find(|attribute| attribute["key"] == key)?["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str()).map(str::to_owned)
}
