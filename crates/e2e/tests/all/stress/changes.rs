//! The many ways to change a row.

use super::ledger::{KeyId, Row, Table};
use super::stage::{PARTS_PER_ITEM, Random};

/// What is to be changed, and into what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) key: KeyId,
    pub(crate) now: Option<Row>,
    /// None: it is deleted.
    pub(crate) row: Option<Row>,
    pub(crate) version: i32,
}

pub(crate) fn name_of(table: Table) -> &'static str {
    match table {
        Table::Item => "item",
        Table::Part => "part",
        Table::Note => "note",
        Table::Leaf => "leaf",
        Table::Event => "event",
        Table::Kin => "kin",
        Table::Young | Table::Definition => "",
    }
}

/// The item of a part, the folder of a leaf.
pub(crate) fn owner_of(id: i32) -> i32 {
    id / PARTS_PER_ITEM
}

pub(crate) fn columns(table: Table) -> &'static str {
    match table {
        Table::Part => "id, item_id, grp, kind, ver",
        Table::Leaf => "id, folder_id, grp, kind, ver",
        _ => "id, grp, kind, ver",
    }
}

/// The row as the columns have it.
pub(crate) fn values((table, id): KeyId, Row { grp, kind }: Row, version: i32) -> String {
    match table {
        Table::Part | Table::Leaf => format!("{id}, {}, {grp}, {kind}, {version}", owner_of(id)),
        _ => format!("{id}, {grp}, {kind}, {version}"),
    }
}

/// The table that a new row goes to.
fn home(table: Table, row: Row) -> &'static str {
    if table == Table::Kin && row.kind != 0 { "heir" } else { name_of(table) }
}

pub(crate) fn insert(key: KeyId, row: Row, version: i32) -> String {
    format!("insert into {} ({}) values ({})", home(key.0, row), columns(key.0), values(key, row, version))
}

/// A write that will be rolled back and must never show.
pub(crate) fn spoil((table, id): KeyId) -> String {
    format!("update {} set ver = {} where id = {id}", name_of(table), super::ROLLED_BACK)
}

impl Change {
    /// One of the statements that make this change, each a transaction of its own outside of one.
    pub(crate) fn statement(&self, random: &mut Random) -> String {
        let (table, id) = self.key;
        match (random.below(6), self.row) {
            (0, _) if self.can_merge() => self.merge(),
            (1, Some(row)) if self.can_upsert() => self.upsert(row),
            (2, Some(Row { grp, kind })) if table == Table::Item => {
                format!("select put_item({id}, {grp}, {kind}, {})", self.version)
            }
            (2, None) if table == Table::Item => format!("select cut_item({id})"),
            (3, _) => format!("with w as ({} returning ver) select ver from w", self.plain()),
            _ => self.plain(),
        }
    }

    fn plain(&self) -> String {
        let (table, id) = self.key;
        let name = name_of(table);
        match (self.now, self.row) {
            (_, None) => format!("delete from {name} where id = {id}"),
            (None, Some(row)) => insert(self.key, row, self.version),
            (Some(_), Some(Row { grp, kind })) => {
                format!("update {name} set grp = {grp}, kind = {kind}, ver = {} where id = {id}", self.version)
            }
        }
    }

    /// `ON CONFLICT` finds a row only in the partition that the new one goes to, and no heirs.
    fn can_upsert(&self) -> bool {
        match self.key.0 {
            Table::Kin => false,
            Table::Event => self.now.is_none() || self.now == self.row,
            _ => true,
        }
    }

    fn upsert(&self, row: Row) -> String {
        let unique = if self.key.0 == Table::Event { "id, kind, grp" } else { "id" };
        format!(
            "{} on conflict ({unique}) do update set grp = excluded.grp, kind = excluded.kind, ver = excluded.ver",
            insert(self.key, row, self.version)
        )
    }

    fn can_merge(&self) -> bool {
        self.key.0 != Table::Kin
    }

    fn merge(&self) -> String {
        let (table, id) = self.key;
        let into = format!("merge into {} t using (select {id} as id) s on t.id = s.id", name_of(table));
        match self.row {
            None => format!("{into} when matched then delete"),
            Some(row) => format!(
                "{into} when matched then update set grp = {}, kind = {}, ver = {} \
                 when not matched then insert ({}) values ({})",
                row.grp,
                row.kind,
                self.version,
                columns(table),
                values(self.key, row, self.version)
            ),
        }
    }
}

/// One statement for several rows of one table that are all of one sort: all new, all gone or all changed. Else one
/// after the other, in one simple query.
pub(crate) fn together(changes: &[Change]) -> String {
    let Some(first) = changes.first() else { return "select 1".into() };
    let table = first.key.0;
    let name = name_of(table);
    let list = |of: &dyn Fn(&Change) -> String| changes.iter().map(of).collect::<Vec<_>>().join(", ");
    let same = |test: &dyn Fn(&Change) -> bool| changes.iter().all(|change| change.key.0 == table && test(change));
    if same(&|change| change.row.is_none()) {
        return format!("delete from {name} where id in ({})", list(&|change| change.key.1.to_string()));
    }
    let row_of = |change: &Change| values(change.key, change.row.unwrap_or(Row { grp: 0, kind: 0 }), change.version);
    if table != Table::Kin && same(&|change| change.now.is_none() && change.row.is_some()) {
        return format!("insert into {name} ({}) values {}", columns(table), list(&|c| format!("({})", row_of(c))));
    }
    if same(&|change| change.now.is_some() && change.row.is_some()) {
        return format!(
            "update {name} t set grp = s.grp, kind = s.kind, ver = s.ver from (values {}) s ({}) where t.id = s.id",
            list(&|change| format!("({})", row_of(change))),
            columns(table)
        );
    }
    changes.iter().map(Change::plain).collect::<Vec<_>>().join("; ")
}
