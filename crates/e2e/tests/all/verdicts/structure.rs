//! Whether a statement reads all rows of its tables, by its structure alone.
//!
//! It does if none of its conditions has a constant, and it has no LIMIT. Its conditions then compare columns with columns, which is a join, whether
//! it is written with JOIN … ON, with commas and WHERE, with EXISTS or with IN: they say which rows are combined, not which rows are selected. So
//! `FROM a, b WHERE a.id = b.a_id` reads all rows, as `FROM a JOIN b ON a.id = b.a_id` does; and with a constant in ON neither does.
//!
//! Conditions are WHERE and ON, also of sub-selects. Constants are numbers, texts, parameters, TRUE, FALSE and NULL (so `IS NULL` is a condition).
//! These do not count: `1 = 1` and `ON TRUE`, which have constants only; the SELECT list of EXISTS, and a LIMIT that leaves it a row; `FILTER (WHERE
//! …)`, which does not affect other columns; HAVING, since all rows of a group decide it together.

/// A part of a statement's text, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Constant(String),
    Open,
    Close,
    Symbol(char),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    /// The contents of the parentheses belong to what is around them.
    Around,
    List,
    Condition,
    Other,
}

/// The contents of one pair of parentheses.
struct Level {
    clause: Clause,
    /// Brackets around it are in a condition.
    within: bool,
    /// It is what EXISTS asks for.
    exists: bool,
}

impl Level {
    fn is_condition(&self) -> bool {
        match self.clause {
            Clause::Condition => true,
            Clause::Around => self.within,
            Clause::List => self.within && !self.exists,
            Clause::Other => false,
        }
    }
}

/// Whether not all rows are asked for.
pub(super) fn chooses(statement: &str, mysql: bool) -> bool {
    let tokens = tokens(statement, mysql);
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(text)) => text.as_str(),
        _ => "",
    };
    let is_constant = |at: usize| matches!(tokens.get(at), Some(Token::Constant(_)));
    // TRUE is the whole condition.
    let is_all = |at: usize| {
        let ends = |at: usize| !matches!(tokens.get(at), Some(Token::Symbol(_) | Token::Open | Token::Constant(_)));
        let first = at.checked_sub(1).is_some_and(|before| matches!(word(before), "on" | "where"));
        let next = matches!(word(at + 1), "and" | "or" | "is" | "in" | "not" | "between" | "like");
        tokens.get(at) == Some(&Token::Constant("true".to_owned())) && first && ends(at + 1) && !next
    };
    let mut levels = vec![Level { clause: Clause::Around, within: false, exists: false }];
    for (at, token) in tokens.iter().enumerate() {
        let Some(level) = levels.last_mut() else { return true };
        let before = at.checked_sub(1).map_or("", word);
        match token {
            Token::Open => {
                // Brackets around what EXISTS asks for, too.
                let double = at > 0 && tokens.get(at - 1) == Some(&Token::Open) && level.exists;
                let exists = before == "exists" || double;
                let within = level.is_condition();
                levels.push(Level { clause: Clause::Around, within, exists });
            }
            Token::Close => drop(levels.pop()),
            Token::Constant(_) if level.is_condition() => {
                let equal = |at: usize| tokens.get(at) == Some(&Token::Symbol('='));
                let alone = is_all(at)
                    || (equal(at + 1) && is_constant(at + 2))
                    || (at >= 2 && equal(at - 1) && is_constant(at - 2));
                if !alone {
                    return true;
                }
            }
            Token::Word(text) => match text.as_str() {
                "select" => level.clause = Clause::List,
                "where" if at >= 2 && word(at - 2) == "filter" => level.clause = Clause::Other,
                "where" => level.clause = Clause::Condition,
                "on" if before != "distinct" => level.clause = Clause::Condition,
                "from" if level.clause != Clause::Around => level.clause = Clause::Other,
                "join" | "inner" | "cross" | "natural" | "union" | "intersect" | "except" | "group" | "having"
                | "order" | "window" => level.clause = Clause::Other,
                // LEFT and RIGHT are functions, too.
                "left" | "right" | "full" if matches!(word(at + 1), "join" | "outer") => level.clause = Clause::Other,
                "limit" if level.exists && matches!(tokens.get(at + 1), Some(Token::Constant(n)) if n != "0") => {
                    level.clause = Clause::Other;
                }
                "limit" | "fetch" | "offset" => return true,
                _ => {}
            },
            Token::Constant(_) | Token::Symbol(_) => {}
        }
    }
    false
}

/// The parts of a text; quoted names are words that mean nothing.
fn tokens(statement: &str, mysql: bool) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = statement.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' | '`' => {
                while let Some(inner) = rest.next() {
                    match inner {
                        '\\' if mysql && c != '`' => drop(rest.next()),
                        inner if inner == c => break,
                        _ => {}
                    }
                }
                let text = c == '\'' || (c == '"' && mysql);
                tokens.push(if text { Token::Constant(String::new()) } else { Token::Word(String::new()) });
            }
            c if c.is_alphabetic() || c == '_' => {
                let mut text = String::from(c.to_ascii_lowercase());
                while let Some(more) = rest.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    text.push(more.to_ascii_lowercase());
                }
                let constant = matches!(text.as_str(), "true" | "false" | "null");
                tokens.push(if constant { Token::Constant(text) } else { Token::Word(text) });
            }
            c if c.is_ascii_digit() || matches!(c, '$' | '?') => {
                let mut text = String::from(c);
                while let Some(more) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.') {
                    text.push(more);
                }
                tokens.push(Token::Constant(text));
            }
            '(' => tokens.push(Token::Open),
            ')' => tokens.push(Token::Close),
            c if c.is_whitespace() => {}
            c => tokens.push(Token::Symbol(c)),
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::chooses;

    #[test]
    fn all_rows_are_asked_for_where_no_condition_holds_a_constant() {
        for (statement, expected) in [
            ("SELECT a FROM t", false),
            ("SELECT a, 1 FROM t ORDER BY 2", false),
            ("SELECT a FROM t WHERE b = 1", true),
            ("SELECT a FROM t WHERE b = $1", true),
            ("SELECT a FROM t WHERE b IS NULL", true),
            ("SELECT a FROM t WHERE NOT b = 'x'", true),
            ("SELECT a FROM t LIMIT 5", true),
            ("SELECT a FROM t OFFSET 5", true),
            ("SELECT a FROM t, s WHERE t.id = s.t_id", false),
            ("SELECT a FROM t JOIN s ON t.id = s.t_id", false),
            ("SELECT a FROM t JOIN s ON t.id = s.t_id AND s.kind = 'x'", true),
            ("SELECT a FROM t LEFT JOIN s ON t.id = s.t_id WHERE s.id IS NULL", true),
            ("SELECT a FROM (t JOIN s ON (t.id = s.t_id)) JOIN u ON (s.u_id = u.id + 1)", true),
            ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.t_id = t.id)", false),
            ("SELECT a FROM t WHERE NOT (EXISTS(SELECT 1 AS a FROM s WHERE s.t_id = (t.id) LIMIT 1))", false),
            ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.t_id = t.id LIMIT 1 OFFSET 3)", true),
            ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.t_id = t.id AND s.b = 2)", true),
            ("SELECT a FROM t WHERE id IN (SELECT t_id FROM s)", false),
            ("SELECT a FROM t WHERE id IN (SELECT 5 FROM s)", true),
            ("SELECT a FROM t WHERE id IN (SELECT t_id FROM s ORDER BY 1 LIMIT 2)", true),
            ("SELECT a FROM t WHERE id = (SELECT s.id FROM s WHERE s.t_id = t.id LIMIT 1)", true),
            ("SELECT a, max(b) FILTER (WHERE b < 2) FROM t GROUP BY a HAVING count(*) > 3", false),
            ("SELECT a FROM t WHERE 1 = 1", false),
            ("SELECT a FROM t JOIN s ON true ORDER BY 1", false),
            ("SELECT a FROM t JOIN s ON true AND s.b", true),
            ("SELECT a FROM t JOIN s ON true = s.b", true),
            ("SELECT a FROM t WHERE 1=1 AND b = 1", true),
            ("SELECT q.a FROM (SELECT a, count(*) AS n FROM t GROUP BY 1) q WHERE q.n > 2", true),
            ("SELECT DISTINCT ON (a) a, 1 FROM t", false),
            ("SELECT a FROM t WHERE EXTRACT(YEAR FROM b) = EXTRACT(YEAR FROM c)", false),
            ("SELECT a FROM t WHERE LEFT(b, 1) = c", true),
        ] {
            assert_eq!(chooses(statement, false), expected, "{statement}");
        }
        assert!(chooses("SELECT a FROM t WHERE b = \"x\"", true));
        assert!(!chooses("SELECT a FROM t WHERE `b 1` = `c`", true));
    }
}
