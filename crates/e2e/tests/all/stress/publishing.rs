//! Tables that are created, written and read during the run: if a transaction wrote to a table before it was published, and commits after that, its
//! write is never in the stream. Only the publication barrier handles this.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::ledger::{KeyId, Ledger, Row, Seen, Span, Table};
use super::line::Line;
use super::stage::{Random, Stage};
use crate::support::pace;

/// How long the reads go on after the commit: past D.
const AFTER: Duration = Duration::from_millis(2500);
/// Rows of one table, each with its own entry.
const ROWS: i32 = 2;
const ROW: Row = Row { grp: 0, kind: 0 };

/// Makes table after table.
pub(crate) struct Founder {
    direct: Line,
    through: Line,
    random: Random,
    seen: Seen,
    number: i32,
}

impl Founder {
    pub(crate) fn new(stage: &Stage, random: Random) -> Result<Self> {
        let (direct, through) = (stage.connect(false, None)?, stage.connect(true, None)?);
        Ok(Self { direct, through, random, seen: Seen::default(), number: 0 })
    }

    /// Makes tables until the stage is over.
    pub(crate) fn run(mut self, stage: &Stage) -> Result<()> {
        while !stage.is_over() {
            self.one_table(stage)?;
            self.number += 1;
        }
        Ok(())
    }

    fn one_table(&mut self, stage: &Stage) -> Result<()> {
        let number = self.number;
        self.direct.simple(&format!("create table young_{number} (id int primary key, ver int not null)"))?;
        let mut keys = Vec::new();
        for row in 0..ROWS {
            let id = number * ROWS + row;
            self.direct.simple(&format!("insert into young_{number} values ({id}, 0)"))?;
            keys.push(stage.ledger().insert(Table::Young, Some(ROW)));
        }
        self.direct.simple("begin")?;
        self.direct.simple(&format!("update young_{number} set ver = 1"))?;
        for key in &keys {
            stage.ledger().write(*key, Some(ROW), false);
        }
        // Long enough for Freshet to find the table and, without a barrier, to cache what it holds.
        let hold = Duration::from_millis(2500 + self.random.below(1500));
        self.read_for(stage, &keys, hold)?;
        stage.begin(&keys);
        self.direct.simple("commit")?;
        stage.acknowledge(&keys);
        self.read_for(stage, &keys, AFTER)?;
        self.direct.simple(&format!("drop table young_{number}"))?;
        Ok(())
    }

    fn read_for(&mut self, stage: &Stage, keys: &[KeyId], time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        for key in keys.iter().cycle() {
            if Instant::now() >= end || stage.has_violations() {
                break;
            }
            let sql = format!("select ver from young_{} where id = {}", self.number, key.1);
            let asked = Instant::now();
            let rows = self.through.simple(&sql)?.sorted(0);
            let span = Span { asked, answered: Instant::now(), snapshot: false };
            stage.count_reads(1);
            let shown = rows.first().and_then(|row| row.first().copied().flatten());
            if let Err(what) = check(&mut stage.ledger(), *key, shown, (span, &mut self.seen)) {
                stage.violated(format!("{sql}\n  answered {rows:?}\n  {what}"));
            }
            // Patience: a session may hit only when the stream has caught up with its last read from the server.
            pace(Duration::from_millis(80 + self.random.below(80)));
        }
        Ok(())
    }
}

/// One key is shown in a version in which it may be.
pub(crate) fn check(
    ledger: &mut Ledger,
    key: KeyId,
    shown: Option<i64>,
    (span, seen): (Span, &mut Seen),
) -> Result<(), String> {
    match ledger.fit(key, span, seen, |version, _| Some(i64::from(version)) == shown) {
        None => Err(ledger.explain(key, span, seen)),
        Some(fit) => ledger.note(key, span, fit, (seen, None)),
    }
}
