//! Readers: sessions through Freshet that check every answer with the ledger. Their queries and the right answers are PostgreSQL's
//! [`questions`](crate::stress::questions).

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Instant;

use anyhow::Result;

use super::line::{Line, gives_way};
use super::stage::{SOURCES, Stage};
use crate::stress::GROUPS;
use crate::stress::ledger::{Seen, Snapshot, Span};
use crate::stress::line::Trouble;
use crate::stress::questions::{Exchange, Question, Shape};
use crate::stress::stage::{PARTS_PER_ITEM, Random};

/// How a reader goes about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Manner {
    /// Everything that can be asked, in every way it can be asked.
    Curious,
    /// Few questions with pauses: this one nearly always may be served from the cache, so it sees how old answers become.
    Patient,
    /// One question again and again.
    Faithful,
    /// Rows by their keys, one after the other.
    Quick,
    /// Transactions that each see one snapshot.
    Steady,
    /// The same of a driver that turns `autocommit` off and only ever commits.
    Old,
}

/// How a question is put.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Text,
    /// Prepared for this one time, with the values in it or as parameters.
    Once {
        bound: bool,
    },
    /// Prepared before; parameters of 4 or of 8 bytes.
    Kept {
        wide: bool,
    },
    /// `PREPARE` and `EXECUTE` as statements.
    Spoken,
    /// Several statements in one text.
    Joined,
}

/// How a transaction begins.
const BEGINNINGS: [&str; 4] =
    ["begin", "start transaction", "start transaction read only", "start transaction with consistent snapshot"];

/// A session and what it has been shown.
pub(crate) struct Reader<'a> {
    stage: &'a Stage,
    random: Random,
    manner: Manner,
    favourite: Question,
    line: Line,
    seen: Seen,
    prepared: HashMap<(Shape, &'static str), u32>,
    /// Without pauses.
    hurried: bool,
    /// Says nothing of which Freshet must suspect that it writes: each of that is fenced while the stream stalls.
    harmless: bool,
    /// Its transactions are READ COMMITTED.
    committed: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stage: &'a Stage, mut random: Random, manner: Manner, hurried: bool) -> Result<Self, Trouble> {
        let favourite = Question::by_id(&SOURCES[0], random.below(4) as i32);
        let line = stage.reconnect(true, &mut random)?;
        let prepared = HashMap::new();
        let committed = manner == Manner::Curious && random.percent(40);
        let seen = Seen::default();
        Ok(Self { stage, random, manner, favourite, line, seen, prepared, hurried, harmless: false, committed })
    }

    /// The same, but it says nothing that may write.
    pub(crate) fn harmless(self) -> Self {
        Self { harmless: true, ..self }
    }

    /// Reads until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut outcome = self.set_up();
        while !self.stage.is_over() {
            outcome = match outcome {
                Ok(()) => self.round(),
                Err(trouble) if gives_way(&trouble) => self.line.simple("rollback").map(drop),
                Err(trouble) => {
                    self.stage.survive(trouble.into())?;
                    // What another session was shown binds this one no more than any other.
                    (self.seen, self.prepared) = (Seen::default(), HashMap::new());
                    self.line = self.stage.reconnect(true, &mut self.random)?;
                    self.set_up()
                }
            };
        }
        match outcome {
            Err(trouble) if !gives_way(&trouble) => self.stage.survive(trouble.into()),
            _ => Ok(()),
        }
    }

    fn set_up(&mut self) -> Result<(), Trouble> {
        if self.manner == Manner::Old {
            self.line.simple("set autocommit = 0")?;
        }
        if self.committed {
            self.line.simple("set session transaction isolation level read committed")?;
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), Trouble> {
        match self.manner {
            Manner::Patient => {
                let question = Question::by_id(&SOURCES[0], self.random.below(4) as i32);
                let mode = if self.random.percent(50) { Mode::Text } else { Mode::Kept { wide: false } };
                self.ask(&[question], mode, None)?;
                self.random.nap(150);
            }
            Manner::Faithful => {
                self.ask(&[self.favourite], Mode::Text, None)?;
                self.random.nap(100);
            }
            Manner::Quick => {
                for _ in 0..=self.random.below(12) {
                    let question = self.hot_row();
                    self.ask(&[question], Mode::Kept { wide: false }, None)?;
                }
                self.random.nap(if self.hurried { 1 } else { 15 });
            }
            Manner::Steady | Manner::Old => {
                self.repeatable_read()?;
                self.random.nap(20);
            }
            Manner::Curious => {
                self.curious()?;
                if !self.hurried || self.random.percent(30) {
                    self.random.nap(8);
                }
            }
        }
        Ok(())
    }

    fn curious(&mut self) -> Result<(), Trouble> {
        match self.random.below(12) {
            0..=8 => {
                let mode = self.mode();
                let count = if mode == Mode::Joined { 2 + self.random.below(4) } else { 1 };
                let questions: Vec<_> = (0..count).map(|_| self.question()).collect();
                self.ask(&questions, mode, None)?;
                if mode == Mode::Spoken {
                    self.prepared.clear();
                    self.line.reset()?;
                    self.set_up()?;
                }
                Ok(())
            }
            9 | 10 if self.committed || !self.harmless => self.read_committed(),
            _ if self.committed => self.read_committed(),
            _ => self.repeatable_read(),
        }
    }

    fn question(&mut self) -> Question {
        Question::random(&mut self.random, GROUPS * PARTS_PER_ITEM, &SOURCES)
    }

    fn hot_row(&mut self) -> Question {
        Question::hot_row(&mut self.random, &SOURCES, self.manner != Manner::Curious)
    }

    fn mode(&mut self) -> Mode {
        let coin = self.random.percent(50);
        match self.random.below(if self.harmless { 6 } else { 8 }) {
            0..=2 => Mode::Text,
            3 => Mode::Once { bound: coin },
            4 | 5 => Mode::Kept { wide: coin },
            6 => Mode::Spoken,
            _ => Mode::Joined,
        }
    }

    /// Where the session cannot be set back.
    fn mode_in_transaction(&mut self) -> Mode {
        match self.mode() {
            Mode::Spoken => Mode::Text,
            mode => mode,
        }
    }

    /// Reads that each see what was committed before.
    fn read_committed(&mut self) -> Result<(), Trouble> {
        if !self.committed {
            self.line.simple("set transaction isolation level read committed")?;
        }
        self.line.simple("begin")?;
        for _ in 0..=self.random.below(4) {
            let (question, mode) = (self.question(), self.mode_in_transaction());
            self.ask(&[question], mode, None)?;
        }
        self.line.simple("commit").map(drop)
    }

    /// Reads that all see the same.
    fn repeatable_read(&mut self) -> Result<(), Trouble> {
        let mut snapshot = Snapshot::default();
        let asked = Instant::now();
        let mut first = None;
        if self.manner != Manner::Old {
            let begin = BEGINNINGS[self.random.below(BEGINNINGS.len() as u64) as usize];
            self.line.simple(begin)?;
            if begin.ends_with("snapshot") {
                first = Some(Span { asked, answered: Instant::now(), snapshot: true });
                snapshot.asked.push(begin.into());
            }
        }
        for _ in 0..2 + self.random.below(5) {
            let question = match self.random.below(4) {
                0 | 1 => self.hot_row(),
                2 => Question::everything_cached(&mut self.random, &SOURCES),
                _ => self.question(),
            };
            if !question.suits_a_snapshot() {
                continue;
            }
            // What quick readers keep in memory.
            let mode = if self.random.percent(60) { Mode::Kept { wide: false } } else { self.mode_in_transaction() };
            let span = first.unwrap_or(Span { asked, answered: asked, snapshot: true });
            self.ask(&[question], mode, Some((&mut snapshot, span)))?;
            first.get_or_insert(Span { asked, answered: Instant::now(), snapshot: true });
            if self.random.percent(40) {
                self.random.nap(100);
            }
        }
        self.line.simple("commit").map(drop)
    }

    /// Asks, and checks the answers.
    fn ask(
        &mut self,
        questions: &[Question],
        mode: Mode,
        transaction: Option<(&mut Snapshot, Span)>,
    ) -> Result<(), Trouble> {
        let recovers = self.stage.recovers();
        let asked = Instant::now();
        self.put(questions, mode)?;
        let span = Span { asked, answered: Instant::now(), snapshot: false };
        let exchange = Exchange { questions, answer: self.line.answer(), span, how: &(self.manner, mode) };
        for what in exchange.check(&mut self.stage.ledger(), &mut self.seen, transaction) {
            if !recovers {
                self.stage.violated(what);
            }
        }
        self.stage.count_reads(questions.len() as u64);
        Ok(())
    }

    fn put(&mut self, questions: &[Question], mode: Mode) -> Result<(), Trouble> {
        let Some(question) = questions.first() else { return Ok(()) };
        let outcome = match mode {
            Mode::Text => self.line.simple(&question.sql()),
            Mode::Joined => {
                let all: Vec<String> = questions.iter().map(Question::sql).collect();
                self.line.simple(&all.join("; "))
            }
            Mode::Once { bound: false } => self.line.execute_once(&question.sql(), &[]),
            Mode::Once { bound: true } => self.line.execute_once(&marked(question), question.values()),
            Mode::Kept { wide } => {
                let key = (question.shape, question.source.name);
                let statement = match self.prepared.get(&key) {
                    Some(statement) => *statement,
                    None => *self.prepared.entry(key).or_insert(self.line.prepare(&marked(question))?),
                };
                self.line.execute(statement, question.values(), wide)
            }
            Mode::Spoken => {
                self.line.simple(&format!("prepare spoken from '{}'", marked(question)))?;
                let mut using = String::new();
                for (at, value) in question.values().iter().enumerate() {
                    self.line.simple(&format!("set @v{at} = {value}"))?;
                    let _ = write!(using, "{} @v{at}", if at == 0 { " using" } else { "," });
                }
                self.line.simple(&format!("execute spoken{using}"))
            }
        };
        outcome.map(drop).map_err(|trouble| told(trouble, question))
    }
}

/// An error that says what was asked.
fn told(trouble: Trouble, question: &Question) -> Trouble {
    match trouble {
        Trouble::Refused { code, message } => {
            Trouble::Refused { code, message: format!("{message} in: {}", question.sql()) }
        }
        lost @ Trouble::Lost(_) => lost,
    }
}

/// The statement with this family's parameter markers, in the order of the values.
fn marked(question: &Question) -> String {
    (1..=3).fold(question.template(), |sql, at| sql.replace(&format!("${at}"), "?"))
}
