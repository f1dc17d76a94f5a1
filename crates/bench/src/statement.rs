//! Statements of a workload, written once for both families of servers.
//!
//! The source has `$1`, `$2` … for parameters. PostgreSQL prepares it unchanged. MySQL gets a `?` for each use of a parameter, and its value once for
//! each use. In the text protocol both get literals.

use crate::target::Family;
use crate::value::Value;

/// The kind of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It returns rows and changes nothing.
    Read,
    /// It changes rows.
    Write,
}

/// A statement with placeholders for parameters.
#[derive(Clone, Debug)]
pub struct Statement {
    /// The name in the results.
    pub name: String,
    /// Whether it changes rows.
    pub effect: Effect,
    /// Whether ORDER BY determines the order completely. Then answers are compared in order.
    pub ordered: bool,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    /// Index of the parameter.
    Parameter(usize),
}

impl Statement {
    /// A statement that reads.
    pub fn read(name: &str, source: &str) -> Self {
        Self::new(name, source, Effect::Read)
    }

    /// A statement that writes.
    pub fn write(name: &str, source: &str) -> Self {
        Self::new(name, source, Effect::Write)
    }

    /// A statement. A `$` followed by digits outside quotes is a parameter.
    pub fn new(name: &str, source: &str, effect: Effect) -> Self {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let mut quoted = false;
        let mut rest = source.chars().peekable();
        while let Some(letter) = rest.next() {
            quoted ^= letter == '\'';
            let mut number = 0;
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)).filter(|_| letter == '$' && !quoted) {
                number = number * 10 + digit as usize;
                rest.next();
            }
            if number == 0 {
                text.push(letter);
            } else {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Parameter(number - 1));
            }
        }
        pieces.push(Piece::Text(text));
        Self { name: name.to_owned(), effect, ordered: false, pieces }
    }

    /// Marks the order of the answer as determined.
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// The text to prepare.
    pub fn prepared_text(&self, family: Family) -> String {
        let piece = |piece: &Piece| match (piece, family) {
            (Piece::Text(text), _) => text.clone(),
            (Piece::Parameter(index), Family::Postgres) => format!("${}", index + 1),
            (Piece::Parameter(_), Family::Mysql) => "?".to_owned(),
        };
        self.pieces.iter().map(piece).collect()
    }

    /// Indexes of the parameters in the order of their uses, which is the order of MySQL's values.
    pub fn mentions(&self) -> impl Iterator<Item = usize> {
        self.pieces.iter().filter_map(|piece| if let Piece::Parameter(index) = piece { Some(*index) } else { None })
    }

    /// Appends the text with literals for the parameters. A missing value is NULL.
    pub fn write_text(&self, family: Family, values: &[Value], text: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Parameter(index) => values.get(*index).unwrap_or(&Value::Null).write_literal(family, text),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_written_as_each_family_reads_them() {
        let statement = Statement::read("s", "SELECT '$1', $2 FROM t WHERE a = $1 AND b = $2");
        assert_eq!(statement.prepared_text(Family::Postgres), "SELECT '$1', $2 FROM t WHERE a = $1 AND b = $2");
        assert_eq!(statement.prepared_text(Family::Mysql), "SELECT '$1', ? FROM t WHERE a = ? AND b = ?");
        assert_eq!(statement.mentions().collect::<Vec<_>>(), [1, 0, 1]);
        let mut text = String::new();
        statement.write_text(Family::Mysql, &[Value::from("O'Hara\\"), Value::Int(-3)], &mut text);
        assert_eq!(text, "SELECT '$1', -3 FROM t WHERE a = 'O''Hara\\\\' AND b = -3");
    }
}
