//! The frontend's messages as bytes (PostgreSQL manual, chapter 54.7), written by hand: the tests must be able to send what no driver would send.

/// Format code of text values.
pub(crate) const TEXT: i16 = 0;
/// Format code of binary values.
pub(crate) const BINARY: i16 = 1;

/// A message: its tag, its length, its body.
pub(crate) fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![tag];
    frame.extend(length(body.len() + 4));
    frame.extend(body);
    frame
}

/// A message whose length field says something else than its length.
pub(crate) fn lying(tag: u8, length: u32, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &length.to_be_bytes(), body].concat()
}

/// A message without a tag: only the first message of a connection has none.
fn untagged(code: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = length(body.len() + 8).to_vec();
    frame.extend(code.to_be_bytes());
    frame.extend(body);
    frame
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).expect("a frame is below 2 GB").to_be_bytes()
}

fn count(items: usize) -> [u8; 2] {
    u16::try_from(items).expect("a count fits 16 bits").to_be_bytes()
}

fn text(string: &str) -> Vec<u8> {
    [string.as_bytes(), &[0]].concat()
}

fn codes(formats: &[i16]) -> Vec<u8> {
    let mut bytes = count(formats.len()).to_vec();
    bytes.extend(formats.iter().flat_map(|f| f.to_be_bytes()));
    bytes
}

/// StartupMessage of protocol 3.0.
pub(crate) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    startup_of(196_608, parameters)
}

/// StartupMessage of any protocol version.
pub(crate) fn startup_of(version: i32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body: Vec<u8> = parameters.iter().flat_map(|(name, value)| [text(name), text(value)].concat()).collect();
    body.push(0);
    untagged(version, &body)
}

pub(crate) fn ssl_request() -> Vec<u8> {
    untagged(80_877_103, &[])
}

pub(crate) fn gss_request() -> Vec<u8> {
    untagged(80_877_104, &[])
}

/// CancelRequest with the contents of BackendKeyData.
pub(crate) fn cancel(key_data: &[u8]) -> Vec<u8> {
    untagged(80_877_102, key_data)
}

pub(crate) fn password(password: &str) -> Vec<u8> {
    frame(b'p', &text(password))
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', &text(sql))
}

pub(crate) fn parse(name: &str, sql: &str) -> Vec<u8> {
    parse_typed(name, sql, &[])
}

/// Parse with parameter types.
pub(crate) fn parse_typed(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = [text(name), text(sql)].concat();
    body.extend(count(types.len()));
    body.extend(types.iter().flat_map(|t| t.to_be_bytes()));
    frame(b'P', &body)
}

/// The contents of Bind: values, their formats (none, one or all), and the formats of the result.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bound<'a> {
    pub(crate) formats: &'a [i16],
    pub(crate) values: &'a [Option<&'a [u8]>],
    pub(crate) results: &'a [i16],
}

pub(crate) fn bind(portal: &str, statement: &str, values: Bound<'_>) -> Vec<u8> {
    let mut body = [text(portal), text(statement), codes(values.formats)].concat();
    body.extend(count(values.values.len()));
    for value in values.values {
        match value {
            Some(bytes) => {
                body.extend(length(bytes.len()));
                body.extend(*bytes);
            }
            None => body.extend((-1_i32).to_be_bytes()),
        }
    }
    body.extend(codes(values.results));
    frame(b'B', &body)
}

/// Bind of text values with a result in text.
pub(crate) fn bind_text(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let values: Vec<_> = values.iter().map(|v| Some(v.as_bytes())).collect();
    bind(portal, statement, Bound { values: &values, ..Bound::default() })
}

pub(crate) fn describe_statement(name: &str) -> Vec<u8> {
    frame(b'D', &[b"S", text(name).as_slice()].concat())
}

pub(crate) fn describe_portal(name: &str) -> Vec<u8> {
    frame(b'D', &[b"P", text(name).as_slice()].concat())
}

/// Execute with a row limit; 0 is none.
pub(crate) fn execute(portal: &str, rows_max: i32) -> Vec<u8> {
    frame(b'E', &[text(portal).as_slice(), &rows_max.to_be_bytes()].concat())
}

pub(crate) fn close_statement(name: &str) -> Vec<u8> {
    frame(b'C', &[b"S", text(name).as_slice()].concat())
}

pub(crate) fn close_portal(name: &str) -> Vec<u8> {
    frame(b'C', &[b"P", text(name).as_slice()].concat())
}

pub(crate) fn sync() -> Vec<u8> {
    frame(b'S', &[])
}

pub(crate) fn flush() -> Vec<u8> {
    frame(b'H', &[])
}

pub(crate) fn terminate() -> Vec<u8> {
    frame(b'X', &[])
}

pub(crate) fn copy_data(data: &[u8]) -> Vec<u8> {
    frame(b'd', data)
}

pub(crate) fn copy_done() -> Vec<u8> {
    frame(b'c', &[])
}

pub(crate) fn copy_fail(why: &str) -> Vec<u8> {
    frame(b'f', &text(why))
}

/// Parse, Bind, Describe, Execute of the unnamed statement, as most drivers send them, without the Sync.
pub(crate) fn unnamed(sql: &str, values: &[&str]) -> Vec<u8> {
    [parse("", sql), bind_text("", "", values), describe_portal(""), execute("", 0)].concat()
}
