//! A SELECT on one of ProxySQL's tables of statistics, which Freshet answers on MySQL and MariaDB.
//!
//! ProxySQL answers such statements with SQLite. What dashboards and collectors send has few forms: columns and aggregates of one table, comparisons
//! joined by AND, GROUP BY, ORDER BY, LIMIT. That is the grammar here. The names of the tables are few, too: any other table is the server's.

use freshet_types::Dialect;

use crate::lex::mysql::unescaped;
use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;

/// The tables. ProxySQL has them in a schema `stats`.
const TABLES: [&str; 10] = [
    GLOBAL_VARIABLES,
    "stats_memory_metrics",
    "stats_mysql_commands_counters",
    "stats_mysql_connection_pool",
    "stats_mysql_global",
    "stats_mysql_processlist",
    "stats_mysql_query_digest",
    "stats_mysql_query_digest_reset",
    "stats_mysql_query_rules",
    "stats_mysql_users",
];
const SCHEMA: &str = "stats";
/// A table that MySQL and MariaDB have, too. Answered is only the question for a variable that no server has.
const GLOBAL_VARIABLES: &str = "global_variables";
const OF_PROXYSQL: &str = "admin-version";

/// A statement on one of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsStatement {
    /// Its name, in lower case.
    pub table: &'static str,
    /// The schema was named.
    pub is_qualified: bool,
    /// What it asks, or what is wrong with it, in words for the client.
    pub query: Result<StatsQuery, String>,
}

/// What a statement asks of its table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsQuery {
    /// The columns of the answer.
    pub items: Vec<StatsItem>,
    /// All must hold.
    pub conditions: Vec<StatsCondition>,
    /// Columns.
    pub group_by: Vec<String>,
    /// Columns of the answer or of the table, and whether the order is descending.
    pub order_by: Vec<(String, bool)>,
    /// The most rows.
    pub limit: Option<u64>,
    /// Rows that are left out at the beginning.
    pub offset: u64,
}

/// A column of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsItem {
    /// `*`
    All,
    /// A column of the table, and its name in the answer.
    Column(String, String),
    /// An aggregate of a column (None: of rows), and its name in the answer.
    Aggregate(Aggregate, Option<String>, String),
}

/// An aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// `COUNT`
    Count,
    /// `SUM`
    Sum,
    /// `MIN`
    Min,
    /// `MAX`
    Max,
    /// `AVG`
    Avg,
}

impl Aggregate {
    fn named(name: &str) -> Option<Self> {
        let all =
            [("count", Self::Count), ("sum", Self::Sum), ("min", Self::Min), ("max", Self::Max), ("avg", Self::Avg)];
        all.into_iter().find(|(other, _)| name.eq_ignore_ascii_case(other)).map(|(_, aggregate)| aggregate)
    }
}

/// A comparison of a column with constants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsCondition {
    /// The column.
    pub column: String,
    /// How it compares.
    pub operator: Comparison,
    /// The constants, one of which must compare so: several are those of `IN`. Numbers are as they are written.
    pub values: Vec<String>,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`, `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `LIKE`
    Like,
    /// `NOT LIKE`
    NotLike,
}

/// Recognises a SELECT on one of the tables. None: it is on none of them.
pub(crate) fn stats_statement(text: &str) -> Option<StatsStatement> {
    if !names_stats(text) {
        return None;
    }
    let tokens: Vec<Token<'_>> = Tokens::of(Dialect::MySql, text).collect();
    let from = tokens.iter().position(|token| is_word(token, "from"))?;
    let (schema, mut behind) = match tokens.get(from + 1..)? {
        [schema, dot, behind @ ..] if dot.kind == Kind::Symbol(b'.') => (Some(name(schema)?), behind),
        behind => (None, behind),
    };
    if schema.as_ref().is_some_and(|schema| !schema.eq_ignore_ascii_case(SCHEMA)) {
        return None;
    }
    let table = name(behind.split_off_first()?)?;
    let table = TABLES.into_iter().find(|known| table.eq_ignore_ascii_case(known))?;
    let [select, items @ ..] = tokens.get(..from)? else { return None };
    if !is_word(select, "select") {
        return None;
    }
    let query = parsed(items, behind);
    (table != GLOBAL_VARIABLES || query.as_ref().is_ok_and(asks_for_version)).then(|| StatsStatement {
        table,
        is_qualified: schema.is_some(),
        query,
    })
}

fn asks_for_version(query: &StatsQuery) -> bool {
    let [condition] = query.conditions.as_slice() else { return false };
    condition.column.eq_ignore_ascii_case("variable_name")
        && (condition.operator, condition.values.as_slice()) == (Comparison::Equal, &[OF_PROXYSQL.to_owned()])
}

/// Whether the name of a table may be in the text. All texts are searched.
fn names_stats(text: &str) -> bool {
    let is_at = |at: usize, before: &str, whole: &str| {
        let word = at.checked_sub(before.len()).and_then(|start| text.as_bytes().get(start..start + whole.len()));
        word.is_some_and(|word| word.eq_ignore_ascii_case(whole.as_bytes()))
    };
    text.match_indices('_').any(|(at, _)| is_at(at, "stats", "stats_m") || is_at(at, "global", GLOBAL_VARIABLES))
}

fn is_word(token: &Token<'_>, word: &str) -> bool {
    token.kind == Kind::Word && token.text.eq_ignore_ascii_case(word)
}

/// A name, with or without quotes.
fn name(token: &Token<'_>) -> Option<String> {
    match token.kind {
        Kind::Word => Some(token.text.to_owned()),
        Kind::Quoted => Some(token.text.trim_matches('`').to_owned()),
        _ => None,
    }
}

fn parsed(items: &[Token<'_>], behind: &[Token<'_>]) -> Result<StatsQuery, String> {
    let mut query = StatsQuery::default();
    let whole = Parser { tokens: items }.items(&mut query.items).is_some();
    let mut parser = Parser { tokens: behind };
    if whole && parser.clauses(&mut query).is_some() && parser.tokens.is_empty() {
        return Ok(query);
    }
    let near = parser.tokens.first().filter(|_| whole).map(|token| format!(" near '{}'", token.text));
    Err(format!(
        "not understood{}: of this table Freshet answers SELECT with columns, *, COUNT, SUM, MIN, MAX and AVG, WHERE with comparisons joined by AND, \
         GROUP BY, ORDER BY and LIMIT",
        near.unwrap_or_default()
    ))
}

/// Reads the parts of a statement. None: what comes next is not understood.
struct Parser<'a> {
    tokens: &'a [Token<'a>],
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a Token<'a>> {
        self.tokens.split_off_first()
    }

    fn next_is(&self, matches: impl Fn(&Token<'_>) -> bool) -> bool {
        self.tokens.first().is_some_and(matches)
    }

    /// Takes these words, if they come next.
    fn take_words(&mut self, words: &[&str]) -> bool {
        let next = self.tokens.get(..words.len());
        let comes = next.is_some_and(|next| next.iter().zip(words).all(|(token, word)| is_word(token, word)));
        if comes {
            self.tokens = self.tokens.get(words.len()..).unwrap_or_default();
        }
        comes
    }

    fn take_symbol(&mut self, symbol: u8) -> bool {
        let comes = self.next_is(|token| token.kind == Kind::Symbol(symbol));
        comes && self.next().is_some()
    }

    fn name(&mut self) -> Option<String> {
        name(self.next()?)
    }

    /// A comma is between elements of a list.
    fn list(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        element(self)?;
        while self.take_symbol(b',') {
            element(self)?;
        }
        Some(())
    }

    fn items(mut self, items: &mut Vec<StatsItem>) -> Option<()> {
        self.list(|parser| {
            items.push(parser.item()?);
            Some(())
        })?;
        self.tokens.is_empty().then_some(())
    }

    fn item(&mut self) -> Option<StatsItem> {
        if self.take_symbol(b'*') {
            return Some(StatsItem::All);
        }
        let column = self.name()?;
        if !self.take_symbol(b'(') {
            let shown = self.alias_or(column.clone())?;
            return Some(StatsItem::Column(column, shown));
        }
        let aggregate = Aggregate::named(&column)?;
        let of =
            if self.take_symbol(b'*') { (aggregate == Aggregate::Count).then_some(None)? } else { Some(self.name()?) };
        let text = format!("{column}({})", of.as_deref().unwrap_or("*"));
        self.take_symbol(b')').then_some(())?;
        Some(StatsItem::Aggregate(aggregate, of, self.alias_or(text)?))
    }

    /// `AS name`, or a name alone; else this one.
    fn alias_or(&mut self, other: String) -> Option<String> {
        if self.take_words(&["as"]) || self.next_is(|token| name(token).is_some()) {
            let text = |token: &Token<'_>| {
                let is_text = token.kind == Kind::Text;
                name(token).or_else(|| is_text.then(|| token.text.trim_matches('\'').to_owned()))
            };
            return self.next().and_then(text);
        }
        Some(other)
    }

    fn clauses(&mut self, query: &mut StatsQuery) -> Option<()> {
        if self.take_words(&["where"]) {
            query.conditions.push(self.condition()?);
            while self.take_words(&["and"]) {
                query.conditions.push(self.condition()?);
            }
        }
        if self.take_words(&["group", "by"]) {
            self.list(|parser| {
                query.group_by.push(parser.name()?);
                Some(())
            })?;
        }
        if self.take_words(&["order", "by"]) {
            self.list(|parser| {
                let column = parser.ordering()?;
                let descends = parser.take_words(&["desc"]);
                if !descends {
                    parser.take_words(&["asc"]);
                }
                query.order_by.push((column, descends));
                Some(())
            })?;
        }
        if self.take_words(&["limit"]) {
            let first = self.count()?;
            (query.offset, query.limit) = if self.take_symbol(b',') {
                (first, Some(self.count()?))
            } else if self.take_words(&["offset"]) {
                (self.count()?, Some(first))
            } else {
                (0, Some(first))
            };
        }
        while self.take_symbol(b';') {}
        Some(())
    }

    /// A column, the number of a column of the answer, or an aggregate by its text.
    fn ordering(&mut self) -> Option<String> {
        if self.next_is(|token| token.kind == Kind::Number) {
            return self.next().map(|token| token.text.to_owned());
        }
        let name = self.name()?;
        if !self.take_symbol(b'(') {
            return Some(name);
        }
        let of = if self.take_symbol(b'*') { "*".to_owned() } else { self.name()? };
        self.take_symbol(b')').then(|| format!("{name}({of})"))
    }

    fn count(&mut self) -> Option<u64> {
        self.next().filter(|token| token.kind == Kind::Number)?.text.parse().ok()
    }

    fn condition(&mut self) -> Option<StatsCondition> {
        let column = self.name()?;
        if self.take_words(&["in"]) {
            self.take_symbol(b'(').then_some(())?;
            let mut values = Vec::new();
            self.list(|parser| {
                values.push(parser.constant()?);
                Some(())
            })?;
            self.take_symbol(b')').then_some(())?;
            return Some(StatsCondition { column, operator: Comparison::Equal, values });
        }
        let operator = self.comparison()?;
        Some(StatsCondition { column, operator, values: vec![self.constant()?] })
    }

    fn constant(&mut self) -> Option<String> {
        let sign = if self.take_symbol(b'-') { "-" } else { "" };
        let token = self.next()?;
        Some(match token.kind {
            Kind::Number => format!("{sign}{}", token.text),
            Kind::Text if sign.is_empty() => String::from_utf8(unescaped(token.text)).ok()?,
            // SQLite takes it for a text where it is no column.
            Kind::Quoted if sign.is_empty() && token.text.starts_with('"') => token.text.trim_matches('"').to_owned(),
            _ => return None,
        })
    }

    fn comparison(&mut self) -> Option<Comparison> {
        if self.take_words(&["like"]) {
            return Some(Comparison::Like);
        }
        if self.take_words(&["not", "like"]) {
            return Some(Comparison::NotLike);
        }
        let Kind::Symbol(first) = self.next()?.kind else { return None };
        let equal = first != b'=' && self.take_symbol(b'=');
        Some(match (first, equal) {
            (b'=', _) => Comparison::Equal,
            (b'!', true) => Comparison::Unequal,
            (b'<', true) => Comparison::LessOrEqual,
            (b'<', false) if self.take_symbol(b'>') => Comparison::Unequal,
            (b'<', false) => Comparison::Less,
            (b'>', true) => Comparison::GreaterOrEqual,
            (b'>', false) => Comparison::Greater,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> StatsQuery {
        stats_statement(text).unwrap().query.unwrap()
    }

    #[test]
    fn what_dashboards_send_is_understood() {
        let top = query(
            "SELECT hostgroup hg, sum_time, count_star, digest_text FROM stats_mysql_query_digest ORDER BY sum_time DESC LIMIT 10",
        );
        assert_eq!(top.items.len(), 4);
        assert_eq!(top.items.first(), Some(&StatsItem::Column("hostgroup".to_owned(), "hg".to_owned())));
        assert_eq!((top.order_by, top.limit), (vec![("sum_time".to_owned(), true)], Some(10)));
        let pool = query("SELECT hostgroup, srv_host, srv_port, * FROM stats_mysql_connection_pool");
        assert_eq!(pool.items.last(), Some(&StatsItem::All));
        let clients = query(
            "SELECT COUNT(cli_host) as connection_count, cli_host FROM stats.stats_mysql_processlist GROUP BY cli_host",
        );
        let count = StatsItem::Aggregate(Aggregate::Count, Some("cli_host".to_owned()), "connection_count".to_owned());
        assert_eq!((clients.items.first(), clients.group_by.len()), (Some(&count), 1));
        let hits = query(
            "select count(*) from `stats_mysql_query_digest` where hostgroup = -1 and digest_text LIKE 'select%' \
             and count_star >= 5 limit 5, 10;",
        );
        assert_eq!(hits.items, [StatsItem::Aggregate(Aggregate::Count, None, "count(*)".to_owned())]);
        let conditions: Vec<_> =
            hits.conditions.iter().map(|condition| (condition.operator, condition.values[0].as_str())).collect();
        assert_eq!(
            conditions,
            [(Comparison::Equal, "-1"), (Comparison::Like, "select%"), (Comparison::GreaterOrEqual, "5")]
        );
        assert_eq!((hits.offset, hits.limit), (5, Some(10)));
        let commands =
            query("SELECT Command FROM stats_mysql_commands_counters WHERE Command IN ('DELETE', 'SELECT') LIMIT 1");
        assert_eq!(commands.conditions.first().map(|condition| condition.values.len()), Some(2));
    }

    #[test]
    fn of_variables_the_version_alone_is_answered() {
        let asked = "select variable_value from global_variables where variable_name = 'admin-version'";
        assert!(stats_statement(asked).is_some_and(|statement| statement.query.is_ok()));
        for of_server in [
            "select variable_value from global_variables where variable_name = 'version'",
            "select variable_value from global_variables",
            "select * from performance_schema.global_variables where variable_name = 'admin-version'",
            "select variable_value from global_variables where variable_name = 'admin-version' or 1 = 1",
        ] {
            assert!(stats_statement(of_server).is_none(), "{of_server}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in [
            "SELECT hostgroup FROM stats_mysql_query_digest WHERE hostgroup = 1 OR hostgroup = 2",
            "SELECT hostgroup + 1 FROM stats_mysql_query_digest",
            "SELECT * FROM stats_mysql_query_digest, t",
            "SELECT * FROM stats_mysql_query_digest LIMIT x",
            "SELECT * FROM stats_mysql_query_digest WHERE hostgroup IN ()",
            "SELECT * FROM stats_mysql_query_digest WHERE hostgroup IN (1, 2",
            "SELECT hostgroup AS 5 FROM stats_mysql_query_digest",
            "SELECT SUM(*) FROM stats_mysql_query_digest",
            "SELECT FROM stats_mysql_query_digest",
            "SELECT * FROM stats_mysql_query_digest; SELECT 1",
        ] {
            assert!(stats_statement(wrong).unwrap().query.is_err(), "{wrong}");
        }
    }

    #[test]
    fn other_tables_are_the_servers() {
        for other in [
            "SELECT 1",
            "SELECT * FROM t WHERE a = 'stats_mysql_global'",
            "SELECT * FROM stats_mysql_own",
            "SELECT * FROM shop.stats_mysql_global",
            "SELECT * FROM t, stats_mysql_global",
            "DELETE FROM stats_mysql_global",
            "SELECT stats_mysql_global",
            "SELECT * FROM",
            "SELECT * FROM stats_",
        ] {
            assert_eq!(stats_statement(other), None, "{other}");
        }
    }
}
