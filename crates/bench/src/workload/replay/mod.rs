//! `replay`: the statements of a server's query log, with the same sessions, in the same order, at the same intervals.
//!
//! Each logged session gets a connection. If more sessions are open at once than there are connections, some share one, and the report says so. A
//! statement is sent at its time in the log (`--speed` times faster). If the previous statement of its session is answered later, it is sent then.
//! So, unlike in an open loop, a slow target delays the following statements of a session, as it would delay the application. The delay of each
//! statement is measured. Latency counts from the time of sending.
//!
//! Statements are sent as in the log: texts as texts, and PostgreSQL's statements with parameters in the extended protocol. Results are listed by
//! normalized query.

mod format;
mod general;
mod log;
mod postgres;
mod slow;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use format::LogFormat;
use log::{Log, Logged, SECOND};

use super::custom::guessed;
use super::{Replayed, Script, Workload};
use crate::driver::Failure;
use crate::random::Random;
use crate::session::Session;
use crate::statement::{Effect, Statement};
use crate::value::Value;

/// The most normalized queries that are listed. The rarer ones are grouped.
const SHAPES_MAX: usize = 20;
/// Characters of a normalized query that are shown.
const SHAPE_CHARS: usize = 90;
/// The longest replay.
const SECONDS_MAX: f64 = 86_400.0;
/// Seconds after the last statement, so that its answer is within the measured interval.
const TAIL: f64 = 0.2;

/// The log and the way to replay it.
#[derive(Clone, Debug, clap::Args)]
pub struct ReplayArgs {
    /// replay: the query log of a PostgreSQL, MySQL or MariaDB server
    #[arg(long, help_heading = "Workload")]
    pub query_log: Option<PathBuf>,
    /// replay: form of the log [default: recognised by its beginning]
    #[arg(long, value_enum, requires = "query_log", help_heading = "Workload")]
    pub log_format: Option<LogFormat>,
    /// replay: the server's log_line_prefix, for PostgreSQL's text log [default: '%m [%p] ']
    #[arg(long, requires = "query_log", help_heading = "Workload")]
    pub log_line_prefix: Option<String>,
    /// replay: how many times faster than the log [default: 1]
    #[arg(long, requires = "query_log", help_heading = "Workload")]
    pub speed: Option<f64>,
    /// replay: leave out statements that write, and BEGIN and COMMIT
    #[arg(long, requires = "query_log", help_heading = "Workload")]
    pub reads_only: bool,
}

/// The workload.
#[derive(Debug)]
pub(super) struct Replay {
    steps: Vec<Step>,
    /// The steps of each session, by index, in order.
    sessions: Vec<Vec<usize>>,
    statements: Arc<[Statement]>,
    settings: Vec<(String, String)>,
    speed: f64,
    /// The steps of each connection.
    dealt: OnceLock<Vec<Arc<[Step]>>>,
}

/// A statement and its time.
#[derive(Clone, Debug)]
struct Step {
    /// Time since the first statement.
    at: Duration,
    /// Index of its normalized query.
    shape: usize,
    text: Arc<str>,
    values: Option<Vec<Value>>,
}

impl Replay {
    pub(super) fn read(args: &ReplayArgs) -> Result<Self> {
        let path = args.query_log.as_deref().context("replay needs --query-log")?;
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let text = String::from_utf8_lossy(&bytes);
        let log = format::parse(&text, args.log_format, args.log_line_prefix.as_deref().unwrap_or("%m [%p] "));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let speed = args.speed.unwrap_or(1.0);
        ensure!(speed.is_finite() && speed > 0.0, "--speed is more than 0");
        Self::of(log.with_context(|| path.display().to_string())?, (&name, speed), args.reads_only)
    }

    fn of(mut log: Log, (name, speed): (&str, f64), reads_only: bool) -> Result<Self> {
        let effect = |statement: &Logged| guessed(&statement.text).unwrap_or(Effect::Write);
        if reads_only {
            let all = log.statements.len();
            log.statements.retain(|statement| effect(statement) == Effect::Read);
            let left = (all - log.statements.len()) as u64;
            log.left_out.insert("not a read (--reads-only)".to_owned(), left);
        }
        // PostgreSQL writes a line with a duration at the end of the statement, so lines may be out of order.
        log.statements.sort_by_key(|statement| statement.at);
        let (first, last) = (log.statements.first(), log.statements.last());
        let (first, last) =
            first.zip(last).map(|(first, last)| (first.at, last.at)).context("no statement is left to replay")?;
        let seconds = (last - first) as f64 / SECOND as f64 / speed;
        ensure!(seconds <= SECONDS_MAX, "a replay of {:.0} hours is too long: raise --speed", seconds / 3_600.0);
        let (shapes, statements) = shapes(&log.statements, effect);
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut sessions: Vec<Vec<usize>> = Vec::new();
        let mut steps = Vec::new();
        for (place, (logged, shape)) in log.statements.iter().zip(shapes).enumerate() {
            let session = *numbers.entry(logged.session.clone()).or_insert_with(|| {
                sessions.push(Vec::new());
                sessions.len() - 1
            });
            sessions[session].push(place);
            let at = Duration::from_secs_f64((logged.at - first) as f64 / SECOND as f64 / speed);
            steps.push(Step { at, shape, text: Arc::clone(&logged.text), values: logged.values.clone() });
        }
        let mut settings = vec![
            ("log".to_owned(), name.to_owned()),
            ("speed".to_owned(), speed.to_string()),
            ("statements".to_owned(), steps.len().to_string()),
            ("sessions".to_owned(), sessions.len().to_string()),
        ];
        if reads_only {
            settings.push(("reads-only".to_owned(), "on".to_owned()));
        }
        let left: Vec<String> = log.left_out.iter().map(|(reason, count)| format!("{count} × {reason}")).collect();
        if !left.is_empty() {
            settings.push(("left-out".to_owned(), left.join("; ")));
        }
        if log.coarse {
            settings.push(("times".to_owned(), "whole seconds, statements spread over each".to_owned()));
        }
        Ok(Self { steps, sessions, statements, settings, speed, dealt: OnceLock::new() })
    }

    /// Assigns the sessions, in the order of their beginnings, to connections that are free again. If all are in use, a session goes to the one that
    /// is free first.
    fn deal(&self, most: usize) -> Vec<Arc<[Step]>> {
        let mut lanes: Vec<(Duration, Vec<usize>)> = Vec::new();
        for session in &self.sessions {
            let at = |place: Option<&usize>| place.map_or(Duration::ZERO, |place| self.steps[*place].at);
            let (begins, ends) = (at(session.first()), at(session.last()));
            let until = |place: &usize| lanes[*place].0;
            let free = (0..lanes.len()).filter(|place| until(place) < begins).max_by_key(until);
            let shared = || (0..lanes.len()).min_by_key(until);
            let place = if lanes.len() < most.max(1) { free } else { free.or_else(shared) };
            let place = place.unwrap_or_else(|| {
                lanes.push((Duration::ZERO, Vec::new()));
                lanes.len() - 1
            });
            let lane = &mut lanes[place];
            lane.0 = lane.0.max(ends);
            lane.1.extend(session);
        }
        let steps = |(_, mut places): (Duration, Vec<usize>)| {
            places.sort_unstable();
            places.into_iter().map(|place| self.steps[place].clone()).collect()
        };
        lanes.into_iter().map(steps).collect()
    }
}

/// The index of each statement's normalized query, and the normalized queries as statements. The last two are groups of the rarer ones.
fn shapes(logged: &[Logged], effect: impl Fn(&Logged) -> Effect) -> (Vec<usize>, Arc<[Statement]>) {
    let mut counts: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let all: Vec<(String, bool)> = logged.iter().map(|one| (shape(&one.text), effect(one) == Effect::Read)).collect();
    for (shape, reads) in &all {
        counts.entry(shape.clone()).or_insert((0, *reads)).0 += 1;
    }
    let mut often: Vec<(String, usize, bool)> =
        counts.into_iter().map(|(shape, (count, reads))| (shape, count, reads)).collect();
    often.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    often.truncate(SHAPES_MAX);
    let number = |(shape, reads): &(String, bool)| {
        often.iter().position(|(known, ..)| known == shape).unwrap_or(often.len() + usize::from(!reads))
    };
    let numbers = all.iter().map(number).collect();
    let statement = |shape: &str, reads: bool| {
        if reads { Statement::read(shape, "") } else { Statement::write(shape, "") }
    };
    let listed = often.iter().map(|(shape, _, reads)| statement(shape, *reads));
    let rest = [statement("other reads", true), statement("others", false)];
    (numbers, listed.chain(rest).collect())
}

/// The text without its literals, on one line.
fn shape(text: &str) -> String {
    let (mut shape, mut letters) = (String::new(), text.chars().peekable());
    while let Some(letter) = letters.next() {
        let in_word = shape.ends_with(|c: char| c.is_alphanumeric() || "_$".contains(c));
        match letter {
            '\'' => {
                while let Some(inside) = letters.next() {
                    match inside {
                        '\\' => drop(letters.next()),
                        '\'' if letters.peek() == Some(&'\'') => drop(letters.next()),
                        '\'' => break,
                        _ => {}
                    }
                }
                shape.push('?');
            }
            '0'..='9' if !in_word => {
                while letters.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
                shape.push('?');
            }
            letter if letter.is_whitespace() => {
                if !shape.ends_with(' ') {
                    shape.push(' ');
                }
            }
            letter => shape.push(letter),
        }
    }
    // Lists of all lengths count as one.
    while let Some(at) = shape.find("?, ?").or(shape.find("?,?")) {
        let end = at + if shape[at..].starts_with("?, ?") { 4 } else { 3 };
        shape.replace_range(at..end, "?");
    }
    let shown: String = shape.trim().chars().take(SHAPE_CHARS).collect();
    if shown.len() < shape.trim().len() { shown + "…" } else { shown }
}

impl Workload for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn settings(&self) -> Vec<(String, String)> {
        self.settings.clone()
    }

    fn statements(&self) -> Arc<[Statement]> {
        Arc::clone(&self.statements)
    }

    fn script(&self, _random: Random) -> Script {
        self.part(0, Random::new(0))
    }

    fn part(&self, number: usize, _random: Random) -> Script {
        let steps = self.dealt.get().and_then(|lanes| lanes.get(number)).cloned();
        Script::Replay(Player { steps: steps.unwrap_or_else(|| Arc::from(Vec::new())), next: 0 })
    }

    fn writer(&self, _random: Random) -> Option<Script> {
        None
    }

    fn replays(&self, connections: usize) -> Option<Replayed> {
        let lanes = self.dealt.get_or_init(|| self.deal(connections));
        let last = self.steps.last().map_or(0.0, |step| step.at.as_secs_f64());
        Some(Replayed { connections: lanes.len().max(1), seconds: last + TAIL, speed: self.speed })
    }

    fn logged(&self) -> Vec<(Arc<str>, Option<Vec<Value>>)> {
        let reads = self.steps.iter().filter(|step| guessed(&step.text).is_ok_and(|effect| effect == Effect::Read));
        reads.map(|step| (Arc::clone(&step.text), step.values.clone())).collect()
    }

    /// No reads are drawn: answers of a replay are not compared.
    fn draw_read(&self, _random: &mut Random) -> (usize, Vec<Value>) {
        (0, Vec::new())
    }
}

/// The script of one connection.
#[derive(Debug)]
pub struct Player {
    steps: Arc<[Step]>,
    next: usize,
}

impl Player {
    /// The time of the next statement, since the beginning.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.steps.get(self.next).map(|step| step.at)
    }

    /// Sends the next statement.
    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), Failure> {
        let Some(step) = self.steps.get(self.next) else { return Ok(()) };
        self.next += 1;
        session.text(step.shape, &step.text, step.values.as_deref()).await
    }
}

#[cfg(test)]
mod tests;
