//! A scanner of Rust source, just sufficient for the tidy rules.
//!
//! A parser crate would see more and take longer to build than all of these rules together. Here, comments and literals are replaced by blanks (so
//! that no brace or word inside them counts), and functions are found by their keyword and by balancing brackets.

use std::ops::Range;

/// One file.
pub(super) struct Source {
    /// Its path from the workspace's root.
    pub(super) path: String,
    /// What it holds.
    pub(super) text: String,
    /// The same length, with comments and literals blanked out.
    code: Vec<u8>,
    /// Its inline test modules.
    tests: Vec<Range<usize>>,
}

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of its `fn`.
    pub(super) line: usize,
    /// From the `fn` to its closing brace.
    pub(super) lines: usize,
    /// Not counting `self`.
    pub(super) parameters: usize,
    /// It takes `&mut self`.
    pub(super) changes_self: bool,
}

/// One struct with named fields.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Struct {
    pub(super) name: String,
    /// The line of its `struct`.
    pub(super) line: usize,
    pub(super) fields: usize,
    /// Those of type `bool`.
    pub(super) bools: usize,
}

impl Source {
    pub(super) fn new(path: String, text: String) -> Self {
        let code = blank(text.as_bytes());
        let tests = test_modules(&code);
        Self { path, text, code, tests }
    }

    /// Whether the file is nothing but tests. The end-to-end tests are held to the limits all the same.
    fn is_test_file(&self) -> bool {
        let test_path = self.path.contains("/tests/") || self.path.ends_with("tests.rs");
        test_path && !self.path.starts_with("crates/e2e/")
    }

    pub(super) fn lines_without_tests(&self) -> usize {
        if self.is_test_file() {
            return 0;
        }
        let lines = |range: &Range<usize>| newlines(&self.code[range.clone()]);
        newlines(&self.code) - self.tests.iter().map(lines).sum::<usize>()
    }

    /// The functions outside tests.
    pub(super) fn functions(&self) -> Vec<Function> {
        if self.is_test_file() {
            return Vec::new();
        }
        let outside = |at: &usize| !self.tests.iter().any(|t| t.contains(at));
        words(&self.code, b"fn").into_iter().filter(outside).filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function> {
        let code = &self.code;
        let rest = &code[at + 2..];
        let name: Vec<u8> = rest.trim_ascii_start().iter().copied().take_while(|b| is_word(*b)).collect();
        if name.is_empty() {
            return None; // a function pointer type
        }
        let Parameters { count: parameters, changes_self, end: after } = parameters(code, at)?;
        let body = after + code[after..].iter().position(|b| *b == b'{' || *b == b';')?;
        if code[body] == b';' {
            return None; // a declaration
        }
        let end = closing(code, body)?;
        let lines = newlines(&code[at..end]) + 1;
        let name = String::from_utf8_lossy(&name).into_owned();
        Some(Function { name, line: self.line(at), lines, parameters, changes_self })
    }

    /// The structs with named fields outside tests.
    pub(super) fn structs(&self) -> Vec<Struct> {
        if self.is_test_file() {
            return Vec::new();
        }
        let outside = |at: &usize| !self.tests.iter().any(|t| t.contains(at));
        words(&self.code, b"struct").into_iter().filter(outside).filter_map(|at| self.structure(at)).collect()
    }

    fn structure(&self, at: usize) -> Option<Struct> {
        let code = &self.code;
        let rest = code[at + b"struct".len()..].trim_ascii_start();
        let name: Vec<u8> = rest.iter().copied().take_while(|b| is_word(*b)).collect();
        let mut open = at;
        while code.get(open).is_some_and(|b| !b"{;".contains(b)) {
            open = if code[open] == b'(' { closing(code, open)? } else { open + 1 };
        }
        if *code.get(open)? == b';' {
            return None; // without names
        }
        let fields = pieces(&code[open + 1..closing(code, open)? - 1]);
        let is_field = |field: &&Vec<u8>| !field.trim_ascii().is_empty();
        let is_bool = |field: &&Vec<u8>| {
            let colon = field.iter().rposition(|b| *b == b':');
            colon.is_some_and(|colon| field[colon + 1..].trim_ascii() == b"bool")
        };
        Some(Struct {
            name: String::from_utf8_lossy(&name).into_owned(),
            line: self.line(at),
            fields: fields.iter().filter(is_field).count(),
            bools: fields.iter().filter(is_bool).count(),
        })
    }

    /// The lines whose code contains the word.
    pub(super) fn lines_with<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let hit = move |(_, line): &(usize, &[u8])| line.windows(word.len()).any(|w| w == word.as_bytes());
        self.code.split(|b| *b == b'\n').enumerate().filter(hit).map(|(index, _)| index + 1)
    }

    /// The attributes that start with a word, such as `expect(`, with their lines.
    pub(super) fn attributes(&self, word: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for at in (0..self.code.len()).filter(|at| self.code[*at] == b'#') {
            let open = at + 1 + usize::from(self.code.get(at + 1) == Some(&b'!'));
            let starts = self.code.get(open + 1..).is_some_and(|rest| rest.starts_with(word.as_bytes()));
            if let (true, Some(end)) = (starts, closing(&self.code, open)) {
                found.push((self.line(at), String::from_utf8_lossy(&self.code[open..end]).into_owned()));
            }
        }
        found
    }

    /// The code without comments, literals and test modules.
    pub(super) fn code_outside_tests(&self) -> String {
        let outside = self.code.iter().enumerate().filter(|(at, _)| !self.tests.iter().any(|range| range.contains(at)));
        String::from_utf8_lossy(&outside.map(|(_, byte)| *byte).collect::<Vec<u8>>()).into_owned()
    }

    fn line(&self, at: usize) -> usize {
        newlines(&self.code[..at]) + 1
    }
}

fn newlines(code: &[u8]) -> usize {
    code.split(|b| *b == b'\n').count() - 1
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Where a whole word stands.
fn words(code: &[u8], word: &[u8]) -> Vec<usize> {
    let whole = |at: &usize| {
        let before = *at == 0 || !is_word(code[at - 1]);
        before && code[*at..].starts_with(word) && !code.get(at + word.len()).is_some_and(|b| is_word(*b))
    };
    (0..code.len()).filter(whole).collect()
}

/// One past the bracket that closes the one at `open`.
fn closing(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// What a function takes.
struct Parameters {
    /// Without `self`.
    count: usize,
    /// `&mut self` is among it.
    changes_self: bool,
    /// Where its list ends.
    end: usize,
}

/// The parameters of the function at `at`.
fn parameters(code: &[u8], at: usize) -> Option<Parameters> {
    // Generics may hold parentheses (`F: Fn(u8)`), so the list starts at the first one outside angle brackets.
    let mut angle = 0_usize;
    let open = (at..code.len()).find(|&i| {
        match code[i] {
            b'<' => angle += 1,
            b'>' if code[i - 1] != b'-' => angle = angle.saturating_sub(1),
            _ => {}
        }
        code[i] == b'(' && angle == 0
    })?;
    let end = closing(code, open)?;
    let pieces = pieces(&code[open + 1..end - 1]);
    let is_receiver = |piece: &[u8]| words(piece, b"self").first().is_some_and(|at| !piece[..*at].contains(&b':'));
    let counts = |piece: &&Vec<u8>| !piece.trim_ascii().is_empty() && !is_receiver(piece.trim_ascii());
    let changes = |piece: &Vec<u8>| {
        let piece = piece.trim_ascii();
        is_receiver(piece) && piece.starts_with(b"&") && !words(piece, b"mut").is_empty()
    };
    Some(Parameters { count: pieces.iter().filter(counts).count(), changes_self: pieces.iter().any(changes), end })
}

/// What stands between the commas outside brackets.
fn pieces(code: &[u8]) -> Vec<Vec<u8>> {
    let (mut depth, mut pieces, mut piece) = (0_usize, Vec::new(), Vec::new());
    for (i, byte) in code.iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if i > 0 && code[i - 1] == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if *byte == b',' && depth == 0 {
            pieces.push(std::mem::take(&mut piece));
        } else {
            piece.push(*byte);
        }
    }
    pieces.push(piece);
    pieces
}

/// The inline modules under `#[cfg(test)]`.
fn test_modules(code: &[u8]) -> Vec<Range<usize>> {
    let mark = b"#[cfg(test)]";
    let mut found = Vec::new();
    for at in (0..code.len()).filter(|at| code[*at..].starts_with(mark)) {
        let after = at + mark.len();
        let stop = code[after..].iter().position(|b| *b == b'{' || *b == b';').map(|p| after + p);
        if let Some(end) = stop.filter(|s| code[*s] == b'{').and_then(|s| closing(code, s)) {
            found.push(at..end);
        }
    }
    found
}

/// The code with comments, strings and character literals replaced by blanks; line ends stay.
fn blank(text: &[u8]) -> Vec<u8> {
    let mut code = text.to_vec();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            rest.windows(2).position(|w| w == b"*/").map_or(rest.len(), |p| p + 2)
        } else if rest[0] == b'"' {
            string_length(rest)
        } else if rest[0] == b'r' && (at == 0 || !is_word(text[at - 1]) || text[at - 1] == b'b') {
            raw_string_length(rest)
        } else if rest[0] == b'\'' {
            char_length(rest)
        } else {
            0
        };
        for byte in &mut code[at..at + length] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    code
}

/// The length of the string literal at the start.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// The length of the raw string at the start; 0 if there is none.
fn raw_string_length(text: &[u8]) -> usize {
    let hashes = text[1..].iter().take_while(|b| **b == b'#').count();
    if text.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = 2 + hashes;
    let found = text[body..].windows(end.len()).position(|w| w == end);
    found.map_or(text.len(), |p| body + p + end.len())
}

/// The length of the character literal at the start; 0 for a lifetime.
fn char_length(text: &[u8]) -> usize {
    if text.get(1) == Some(&b'\\') {
        return text.iter().skip(3).position(|b| *b == b'\'').map_or(text.len(), |p| p + 4);
    }
    let first = text.get(1).copied().unwrap_or(b'\'');
    let width = if first < 0x80 { 1 } else { (first.leading_ones() as usize).min(4) };
    if text.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

#[test]
fn functions_are_found_among_literals_and_comments() {
    let text = r##"
// fn no() {
fn one<F: Fn(u8) -> (u8, u8)>(&mut self, a: Vec<(u8, u8)>, f: F) -> char {
    let s = "}"; let r = r#"fn x() {"#; let l: &'static str = s;
    '}'
}
trait T { fn declared(a: u8); }
type P = fn(u8);
#[cfg(test)]
mod tests { fn inner() { } }
"##;
    let source = Source::new("crates/x/src/lib.rs".into(), text.into());
    let one = Function { name: "one".into(), line: 3, lines: 4, parameters: 2, changes_self: true };
    assert_eq!(source.functions(), [one]);
    assert_eq!(source.lines_without_tests(), 9);
    assert_eq!(source.lines_with("inner").collect::<Vec<_>>(), [10]);
}

#[test]
fn fields_are_counted_by_type() {
    let text = r"
// struct No { a: bool }
#[derive(Debug)]
pub(crate) struct One<'a, F: Fn(u8) -> (u8, u8)> where F: Fn(u8) {
    #[arg(long, value = x)]
    a: Vec<(bool, u8)>, // one, and no flag
    pub(super) b: bool,
    f: F, c: &'a Option<bool>,
    d: bool
}
struct Unnamed(bool, bool);
struct Nothing;
";
    let source = Source::new("crates/x/src/lib.rs".into(), text.into());
    assert_eq!(source.structs(), [Struct { name: "One".into(), line: 4, fields: 5, bools: 2 }]);
}
