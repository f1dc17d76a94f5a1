//! Readers: sessions through Freshet that check every answer with the ledger.

use std::collections::HashSet;
use std::time::Instant;

use anyhow::Result;

use super::ledger::{Seen, Snapshot, Span};
use super::line::{Line, Trouble};
use super::questions::{Exchange, Question, SOURCES, Shape};
use super::stage::{PARTS_PER_ITEM, Random, Stage};
use crate::support::frames;

/// How a reader goes about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Manner {
    /// Everything that can be asked, in every way it can be asked.
    Curious,
    /// Few questions with pauses. A session that has just read from the server may not hit until the stream has caught
    /// up with that; this one nearly always may, so it is the one that sees how old answers become.
    Patient,
    /// One question again and again: this one misses only what was written since it was last asked, so that what is in
    /// memory is what it is shown even when nothing new gets there.
    Faithful,
    /// Rows by their keys, many at once.
    Quick,
    /// Transactions that all see one snapshot.
    Steady,
}

/// How a question is put.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Simple,
    /// The unnamed statement; values in the text.
    Unnamed,
    /// The unnamed statement; values as parameters.
    Bound {
        binary: bool,
    },
    /// A statement that was prepared before.
    Named {
        binary: bool,
    },
}

/// A session and what it has been shown.
pub(crate) struct Reader<'a> {
    stage: &'a Stage,
    random: Random,
    manner: Manner,
    favourite: Question,
    line: Line,
    seen: Seen,
    prepared: HashSet<(Shape, &'static str)>,
    /// Without pauses.
    hurried: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(stage: &'a Stage, mut random: Random, manner: Manner, hurried: bool) -> Result<Self, Trouble> {
        let (line, favourite) = (stage.reconnect(true)?, Question::by_id(&SOURCES[0], random.below(4) as i32));
        Ok(Self { stage, random, manner, favourite, line, seen: Seen::default(), prepared: HashSet::new(), hurried })
    }

    /// Reads until the stage is over.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.stage.is_over() {
            if let Err(error) = self.round().map_err(anyhow::Error::from) {
                if Trouble::is_deadlock(&error) {
                    self.line.simple("rollback")?;
                    continue;
                }
                self.stage.survive(error)?;
                if self.stage.is_over() {
                    break;
                }
                // What another session was shown binds this one no more than any other.
                self.line = self.stage.reconnect(true)?;
                (self.seen, self.prepared) = (Seen::default(), HashSet::new());
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), Trouble> {
        match self.manner {
            Manner::Patient => {
                let question = Question::by_id(&SOURCES[0], self.random.below(4) as i32);
                let mode = if self.random.percent(50) { Mode::Simple } else { Mode::Unnamed };
                self.ask(&[question], mode, None)?;
                self.random.nap(150);
            }
            Manner::Faithful => {
                self.ask(&[self.favourite], Mode::Simple, None)?;
                self.random.nap(100);
            }
            Manner::Quick => {
                let count = 1 + self.random.below(12);
                let questions: Vec<_> = (0..count).map(|_| self.hot_row()).collect();
                self.ask(&questions, Mode::Named { binary: true }, None)?;
                self.random.nap(if self.hurried { 1 } else { 15 });
            }
            Manner::Steady => {
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
            0..=7 => {
                let (question, mode) = (self.question(), self.mode());
                self.ask(&[question], mode, None)
            }
            8 | 9 => {
                let questions: Vec<_> = (0..2 + self.random.below(4)).map(|_| self.question()).collect();
                let mode = self.mode();
                self.ask(&questions, mode, None)
            }
            10 => self.read_committed(),
            _ => self.repeatable_read(),
        }
    }

    fn question(&mut self) -> Question {
        Question::random(&mut self.random, super::GROUPS * PARTS_PER_ITEM, &SOURCES)
    }

    fn hot_row(&mut self) -> Question {
        Question::hot_row(&mut self.random, &SOURCES, self.manner != Manner::Curious)
    }

    fn mode(&mut self) -> Mode {
        let binary = self.random.percent(50);
        match self.random.below(4) {
            0 => Mode::Simple,
            1 => Mode::Unnamed,
            2 => Mode::Bound { binary },
            _ => Mode::Named { binary },
        }
    }

    /// Reads that each see what was committed before.
    fn read_committed(&mut self) -> Result<(), Trouble> {
        self.line.simple("begin")?;
        for _ in 0..=self.random.below(4) {
            let (question, mode) = (self.question(), self.mode());
            self.ask(&[question], mode, None)?;
        }
        self.line.simple("commit").map(drop)
    }

    /// Reads that all see the same.
    fn repeatable_read(&mut self) -> Result<(), Trouble> {
        self.line.simple("begin isolation level repeatable read")?;
        let mut snapshot = Snapshot::default();
        let asked = Instant::now();
        let mut first = None;
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
            let mode = if self.random.percent(60) { Mode::Named { binary: true } } else { self.mode() };
            let span = first.unwrap_or(Span { asked, answered: asked, snapshot: true });
            self.ask(&[question], mode, Some((&mut snapshot, span)))?;
            first.get_or_insert(Span { asked, answered: Instant::now(), snapshot: true });
            if self.random.percent(40) {
                self.random.nap(100);
            }
        }
        self.line.simple("commit").map(drop)
    }

    /// Asks all at once, and checks the answers.
    fn ask(
        &mut self,
        questions: &[Question],
        mode: Mode,
        transaction: Option<(&mut Snapshot, Span)>,
    ) -> Result<(), Trouble> {
        // With one Sync for all, or with one for each.
        let each = mode == Mode::Simple || self.random.percent(50);
        for question in questions {
            self.push(question, mode);
            if each && mode != Mode::Simple {
                self.line.push(&frames::sync());
            }
        }
        if !each {
            self.line.push(&frames::sync());
        }
        let asked = Instant::now();
        let answer = self.line.wait(if each { questions.len() } else { 1 })?;
        let span = Span { asked, answered: Instant::now(), snapshot: false };
        let exchange = Exchange { questions, answer, span, how: &(self.manner, mode) };
        for what in exchange.check(&mut self.stage.ledger(), &mut self.seen, transaction) {
            self.stage.violated(what);
        }
        self.stage.count_reads(questions.len() as u64);
        Ok(())
    }

    fn push(&mut self, question: &Question, mode: Mode) {
        match mode {
            Mode::Simple => self.line.push(&frames::query(&question.sql())),
            Mode::Unnamed => {
                self.line.push(&frames::parse("", &question.sql()));
                self.line.push_execute("", &[], false);
            }
            Mode::Bound { binary } => {
                self.line.push(&frames::parse("", &question.template()));
                self.line.push_execute("", question.values(), binary);
            }
            Mode::Named { binary } => {
                let name = format!("q{}_{}", question.shape as usize, question.source.name);
                if self.prepared.insert((question.shape, question.source.name)) {
                    self.line.push(&frames::parse(&name, &question.template()));
                }
                self.line.push_execute(&name, question.values(), binary);
            }
        }
    }
}
