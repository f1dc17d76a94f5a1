//! The queries, and the right answers.

use std::fmt::Debug;

use super::changes::owner_of;
use super::ledger::{Fit, KeyId, Ledger, Row, Seen, Snapshot, Span, Table};
use super::line::{Answer, Cells};
use super::stage::{PARTS_PER_ITEM, Random};
use super::{GROUPS, KINDS};

/// Something with rows: all of a table's, or those of some kinds.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) table: Table,
    pub(crate) holds: fn(Row) -> bool,
}

/// All rows of a table.
pub(crate) const fn all(name: &'static str, table: Table) -> Source {
    Source { name, table, holds: |_| true }
}

/// Of all of these, the first is what joins and the like are about.
pub(crate) static SOURCES: [Source; 13] = [
    all("item", Table::Item),
    all("part", Table::Part),
    all("note", Table::Note),
    all("leaf", Table::Leaf),
    all("event", Table::Event),
    all("kin", Table::Kin),
    all("echo", Table::Item),
    all("item_view", Table::Item),
    Source { name: "event_0", table: Table::Event, holds: |row| row.kind == 0 },
    Source { name: "event_2", table: Table::Event, holds: |row| row.kind == 2 },
    Source { name: "event_2_low", table: Table::Event, holds: |row| row.kind == 2 && row.grp < 5 },
    Source { name: "only kin", table: Table::Kin, holds: |row| row.kind == 0 },
    Source { name: "heir", table: Table::Kin, holds: |row| row.kind != 0 },
];

/// One of the ordinary tables among the sources of either family.
fn always_cached(random: &mut Random) -> usize {
    const ORDINARY: [usize; 4] = [0, 1, 3, 6];
    ORDINARY[random.below(ORDINARY.len() as u64) as usize]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    ById,
    ByIds,
    ByGroup,
    ByGroupAndKind,
    Everything,
    Totals,
    Top,
    // These are about items.
    Join,
    Without,
    WithPart,
    Twins,
    Grouped,
}

/// Rows that `Shape::Top` asks for.
const TOP: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) shape: Shape,
    pub(crate) source: &'static Source,
    values: [i32; 3],
}

impl Question {
    /// A row, by its key.
    pub(crate) fn by_id(source: &'static Source, id: i32) -> Self {
        Self { shape: Shape::ById, source, values: [id, 0, 0] }
    }

    /// A row that is read often. Other sources than ordinary tables may never be cached: a read of them raises the session's watermark, so that nothing
    /// else comes from the cache either. So they are rare if `ordinary`.
    pub(crate) fn hot_row(random: &mut Random, sources: &'static [Source], ordinary: bool) -> Self {
        let source = if ordinary && random.percent(98) {
            always_cached(random)
        } else {
            random.below(sources.len() as u64) as usize
        };
        let among = if random.percent(50) { 4 } else { 30 };
        Self::by_id(&sources[source], random.below(among) as i32)
    }

    /// All rows of an ordinary table.
    pub(crate) fn everything_cached(random: &mut Random, sources: &'static [Source]) -> Self {
        Self { shape: Shape::Everything, source: &sources[always_cached(random)], values: [0; 3] }
    }

    /// Anything that can be asked of these sources.
    pub(crate) fn random(random: &mut Random, ids: i32, sources: &'static [Source]) -> Self {
        // A few groups and rows are asked for often.
        let few = random.percent(60);
        let bound = if few { 6 } else { ids };
        let mut id = || random.below(bound.unsigned_abs().into()) as i32;
        let ids = [id(), id(), id()];
        let group = random.below(if few { 3 } else { GROUPS.unsigned_abs().into() }) as i32;
        let groups = [group, random.below(KINDS.unsigned_abs().into()) as i32, 0];
        let (shape, values) = match random.below(16) {
            0..=3 => (Shape::ById, ids),
            4 => (Shape::ByIds, ids),
            5 => (Shape::ByGroup, groups),
            6 => (Shape::ByGroupAndKind, groups),
            7 => (Shape::Everything, groups),
            8 | 9 => (Shape::Totals, groups),
            10 => (Shape::Top, groups),
            11 => (Shape::Join, groups),
            12 => (Shape::Without, groups),
            13 => (Shape::WithPart, groups),
            14 => (Shape::Twins, groups),
            _ => (Shape::Grouped, groups),
        };
        let source = if shape.is_about_items() { 0 } else { random.below(sources.len() as u64) as usize };
        Self { shape, source: &sources[source], values }
    }

    /// Whether an old snapshot still shows all it did. TRUNCATE is not so kind: the table is empty for all.
    pub(crate) fn suits_a_snapshot(&self) -> bool {
        !matches!(self.table(), Table::Note | Table::Event)
    }

    /// One of each shape and source, for the end.
    pub(crate) fn some(random: &mut Random, sources: &'static [Source]) -> Vec<Self> {
        let shapes = [
            Shape::ById,
            Shape::ByIds,
            Shape::ByGroup,
            Shape::ByGroupAndKind,
            Shape::Everything,
            Shape::Totals,
            Shape::Top,
        ];
        let about_items = [Shape::Join, Shape::Without, Shape::WithPart, Shape::Twins, Shape::Grouped];
        let mut all = Vec::new();
        for source in sources {
            for shape in shapes {
                let values = [random.below(3) as i32, random.below(3) as i32, 0];
                all.push(Self { shape, source, values });
            }
            all.extend((0..8).map(|id| Self::by_id(source, id)));
        }
        for group in 0..GROUPS {
            all.extend(about_items.map(|shape| Self { shape, source: &sources[0], values: [group, 0, 0] }));
        }
        all
    }

    /// The parameters of the statement.
    pub(crate) fn values(&self) -> &[i32] {
        let count = match self.shape {
            Shape::Everything => 0,
            Shape::ByIds => 3,
            Shape::ByGroupAndKind => 2,
            _ => 1,
        };
        &self.values[..count]
    }

    /// The statement with parameters.
    pub(crate) fn template(&self) -> String {
        let source = self.source.name;
        let columns = "id, grp, kind, ver";
        match self.shape {
            Shape::ById => format!("select {columns} from {source} where id = $1"),
            Shape::ByIds => format!("select {columns} from {source} where id in ($1, $2, $3)"),
            Shape::ByGroup => format!("select {columns} from {source} where grp = $1"),
            Shape::ByGroupAndKind => format!("select {columns} from {source} where grp = $1 and kind = $2"),
            Shape::Everything => format!("select {columns} from {source}"),
            Shape::Totals => format!("select count(*), sum(ver) from {source} where grp = $1"),
            Shape::Top => format!("select {columns} from {source} where grp = $1 order by ver desc, id limit {TOP}"),
            Shape::Join => "select i.id, i.grp, i.kind, i.ver, p.id, p.grp, p.kind, p.ver \
                            from item i left join part p on p.item_id = i.id where i.grp = $1"
                .into(),
            Shape::Without => "select i.id, i.grp, i.kind, i.ver from item i where i.grp = $1 \
                               and not exists (select 1 from part p where p.item_id = i.id)"
                .into(),
            Shape::WithPart => "select i.id, i.grp, i.kind, i.ver from item i \
                                where i.id in (select p.item_id from part p where p.grp = $1)"
                .into(),
            Shape::Twins => "select i.id, i.grp, i.kind, i.ver, e.ver from item i join echo e on e.id = i.id \
                             where i.grp = $1"
                .into(),
            Shape::Grouped => "select n, s from item_totals where grp = $1".into(),
        }
    }

    /// The statement with the values in it.
    pub(crate) fn sql(&self) -> String {
        let mut sql = self.template();
        for (at, value) in self.values().iter().enumerate() {
            sql = sql.replace(&format!("${}", at + 1), &value.to_string());
        }
        sql
    }

    fn table(&self) -> Table {
        self.source.table
    }

    /// Whether a row of the first table is selected by its own columns.
    fn selects(&self, (_, id): KeyId, row: Row) -> bool {
        let [first, second, _] = self.values;
        let selected = match self.shape {
            Shape::ById => id == first,
            Shape::ByIds => self.values.contains(&id),
            Shape::ByGroupAndKind => row.grp == first && row.kind == second,
            Shape::Everything | Shape::WithPart => true,
            _ => row.grp == first,
        };
        selected && (self.source.holds)(row)
    }

    /// Whether the answer says of a key that it is there or not.
    fn tells(&self, (_, id): KeyId) -> bool {
        let whole = self.source.name == super::changes::name_of(self.table()) || self.table() == Table::Item;
        whole
            && match self.shape {
                Shape::ById => id == self.values[0],
                Shape::ByIds => self.values.contains(&id),
                Shape::Everything => true,
                _ => false,
            }
    }
}

impl Shape {
    fn is_about_items(self) -> bool {
        matches!(self, Self::Join | Self::Without | Self::WithPart | Self::Twins | Self::Grouped)
    }
}

/// Questions that were asked together, and what came back.
pub(crate) struct Exchange<'a> {
    pub(crate) questions: &'a [Question],
    pub(crate) answer: &'a Answer,
    pub(crate) span: Span,
    /// Who asked, and how.
    pub(crate) how: &'a dyn Debug,
}

impl Exchange<'_> {
    /// Holds the answers against the ledger; returns what is wrong with them. In a transaction with a snapshot: with what
    /// is known of it, and the span of its first question.
    pub(crate) fn check(
        &self,
        ledger: &mut Ledger,
        seen: &mut Seen,
        transaction: Option<(&mut Snapshot, Span)>,
    ) -> Vec<String> {
        let Span { asked, answered, .. } = self.span;
        let (mut snapshot, span) = match transaction {
            Some((snapshot, first)) => {
                // The snapshot is taken by the first question.
                let is_first = snapshot.asked.is_empty();
                snapshot.asked.extend(self.questions.iter().map(|question| {
                    let (from, to) = (asked - first.asked, answered - first.asked);
                    format!("{} ({:?}) {from:?} to {to:?} after its first question", question.sql(), self.how)
                }));
                (Some(snapshot), if is_first { Span { answered, ..first } } else { first })
            }
            None => (None, self.span),
        };
        let mut wrong = Vec::new();
        for (at, question) in self.questions.iter().enumerate() {
            let mut check = Check { ledger, span, seen, snapshot: snapshot.as_deref_mut() };
            if let Err(what) = check.answer(question, self.answer, at) {
                let rows: Vec<_> = self.answer.rows(at).collect();
                let before = snapshot.as_ref().map(|snapshot| snapshot.asked.join("\n    "));
                wrong.push(format!(
                    "{}\n  {:?}, one of {}, answered {rows:?}\n  {what}\n  in one snapshot: {}",
                    question.sql(),
                    self.how,
                    self.questions.len(),
                    before.unwrap_or_default()
                ));
            }
        }
        wrong
    }
}

/// Who asks.
struct Check<'a> {
    ledger: &'a mut Ledger,
    span: Span,
    seen: &'a mut Seen,
    snapshot: Option<&'a mut Snapshot>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    key: KeyId,
    row: Row,
    version: i32,
}

impl Check<'_> {
    /// The n-th answer is a right one to this question.
    fn answer(&mut self, question: &Question, answer: &Answer, at: usize) -> Result<(), String> {
        match question.shape {
            Shape::Totals | Shape::Grouped => self.totals(question, answer.rows(at)),
            _ => self.rows(question, answer, at),
        }
    }

    fn rows(&mut self, question: &Question, answer: &Answer, at: usize) -> Result<(), String> {
        let (mut shown, mut parts) = (Vec::new(), Vec::new());
        for row in answer.rows(at) {
            let first = shown_in(question.table(), row)?;
            match question.shape {
                Shape::Join if row.get(4).copied().flatten().is_some() => {
                    parts.push(shown_in(Table::Part, &row[4..])?);
                }
                Shape::Twins if row.get(4) != row.get(3) => {
                    return Err(format!("item and echo differ, though they are always written together: {row:?}"));
                }
                _ => {}
            }
            if question.shape != Shape::Join && shown.contains(&first) {
                return Err(format!("{first:?} is shown twice"));
            }
            shown.push(first);
        }
        let count = self.ledger.keys_of(question.table()).len();
        let is_known = |id: i32| usize::try_from(id).is_ok_and(|id| id < count);
        if let Some(unknown) = shown.iter().find(|shown| !is_known(shown.key.1)) {
            return Err(format!("{unknown:?} was never written"));
        }
        // The frequent case has a short way.
        let one = (question.shape == Shape::ById).then_some((question.table(), question.values[0]));
        let all = self.ledger.keys_of(question.table());
        for key in one.filter(|key| is_known(key.1)).into_iter().chain(all.filter(|_| one.is_none())) {
            let here = shown.iter().find(|shown| shown.key == key).copied();
            if here.is_none() && self.may_lack(question, key, &shown) {
                continue;
            }
            self.key(question, key, here)?;
            if here.is_some() && matches!(question.shape, Shape::Join | Shape::Without | Shape::WithPart) {
                self.parts(question, key, &parts)?;
            }
        }
        Ok(())
    }

    /// Whether something other than the row's own columns may keep it out of the answer.
    fn may_lack(&self, question: &Question, key: KeyId, shown: &[Shown]) -> bool {
        let may = |part, fits: &dyn Fn(Option<Row>) -> bool| {
            self.ledger.fit(part, self.span, self.seen, |_, row| fits(row)).is_some()
        };
        match question.shape {
            Shape::Without => parts_of(key).any(|part| may(part, &|row| row.is_some())),
            Shape::WithPart => {
                parts_of(key).all(|part| may(part, &|row| row.is_none_or(|row| row.grp != question.values[0])))
            }
            Shape::Top => {
                let Some(last) = shown.get(TOP - 1) else { return false };
                let beaten = |version, row: Option<Row>| {
                    let before = (last.version, -last.key.1) > (version, -key.1);
                    before || !row.is_some_and(|row| question.selects(key, row))
                };
                self.ledger.fit(key, self.span, self.seen, beaten).is_some()
            }
            _ => false,
        }
    }

    /// The parts of an item that is shown.
    fn parts(&mut self, question: &Question, item: KeyId, shown: &[Shown]) -> Result<(), String> {
        let group = question.values[0];
        for part in parts_of(item) {
            let here = shown.iter().find(|shown| shown.key == part).copied();
            let fits = |version, row: Option<Row>| match (question.shape, here) {
                (Shape::Join, Some(here)) => version == here.version && row == Some(here.row),
                (Shape::Join | Shape::Without, None) => row.is_none(),
                _ => true,
            };
            let fit = self.ledger.fit(part, self.span, self.seen, fits);
            self.accept(part, fit, here)?;
        }
        let has_part = |part| {
            let in_group = |_, row: Option<Row>| row.is_some_and(|row| row.grp == group);
            self.ledger.fit(part, self.span, self.seen, in_group).is_some()
        };
        if question.shape == Shape::WithPart && !parts_of(item).any(has_part) {
            return Err(format!("{item:?} is shown without a part in group {group}"));
        }
        Ok(())
    }

    /// One key, shown or not, is as it may be.
    fn key(&mut self, question: &Question, key: KeyId, shown: Option<Shown>) -> Result<(), String> {
        let fits = |version: i32, row: Option<Row>| match shown {
            Some(shown) => version == shown.version && row == Some(shown.row) && question.selects(key, shown.row),
            None => !row.is_some_and(|row| question.selects(key, row)),
        };
        let fit = self.ledger.fit(key, self.span, self.seen, fits);
        self.accept(key, fit, shown)?;
        if let Some(snapshot) = self.snapshot.as_deref_mut()
            && (shown.is_some() || question.tells(key))
        {
            snapshot.shows(key, shown.map(|shown| shown.version))?;
        }
        Ok(())
    }

    fn accept(&mut self, key: KeyId, fit: Option<Fit>, shown: Option<Shown>) -> Result<(), String> {
        let explain = |ledger: &Ledger, span, seen: &Seen| {
            format!("{key:?} is shown as {shown:?}; {}", ledger.explain(key, span, seen))
        };
        let Some(fit) = fit else { return Err(explain(self.ledger, self.span, self.seen)) };
        let snapshot = self.snapshot.as_deref_mut();
        let noted = self.ledger.note(key, self.span, fit, (self.seen, snapshot));
        noted.map_err(|what| format!("{what}; {}", explain(self.ledger, self.span, self.seen)))
    }

    fn totals<'c>(&mut self, question: &Question, mut rows: impl Iterator<Item = &'c Cells>) -> Result<(), String> {
        let (count, sum) = match (rows.next(), rows.next()) {
            (Some([Some(count), sum]), None) => (*count, sum.unwrap_or(0)),
            // A group without rows is not among the groups.
            (None, None) if question.shape == Shape::Grouped => (0, 0),
            _ => return Err("not one row with a count and a sum".into()),
        };
        let (mut counts, mut sums) = ((0, 0), (0, 0));
        for key in self.ledger.keys_of(question.table()) {
            let is_in = |row: Option<Row>| row.is_some_and(|row| question.selects(key, row));
            let (least, most) = self.ledger.range(key, self.span, self.seen, |_, row| i64::from(is_in(row)));
            counts = (counts.0 + least, counts.1 + most);
            let part = |version: i32, row| if is_in(row) { i64::from(version) } else { 0 };
            let (least, most) = self.ledger.range(key, self.span, self.seen, part);
            sums = (sums.0 + least, sums.1 + most);
        }
        if (counts.0..=counts.1).contains(&count) && (sums.0..=sums.1).contains(&sum) {
            return Ok(());
        }
        Err(format!("the count may be {counts:?}, the sum {sums:?}"))
    }
}

fn shown_in(table: Table, cells: &Cells) -> Result<Shown, String> {
    let [Some(id), Some(grp), Some(kind), Some(version), ..] = cells else { return Err(format!("odd row {cells:?}")) };
    let small = |value: &i64| i32::try_from(*value).map_err(|_| format!("odd value {value}"));
    Ok(Shown { key: (table, small(id)?), row: Row { grp: small(grp)?, kind: small(kind)? }, version: small(version)? })
}

fn parts_of((_, item): KeyId) -> impl Iterator<Item = KeyId> {
    let parts = item * PARTS_PER_ITEM..(item + 1) * PARTS_PER_ITEM;
    parts.map(|id| (Table::Part, id)).filter(move |(_, id)| owner_of(*id) == item)
}
