//! Foreign keys: the rows that change with those of a parent, transitively. The binlog does not contain these changes.

use std::collections::{BTreeSet, HashMap, HashSet};

use freshet_net::mysql::ServerVersion;
use freshet_types::{Cascade, TableId};

use crate::mysql::service::catalog::rows::{Name, question, texts};
use crate::mysql::service::connection::{Connection, ServiceError};

/// One row for each column. Both servers show them to an account that may read the table.
const KEYS: &str = "SELECT constraint_schema, constraint_name, table_schema, table_name, referenced_table_schema, \
    referenced_table_name, referenced_column_name, column_name FROM information_schema.key_column_usage \
    WHERE referenced_table_name IS NOT NULL AND ";

/// One row for each foreign key. MariaDB shows them only to an account that may do more than read.
const RULES: &str = "SELECT constraint_schema, constraint_name, table_name, unique_constraint_schema, \
    referenced_table_name, update_rule, delete_rule FROM information_schema.referential_constraints WHERE ";

/// One foreign key.
#[derive(Clone, Debug, Default)]
struct ForeignKey {
    child: Name,
    parent: Name,
    /// The parent's columns that it refers to; empty if not known.
    columns: BTreeSet<String>,
    /// It changes no rows (RESTRICT or NO ACTION).
    restricts: bool,
}

/// All visible foreign keys.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignKeys {
    /// By the child's schema, the constraint's name and the child's name.
    keys: HashMap<[String; 3], ForeignKey>,
    /// A text that identifies the foreign keys of each child.
    texts: HashMap<Name, String>,
}

impl ForeignKeys {
    /// The foreign keys of all children, or of some.
    pub(super) async fn read(connection: &mut Connection, children: Option<&[Name]>) -> Result<Self, ServiceError> {
        let (rules, keys) = match children {
            // Includes the servers' own tables: a change of any table may change another.
            None => (format!("{RULES}TRUE"), format!("{KEYS}TRUE")),
            Some(_) => (
                question(RULES, ["constraint_schema", "table_name"], children),
                question(KEYS, ["table_schema", "table_name"], children),
            ),
        };
        let mut found = Self::default();
        let mut is_mariadb = false;
        let asked = |server: &ServerVersion| {
            is_mariadb = server.is_mariadb;
            rules.as_str()
        };
        let rules = connection.query_for(asked).await?;
        // MySQL shows all rules, and for the keys of one table it reads those of all tables.
        if is_mariadb || !rules.is_empty() {
            for row in connection.query(&keys).await? {
                found.add_column(texts(row, "foreign keys")?);
            }
        }
        for row in rules {
            found.add_rule(texts(row, "rules of foreign keys")?);
        }
        found.keys.retain(|_, key| !key.restricts);
        Ok(found)
    }

    /// The same with newly read foreign keys of these children.
    pub(super) fn with_anew(&self, children: impl Fn(&Name) -> bool, anew: Self) -> Self {
        let mut all = self.clone();
        all.keys.retain(|_, key| !children(&key.child));
        all.texts.retain(|child, _| !children(child));
        all.keys.extend(anew.keys);
        all.texts.extend(anew.texts);
        all
    }

    /// The children of these parents.
    pub(super) fn children(&self, parents: impl Fn(&Name) -> bool) -> impl Iterator<Item = &Name> {
        self.keys.values().filter(move |key| parents(&key.parent)).map(|key| &key.child)
    }

    fn add_column(&mut self, row: [String; 8]) {
        let [schema, name, child_schema, child, parent_schema, parent, parent_column, column] = row;
        let key = self.keys.entry([schema, name.clone(), child.clone()]).or_default();
        key.child = (child_schema, child);
        key.columns.insert(parent_column.clone());
        key.parent = (parent_schema, parent);
        let text = self.texts.entry(key.child.clone()).or_default();
        for part in [&name, &key.parent.0, &key.parent.1, &parent_column, &column] {
            text.push('\u{1f}');
            text.push_str(part);
        }
    }

    fn add_rule(&mut self, row: [String; 7]) {
        let [schema, name, child, parent_schema, parent, on_update, on_delete] = row;
        let text = self.texts.entry((schema.clone(), child.clone())).or_default();
        for part in [&name, &on_update, &on_delete] {
            text.push('\u{1e}');
            text.push_str(part);
        }
        let key = self.keys.entry([schema.clone(), name, child.clone()]).or_default();
        key.child = (schema, child);
        key.parent = (parent_schema, parent);
        key.restricts = [on_update, on_delete].iter().all(|rule| rule == "RESTRICT" || rule == "NO ACTION");
    }

    /// Tables whose rows change with those of an invisible table, and so by invisible chains.
    pub(super) fn leading_elsewhere(&self, is_visible: impl Fn(&Name) -> bool) -> HashSet<&Name> {
        let mut led: HashSet<&Name> =
            self.keys.values().filter(|key| !is_visible(&key.parent)).map(|key| &key.child).collect();
        loop {
            let below = self.keys.values().filter(|key| led.contains(&key.parent) && !led.contains(&key.child));
            let below: Vec<&Name> = below.map(|key| &key.child).collect();
            if below.is_empty() {
                return led;
            }
            led.extend(below);
        }
    }

    /// The text that identifies the foreign keys of a child.
    pub(super) fn of(&self, child: &Name) -> &str {
        self.texts.get(child).map_or("", String::as_str)
    }
}

/// For each parent, the tables whose rows may change with its own.
pub(super) fn cascades(keys: &ForeignKeys, id: impl Fn(&Name) -> TableId) -> HashMap<TableId, Cascade> {
    let mut children: HashMap<TableId, BTreeSet<TableId>> = HashMap::new();
    let mut columns: HashMap<TableId, BTreeSet<&str>> = HashMap::new();
    for key in keys.keys.values() {
        let parent = id(&key.parent);
        children.entry(parent).or_default().insert(id(&key.child));
        let columns = columns.entry(parent).or_default();
        columns.extend(key.columns.iter().map(String::as_str));
        if key.columns.is_empty() {
            columns.insert(""); // no column's name, so any update counts
        }
    }
    let all_below = |parent: &TableId| {
        let mut found = BTreeSet::new();
        let mut next = vec![*parent];
        while let Some(table) = next.pop() {
            next.extend(children.get(&table).into_iter().flatten().filter(|child| found.insert(**child)));
        }
        found.into_iter().collect()
    };
    let cascade = |parent: &TableId| Cascade {
        columns: columns.get(parent).into_iter().flatten().map(|name| (*name).into()).collect(),
        tables: all_below(parent),
    };
    children.keys().map(|parent| (*parent, cascade(parent))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(rows: &[(&str, &str, &str)], rules: &[(&str, &str, &str, &str)]) -> ForeignKeys {
        let mut keys = ForeignKeys::default();
        for (child, parent, column) in rows {
            let name = format!("{child}_{parent}");
            keys.add_column(["s", &name, "s", child, "s", parent, column, "x"].map(str::to_owned));
        }
        for (child, parent, update, delete) in rules {
            let name = format!("{child}_{parent}");
            keys.add_rule(["s", &name, child, "s", parent, update, delete].map(str::to_owned));
        }
        keys.keys.retain(|_, key| !key.restricts);
        keys
    }

    fn read(keys: &ForeignKeys) -> Vec<(u32, Vec<String>, Vec<u32>)> {
        let id = |(_, name): &Name| TableId(u32::from(name.as_bytes()[0] - b'a'));
        let mut all: Vec<_> = cascades(keys, id)
            .into_iter()
            .map(|(parent, cascade)| {
                let columns = cascade.columns.iter().map(ToString::to_string).collect();
                (parent.0, columns, cascade.tables.iter().map(|table| table.0).collect())
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn changes_go_all_the_way_down() {
        let rows = [("b", "a", "id"), ("c", "b", "id"), ("d", "a", "k"), ("a", "a", "id")];
        let rules = [
            ("b", "a", "RESTRICT", "CASCADE"),
            ("c", "b", "CASCADE", "SET NULL"),
            ("d", "a", "NO ACTION", "RESTRICT"),
            ("a", "a", "NO ACTION", "CASCADE"),
        ];
        let id = || vec!["id".to_owned()];
        assert_eq!(read(&keys(&rows, &rules)), [(0, id(), vec![0, 1, 2]), (1, id(), vec![2])]);
        // Without a rule the strongest one is assumed.
        let both = vec!["id".to_owned(), "k".to_owned()];
        assert_eq!(read(&keys(&rows, &[])), [(0, both, vec![0, 1, 2, 3]), (1, id(), vec![2])]);
    }

    #[test]
    fn what_cannot_be_seen_counts_as_the_worst() {
        // The child's columns are hidden: any update of the parent counts.
        let any = vec![String::new()];
        assert_eq!(read(&keys(&[], &[("b", "a", "CASCADE", "CASCADE")])), [(0, any, vec![1])]);
        // A hidden parent may be a child itself.
        let is_visible = |(_, name): &Name| name != "z";
        let (seen, hidden) = (keys(&[("b", "a", "id")], &[]), keys(&[("b", "z", "id")], &[]));
        assert_eq!(hidden.leading_elsewhere(is_visible), HashSet::from([&("s".to_owned(), "b".to_owned())]));
        assert!(seen.leading_elsewhere(is_visible).is_empty());
        let chain = keys(&[("b", "z", "id"), ("c", "b", "id"), ("d", "a", "id")], &[]);
        let of = |name: &str| ("s".to_owned(), name.to_owned());
        assert_eq!(chain.leading_elsewhere(is_visible), HashSet::from([&of("b"), &of("c")]));
    }

    #[test]
    fn some_children_are_read_anew() {
        let is = |wanted: &'static str| move |(_, name): &Name| name == wanted;
        let all = keys(&[("b", "a", "id"), ("c", "b", "id"), ("d", "a", "k")], &[]);
        let mut children: Vec<_> = all.children(is("a")).map(|(_, name)| name.as_str()).collect();
        children.sort_unstable();
        assert_eq!(children, ["b", "d"]);
        let anew = all.with_anew(is("b"), keys(&[("b", "c", "id")], &[]));
        let column = |name: &str| vec![name.to_owned()];
        // A circle: each of the two changes with itself.
        let expected = [(0, column("k"), vec![3]), (1, column("id"), vec![1, 2]), (2, column("id"), vec![1, 2])];
        assert_eq!(read(&anew), expected);
        let gone = all.with_anew(is("d"), ForeignKeys::default());
        assert_eq!((read(&gone)[0].1.clone(), gone.of(&("s".to_owned(), "d".to_owned()))), (column("id"), ""));
    }
}
