//! The meaning of a statement in the binlog for cached results.
//!
//! With rows in the log, statements only delimit transactions and define objects. Only a few forms are parsed, those whose tables the first words
//! determine. After any other statement, anything may have changed. So the scanner need not be complete, but it must be certain:
//!
//! - It reads ASCII only. A statement is in the character set of its client, in which a non-ASCII byte may hide a quote.
//! - An executable comment (`/*!80000 … */`) is read only if every supported server runs it.
//! - Names are read only where the grammar allows nothing but a name, quoted or not, so that quoting modes do not matter.

/// A table's name, as spelled in the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) schema: String,
    pub(super) table: String,
}

/// The effect of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    /// Begins a transaction.
    Begin,
    /// Commits it.
    Commit,
    /// Rolls it back; its writes to non-transactional tables remain.
    Rollback,
    /// Begins an XA transaction.
    XaStart,
    /// Ends its changes. Has its name in the form that the server writes in all statements about it.
    XaEnd(Vec<u8>),
    /// Commits a prepared XA transaction.
    XaCommit(Vec<u8>),
    /// Rolls back a prepared XA transaction.
    XaRollback(Vec<u8>),
    /// No visible effect.
    Nothing,
    /// Empties a table.
    Truncate(Name),
    /// Redefines these tables.
    Define(Vec<Name>),
    /// The same, as the beginning of a transaction that fills the table (MySQL from 8.0.21, CREATE TABLE … SELECT).
    DefineAndFill(Vec<Name>),
    /// Unknown: anything may have changed.
    Unknown,
}

/// Reads a statement with its default database.
pub(super) fn read(schema: &[u8], sql: &[u8]) -> Statement {
    let schema = std::str::from_utf8(schema).unwrap_or_default();
    Scanner { rest: sql, schema }.statement(sql).unwrap_or(Statement::Unknown)
}

struct Scanner<'a> {
    rest: &'a [u8],
    schema: &'a str,
}

impl Scanner<'_> {
    /// None if the statement is not understood.
    fn statement(&mut self, sql: &[u8]) -> Option<Statement> {
        Some(match self.word()?.as_str() {
            "BEGIN" => Statement::Begin,
            "COMMIT" => Statement::Commit,
            "SAVEPOINT" | "RELEASE" | "ANALYZE" => Statement::Nothing,
            // To a savepoint: changes behind it that are still in the log are in non-transactional tables.
            "ROLLBACK" if self.optional("TO") => Statement::Nothing,
            "ROLLBACK" => Statement::Rollback,
            "XA" => self.xa()?,
            "TRUNCATE" => {
                self.optional("TABLE");
                let name = self.name()?;
                self.end_or(&["WAIT", "NOWAIT"])?;
                Statement::Truncate(name)
            }
            "CREATE" => self.create(sql)?,
            "ALTER" => self.alter(sql)?,
            "DROP" => self.drop_()?,
            "RENAME" => self.rename()?,
            _ => return None,
        })
    }

    fn xa(&mut self) -> Option<Statement> {
        let verb = self.word()?;
        self.space()?;
        let xid = self.rest.trim_ascii().to_vec();
        match verb.as_str() {
            "START" => Some(Statement::XaStart),
            "END" => Some(Statement::XaEnd(xid)),
            "COMMIT" => Some(Statement::XaCommit(xid)),
            "ROLLBACK" => Some(Statement::XaRollback(xid)),
            _ => None,
        }
    }

    fn create(&mut self, sql: &[u8]) -> Option<Statement> {
        if self.optional("OR") && !self.optional("REPLACE") {
            return None;
        }
        match self.word()?.as_str() {
            "TEMPORARY" => self.optional("TABLE").then_some(Statement::Nothing),
            "TABLE" => {
                self.if_exists(true)?;
                let names = vec![self.name()?];
                let fills = sql.trim_ascii_end().to_ascii_uppercase().ends_with(b"START TRANSACTION");
                Some(if fills { Statement::DefineAndFill(names) } else { Statement::Define(names) })
            }
            "UNIQUE" | "FULLTEXT" | "SPATIAL" if self.optional("INDEX") => self.index(true),
            "INDEX" => self.index(true),
            "VIEW" => self.view(),
            "ALGORITHM" | "DEFINER" | "SQL" => self.view_options(),
            _ => None,
        }
    }

    /// The words between CREATE or ALTER and VIEW, if it is a view.
    fn view_options(&mut self) -> Option<Statement> {
        loop {
            self.space()?;
            if self.mark(b'=') || self.mark(b'@') || self.mark(b'(') || self.mark(b')') {
                continue;
            }
            if matches!(self.rest.first(), Some(b'`' | b'"' | b'\'')) {
                self.quoted()?;
                continue;
            }
            match self.word()?.as_str() {
                "VIEW" => return self.view(),
                "FUNCTION" | "PROCEDURE" | "TRIGGER" | "EVENT" | "AGGREGATE" | "PACKAGE" => return None,
                _ => {}
            }
        }
    }

    fn view(&mut self) -> Option<Statement> {
        self.if_exists(true)?;
        Some(Statement::Define(vec![self.name()?]))
    }

    /// `[IF [NOT] EXISTS] name … ON table`
    fn index(&mut self, not: bool) -> Option<Statement> {
        self.if_exists(not)?;
        self.identifier()?;
        if self.optional("USING") {
            self.word()?;
        }
        if !self.optional("ON") {
            return None;
        }
        Some(Statement::Define(vec![self.name()?]))
    }

    fn alter(&mut self, sql: &[u8]) -> Option<Statement> {
        match self.word()?.as_str() {
            "TABLE" => {
                self.if_exists(false)?;
                let name = self.name()?;
                // Other tables follow these words. They are rejected anywhere in the text, to be certain.
                let upper = sql.to_ascii_uppercase();
                let others = [&b"RENAME"[..], b"EXCHANGE", b"CONVERT"];
                let involved = others.iter().any(|word| upper.windows(word.len()).any(|at| at == *word));
                (!involved).then(|| Statement::Define(vec![name]))
            }
            "VIEW" => self.view(),
            "ALGORITHM" | "DEFINER" | "SQL" => self.view_options(),
            _ => None,
        }
    }

    fn drop_(&mut self) -> Option<Statement> {
        match self.word()?.as_str() {
            "TEMPORARY" => self.optional("TABLE").then_some(Statement::Nothing),
            "TABLE" | "TABLES" | "VIEW" => {
                self.if_exists(false)?;
                let mut names = vec![self.name()?];
                while self.comma()? {
                    names.push(self.name()?);
                }
                self.end_or(&["RESTRICT", "CASCADE", "WAIT", "NOWAIT"])?;
                Some(Statement::Define(names))
            }
            "INDEX" => self.index(false),
            _ => None,
        }
    }

    fn rename(&mut self) -> Option<Statement> {
        if !self.optional("TABLE") && !self.optional("TABLES") {
            return None;
        }
        self.if_exists(false)?;
        let mut names = Vec::new();
        loop {
            names.push(self.name()?);
            if self.optional("WAIT") {
                self.word()?;
            } else {
                self.optional("NOWAIT");
            }
            if !self.optional("TO") {
                return None;
            }
            names.push(self.name()?);
            if !self.comma()? {
                self.end_or(&[])?;
                return Some(Statement::Define(names));
            }
        }
    }

    /// `IF EXISTS` or `IF NOT EXISTS`, if present.
    fn if_exists(&mut self, not: bool) -> Option<()> {
        if !self.optional("IF") {
            return Some(());
        }
        if not && !self.optional("NOT") {
            return None;
        }
        self.optional("EXISTS").then_some(())
    }

    fn name(&mut self) -> Option<Name> {
        let first = self.identifier()?;
        self.space()?;
        if self.mark(b'.') {
            return Some(Name { schema: first, table: self.identifier()? });
        }
        // Without a default database the name is incomplete.
        (!self.schema.is_empty()).then(|| Name { schema: self.schema.to_owned(), table: first })
    }

    fn identifier(&mut self) -> Option<String> {
        self.space()?;
        if matches!(self.rest.first(), Some(b'`' | b'"')) { self.quoted() } else { self.bare() }
    }

    /// Reads up to the same quote; a doubled quote stands for itself. In a name a backslash is an ordinary character.
    fn quoted(&mut self) -> Option<String> {
        let (quote, mut rest) = self.rest.split_first()?;
        let mut out = String::new();
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            if byte == quote {
                match rest.split_first() {
                    Some((next, after)) if next == quote => rest = after,
                    _ => break,
                }
            } else if !byte.is_ascii() || *byte == b'\\' {
                return None;
            }
            out.push(char::from(*byte));
        }
        self.rest = rest;
        Some(out)
    }

    fn bare(&mut self) -> Option<String> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        let length = self.rest.iter().take_while(is_part).count();
        let (word, rest) = self.rest.split_at_checked(length)?;
        // A byte of another character set would be a part of the word.
        if word.is_empty() || rest.first().is_some_and(|byte| !byte.is_ascii()) {
            return None;
        }
        self.rest = rest;
        Some(String::from_utf8_lossy(word).into_owned())
    }

    /// The next word, in upper case.
    fn word(&mut self) -> Option<String> {
        self.space()?;
        self.bare().map(|word| word.to_ascii_uppercase())
    }

    /// Consumes the word if it is the next.
    fn optional(&mut self, wanted: &str) -> bool {
        let before = self.rest;
        if self.word().as_deref() == Some(wanted) {
            return true;
        }
        self.rest = before;
        false
    }

    fn mark(&mut self, wanted: u8) -> bool {
        let found = self.rest.strip_prefix(&[wanted]);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn comma(&mut self) -> Option<bool> {
        self.space()?;
        Some(self.mark(b','))
    }

    /// The statement must end here, or continue with one of these words, which do not affect its tables.
    fn end_or(&mut self, words: &[&str]) -> Option<()> {
        self.space()?;
        let ended = self.rest.is_empty() || self.rest.starts_with(b";");
        (ended || words.iter().any(|word| self.optional(word))).then_some(())
    }

    /// Skips blanks and comments.
    fn space(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_ascii_start();
            if let Some(inner) = self.rest.strip_prefix(b"/*!").or_else(|| self.rest.strip_prefix(b"/*M!")) {
                self.rest = always_run(inner)?;
            } else if let Some(comment) = self.rest.strip_prefix(b"/*") {
                self.rest = behind(comment, b"*/")?;
            } else if self.rest.starts_with(b"#") || self.rest.starts_with(b"-- ") {
                self.rest = behind(self.rest, b"\n").unwrap_or_default();
            } else if let Some(rest) = self.rest.strip_prefix(b"*/") {
                // The end of an executable comment whose contents were read.
                self.rest = rest;
            } else {
                return Some(());
            }
        }
    }
}

/// The contents of a comment that all supported servers run: its version is 5.x or older.
fn always_run(inner: &[u8]) -> Option<&[u8]> {
    let (version, rest) = inner.split_at_checked(5)?;
    let digits = version.iter().all(u8::is_ascii_digit) && !rest.first().is_some_and(u8::is_ascii_digit);
    (digits && version < b"60000".as_slice()).then_some(rest)
}

fn behind<'a>(text: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(end.len()).position(|window| window == end)?;
    text.get(at + end.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brief(sql: &str) -> String {
        let names =
            |names: Vec<Name>| names.iter().map(|n| format!("{}.{}", n.schema, n.table)).collect::<Vec<_>>().join(" ");
        match read(b"d", sql.as_bytes()) {
            Statement::Truncate(name) => format!("empty {}", names(vec![name])),
            Statement::Define(tables) => names(tables),
            Statement::DefineAndFill(tables) => format!("fill {}", names(tables)),
            Statement::XaEnd(xid) => format!("xa end {}", String::from_utf8_lossy(&xid)),
            Statement::XaCommit(xid) => format!("xa commit {}", String::from_utf8_lossy(&xid)),
            Statement::XaRollback(xid) => format!("xa rollback {}", String::from_utf8_lossy(&xid)),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn statements_are_read() {
        for (sql, expected) in [
            ("BEGIN", "Begin"),
            ("COMMIT", "Commit"),
            ("commit /* x */", "Commit"),
            ("ROLLBACK", "Rollback"),
            ("ROLLBACK TO `s`", "Nothing"),
            ("SAVEPOINT `s`", "Nothing"),
            ("XA START X'61',X'',1", "XaStart"),
            ("XA END X'61',X'',1", "xa end X'61',X'',1"),
            ("XA COMMIT X'61',X'',1", "xa commit X'61',X'',1"),
            ("XA ROLLBACK X'61',X'',1", "xa rollback X'61',X'',1"),
            ("TRUNCATE t", "empty d.t"),
            ("truncate/**/table `e` . `a``b`", "empty e.a`b"),
            ("TRUNCATE TABLE e.t WAIT 5", "empty e.t"),
            ("CREATE TABLE t (a int)", "d.t"),
            ("CREATE OR REPLACE TABLE t (a int)", "d.t"),
            ("CREATE TABLE IF NOT EXISTS e.t LIKE u", "e.t"),
            ("CREATE TABLE `t` (`a` int) START TRANSACTION", "fill d.t"),
            ("CREATE TEMPORARY TABLE t (a int)", "Nothing"),
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", "Nothing"),
            ("DROP /*!80000 TEMPORARY */ TABLE IF EXISTS `t`", "Unknown"),
            ("DROP TABLE IF EXISTS `t`,e.u /* generated by server */", "d.t e.u"),
            ("DROP VIEW v", "d.v"),
            ("DROP INDEX i ON t", "d.t"),
            ("CREATE UNIQUE INDEX i USING BTREE ON t (a)", "d.t"),
            ("CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT 1", "d.v"),
            ("CREATE DEFINER=`root`@`%` TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET @a = 1", "Unknown"),
            ("ALTER TABLE t ADD b int", "d.t"),
            ("ALTER TABLE t RENAME u", "Unknown"),
            ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "Unknown"),
            ("ALTER TABLE t CONVERT TABLE u TO PARTITION p VALUES LESS THAN (9)", "Unknown"),
            ("ALTER TABLE t ADD b varchar(9) COMMENT 'é'", "d.t"),
            ("RENAME TABLE a TO e.b, e.b to c", "d.a e.b e.b d.c"),
            ("ALTER TABLE é ADD b int", "Unknown"),
            ("CREATE TABLE té (a int)", "Unknown"),
            ("# x\n-- y\nANALYZE TABLE t", "Nothing"),
            ("GRANT SELECT ON t TO u", "Unknown"),
            ("INSERT INTO t VALUES (1)", "Unknown"),
            ("CREATE DATABASE x", "Unknown"),
            ("DROP DATABASE x", "Unknown"),
            ("OPTIMIZE TABLE t", "Unknown"),
            ("", "Unknown"),
            ("TRUNCATE t u", "Unknown"),
            ("DROP TABLE `t", "Unknown"),
        ] {
            assert_eq!(brief(sql), expected, "{sql}");
        }
        assert_eq!(read(b"", b"TRUNCATE t"), Statement::Unknown);
    }
}
