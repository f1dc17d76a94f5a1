//! Literals of a statement's text, which the normalized query replaces by parameters.

/// A literal of the statement's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// Its kind.
    pub kind: LiteralKind,
    /// Its value: a number as written, a string without quotes and escapes, bytes unchanged.
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
    /// `0x1f`, `b'1'` and `0b1` of MySQL and MariaDB: bytes, or a number in a numeric context.
    Bits,
}
