//! Readers: sessions through Freshet that check every answer against the ledger.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio_postgres::{Client, SimpleQueryMessage};

use super::ledger::{KeyId, Ledger, Row, Span};
use super::{GROUPS, KINDS, PARTS_PER_ITEM, Random, Stage, item_of};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question {
    ById(&'static str, i32),
    ByGroup(&'static str, i32),
    ByGroupAndKind(&'static str, i32, i32),
    Totals(&'static str, i32),
    Join(i32),
    Without(i32),
}

pub(crate) const TABLES: [&str; 3] = ["item", "part", "note"];

impl Question {
    fn random(random: &mut Random, ids: u64) -> Self {
        let table = TABLES[random.below(3) as usize];
        // A few groups and rows are asked for often.
        let few = random.percent(60);
        let group = random.below(if few { 3 } else { GROUPS }) as i32;
        match random.below(8) {
            0 | 1 => Self::ById(table, random.below(if few { 8 } else { ids }) as i32),
            2 => Self::ByGroup(table, group),
            3 => Self::ByGroupAndKind(table, group, random.below(KINDS) as i32),
            4 | 5 => Self::Totals(table, group),
            6 => Self::Join(group),
            _ => Self::Without(group),
        }
    }

    /// All questions there are, for the end.
    pub(crate) fn all(ids: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for table in TABLES {
            all.extend((0..ids as i32).map(|id| Self::ById(table, id)));
            for group in 0..GROUPS as i32 {
                all.extend([Self::ByGroup(table, group), Self::Totals(table, group)]);
                all.extend((0..KINDS as i32).map(|kind| Self::ByGroupAndKind(table, group, kind)));
            }
        }
        for group in 0..GROUPS as i32 {
            all.extend([Self::Join(group), Self::Without(group)]);
        }
        all
    }

    pub(crate) fn sql(self) -> String {
        match self {
            Self::ById(table, id) => format!("select id, grp, kind, ver from {table} where id = {id}"),
            Self::ByGroup(table, group) => format!("select id, grp, kind, ver from {table} where grp = {group}"),
            Self::ByGroupAndKind(table, group, kind) => {
                format!("select id, grp, kind, ver from {table} where grp = {group} and kind = {kind}")
            }
            Self::Totals(table, group) => format!("select count(*), sum(ver) from {table} where grp = {group}"),
            Self::Join(group) => format!(
                "select i.id, i.grp, i.kind, i.ver, p.id, p.grp, p.kind, p.ver \
                 from item i left join part p on p.item_id = i.id where i.grp = {group}"
            ),
            Self::Without(group) => format!(
                "select i.id, i.grp, i.kind, i.ver from item i where i.grp = {group} \
                 and not exists (select 1 from part p where p.item_id = i.id)"
            ),
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::ById(table, _)
            | Self::ByGroup(table, _)
            | Self::ByGroupAndKind(table, ..)
            | Self::Totals(table, _) => table,
            Self::Join(_) | Self::Without(_) => "item",
        }
    }

    /// Whether a row of the first table is selected by its own columns.
    fn selects(self, (_, id): KeyId, row: Row) -> bool {
        match self {
            Self::ById(_, wanted) => wanted == id,
            Self::ByGroup(_, group) | Self::Totals(_, group) | Self::Join(group) | Self::Without(group) => {
                row.grp == group
            }
            Self::ByGroupAndKind(_, group, kind) => row.grp == group && row.kind == kind,
        }
    }
}

pub(crate) type Rows = Vec<Vec<Option<i64>>>;

/// Asks by the simple or by the extended protocol.
pub(crate) async fn ask(client: &Client, sql: &str, simple: bool) -> Result<Rows> {
    if simple {
        let messages = client.simple_query(sql).await.with_context(|| sql.to_owned())?;
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        return rows
            .map(|row| (0..row.len()).map(|at| Ok(row.get(at).map(str::parse).transpose()?)).collect())
            .collect();
    }
    let rows = client.query(sql, &[]).await.with_context(|| sql.to_owned())?;
    let cell = |row: &tokio_postgres::Row, at: usize| -> Result<Option<i64>> {
        Ok(match *row.columns()[at].type_() {
            tokio_postgres::types::Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map(i64::from),
            _ => row.try_get::<_, Option<i64>>(at)?,
        })
    };
    rows.iter().map(|row| (0..row.len()).map(|at| cell(row, at)).collect()).collect()
}

/// A session and what it has been shown.
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) random: Random,
    /// Asks few questions with pauses. A session that has just read from the server may not hit until the stream has
    /// caught up with that; this one nearly always may, so it is the one that sees how old answers become.
    patient: bool,
    seen: HashMap<KeyId, i32>,
}

impl Reader {
    pub(crate) fn new(client: Client, random: Random, patient: bool) -> Self {
        Self { client, random, patient, seen: HashMap::new() }
    }

    /// Reads until the stage is over.
    pub(crate) async fn run(mut self, stage: &Stage) -> Result<()> {
        while !stage.is_over() {
            let question = if self.patient {
                Question::ById("item", self.random.below(4) as i32)
            } else {
                Question::random(&mut self.random, stage.ids)
            };
            let simple = self.random.percent(50);
            let asked = Instant::now();
            let rows = ask(&self.client, &question.sql(), simple).await?;
            let span = Span { asked, answered: Instant::now() };
            self.check(stage, question, &rows, span);
            stage.count_reads(1);
            if self.patient {
                tokio::time::sleep(Duration::from_millis(30 + self.random.below(150))).await;
            } else if self.random.percent(30) {
                tokio::time::sleep(Duration::from_millis(self.random.below(8))).await;
            }
        }
        Ok(())
    }

    fn check(&mut self, stage: &Stage, question: Question, rows: &Rows, span: Span) {
        let ledger = &mut *stage.ledger();
        let verdict = match question {
            Question::Totals(table, group) => check_totals(ledger, (table, group), rows, span),
            _ => self.check_rows(ledger, question, rows, span),
        };
        if let Err(what) = verdict {
            stage.violated(format!("{}\n  answered {rows:?}\n  {what}", question.sql()));
        }
    }

    fn check_rows(&mut self, ledger: &mut Ledger, question: Question, rows: &Rows, span: Span) -> Result<(), String> {
        let mut shown: HashMap<KeyId, Shown> = HashMap::new();
        for row in rows {
            let first = shown_in(question.table(), row)?;
            shown.insert(first.key, first);
            if let (Question::Join(_), Some(Some(_))) = (question, row.get(4)) {
                let part = shown_in("part", &row[4..])?;
                shown.insert(part.key, part);
            }
        }
        for key in ledger.keys_of(question.table()) {
            let here = shown.get(key);
            let has_part = || parts_of(*key).any(|part| ledger.may(part, span, 0, |_, row| row.is_some()));
            if here.is_none() && matches!(question, Question::Without(_)) && has_part() {
                continue;
            }
            self.check_key(ledger, *key, here, span, |row| question.selects(*key, row))?;
            if here.is_some() && matches!(question, Question::Join(_) | Question::Without(_)) {
                for part in parts_of(*key) {
                    self.check_key(ledger, part, shown.get(&part), span, |_| true)?;
                }
            }
        }
        for row in shown.values() {
            ledger.note(row.key, span, row.version);
            self.seen.insert(row.key, row.version);
        }
        Ok(())
    }

    /// One key, shown or not, is as it may be.
    fn check_key(
        &self,
        ledger: &Ledger,
        key: KeyId,
        shown: Option<&Shown>,
        span: Span,
        selects: impl Fn(Row) -> bool,
    ) -> Result<(), String> {
        let seen = self.seen.get(&key).copied().unwrap_or(0);
        let fits = |version: i32, row: Option<Row>| match shown {
            Some(shown) => version == shown.version && row == Some(shown.row) && selects(shown.row),
            None => !row.is_some_and(&selects),
        };
        if ledger.may(key, span, seen, fits) {
            return Ok(());
        }
        Err(format!("{key:?} is shown as {shown:?}; {}", ledger.explain(key, span, seen)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    key: KeyId,
    row: Row,
    version: i32,
}

fn shown_in(table: &'static str, cells: &[Option<i64>]) -> Result<Shown, String> {
    let [Some(id), Some(grp), Some(kind), Some(version), ..] = cells else { return Err(format!("odd row {cells:?}")) };
    let small = |value: &i64| i32::try_from(*value).map_err(|_| format!("odd value {value}"));
    Ok(Shown { key: (table, small(id)?), row: Row { grp: small(grp)?, kind: small(kind)? }, version: small(version)? })
}

fn parts_of((_, item): KeyId) -> impl Iterator<Item = KeyId> {
    (0..PARTS_PER_ITEM).map(move |n| ("part", item * PARTS_PER_ITEM + n)).filter(move |(_, id)| item_of(*id) == item)
}

fn check_totals(ledger: &Ledger, (table, group): (&'static str, i32), rows: &Rows, span: Span) -> Result<(), String> {
    let [row] = rows.as_slice() else { return Err("not one row".into()) };
    let [Some(count), sum] = row.as_slice() else { return Err("not a count and a sum".into()) };
    let in_group = |row: Option<Row>| row.is_some_and(|row| row.grp == group);
    let (mut counts, mut sums) = ((0, 0), (0, 0));
    for key in ledger.keys_of(table) {
        let (least, most) = ledger.range(*key, span, |_, row| i64::from(in_group(row)));
        counts = (counts.0 + least, counts.1 + most);
        let (least, most) = ledger.range(*key, span, |version, row| if in_group(row) { i64::from(version) } else { 0 });
        sums = (sums.0 + least, sums.1 + most);
    }
    let sum = sum.unwrap_or(0);
    if (counts.0..=counts.1).contains(count) && (sums.0..=sums.1).contains(&sum) {
        return Ok(());
    }
    Err(format!("the count may be {counts:?}, the sum {sums:?}"))
}
