//! Literals of a statement's text, as the normalized query leaves them out.

/// A literal of the statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// What it is.
    pub kind: LiteralKind,
    /// Its value: a number as written, a string without its quotes and escapes, bytes as they are.
    pub text: Box<[u8]>,
}

/// The kinds of literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiteralKind {
    /// `'text'`, in MySQL also `"text"`.
    String,
    /// `1`, `1.5`, `1e3`; never signed.
    Number,
    /// `x'1f'` and `_binary'text'` of MySQL and MariaDB: their bytes.
    Bytes,
    /// `0x1f`, `b'1'` and `0b1` of MySQL and MariaDB: bytes, which are a number where one is wanted.
    Bits,
}
