//! MySQL and MariaDB: the effect of a statement on the number that `FOUND_ROWS()` returns.

use freshet_sql::Effect;
use freshet_types::Reason;

use super::NormalizedQuery;

/// The effect of a statement on this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// It becomes the number of the statement's rows.
    Rows,
    /// It does not change.
    Nothing,
    /// One of both.
    Either,
}

/// What a text says of the rows that its statement finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finds {
    /// They are those of its answer.
    pub(crate) as_answered: bool,
    /// It reads no table, and has no other part that could find more or fewer.
    pub(crate) from_nothing: bool,
}

impl Finds {
    pub(super) fn of(query: &NormalizedQuery) -> Self {
        const OTHERS: [&str; 6] = ["limit", "fetch", "calc", "union", "except", "intersect"];
        const LONGER: [&str; 5] = ["from", "union", "limit", "into", "calc"];
        let text = query.text.to_ascii_lowercase();
        let as_answered = !OTHERS.iter().any(|word| text.contains(word));
        Self { as_answered, from_nothing: !LONGER.iter().any(|word| query.text.contains(word)) }
    }
}

impl Leaves {
    pub(super) fn behind(query: &NormalizedQuery, mariadb: bool) -> Self {
        if query.selects {
            return Self::Rows;
        }
        if query.template.refusal() == Some(&Reason::SeveralStatements) {
            return Self::Either;
        }
        let text = query.text.to_ascii_lowercase();
        let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default();
        let names = |others: &[&str]| others.iter().any(|other| text.contains(other));
        let keeps = match first {
            "with" if query.template.effect() == Effect::Pure => match body_word(&text) {
                Some("values") if mariadb => !is_combined(&text),
                None if mariadb && names(&["values"]) => false,
                _ => return Self::Rows,
            },
            // MySQL runs it as a SELECT without rows.
            "do" if !mariadb => return Self::Rows,
            "insert" | "replace" | "create" => !names(&["select", "with"]) && (first == "create" || !names(&["table"])),
            "update" => {
                let tables = text.split_once("set").map_or("", |(tables, _)| tables);
                let plain = !names(&["select"]) && !tables.contains(',') && !tables.contains("join");
                // MySQL counts the rows that it finds for the change.
                if plain && !mariadb {
                    return Self::Rows;
                }
                plain
            }
            "delete" => words.next() == Some("from") && !names(&["select", "using", "join", ","]),
            "show" => match words.next() {
                Some("count") => return Self::Rows,
                other => matches!(other, Some("warnings" | "errors")),
            },
            "set" | "do" | "begin" | "start" | "commit" | "rollback" | "savepoint" | "release" | "use" | "lock"
            | "unlock" | "flush" | "prepare" | "deallocate" | "signal" | "resignal" | "get" | "truncate" | "drop" => {
                true
            }
            "values" => mariadb && !is_combined(&text),
            _ => false,
        };
        if keeps { Self::Nothing } else { Self::Either }
    }
}

/// The keyword that begins the query behind WITH, if no quoted name may hide it.
fn body_word(text: &str) -> Option<&str> {
    let (mut depth, mut behind_list) = (0_usize, false);
    let outside = |letter: char| {
        match letter {
            // The query itself is in parentheses.
            '(' if behind_list => {}
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                behind_list = depth == 0;
            }
            _ => behind_list &= letter.is_whitespace(),
        }
        depth > 0 || !letter.is_ascii_alphanumeric()
    };
    let plain = !text.contains(['`', '"', '\'']);
    text.split(outside).find(|word| matches!(*word, "select" | "values" | "table")).filter(|_| plain)
}

/// Whether it may combine several queries by UNION or the like, which counts rows.
fn is_combined(text: &str) -> bool {
    ["union", "except", "intersect"].iter().any(|word| text.contains(word))
}
