//! Keys that are not text: only changes of their own rows invalidate results over them.

use anyhow::{Result, ensure};

use super::support::packets::{self, Value};
use super::support::{Database, Kind, Pair, RawClient, on_both};
use crate::support::{PATIENCE, eventually, rest};

on_both!(
    results_go_with_their_own_rows,
    constants_of_other_kinds_do,
    constants_lead_to_rows_of_others,
    bits_that_an_index_finds
);

const SCHEMA: &str = "CREATE TABLE u (id BINARY(16) PRIMARY KEY, name VARCHAR(20)); \
     CREATE TABLE o (id INT PRIMARY KEY, user_id BINARY(16) NOT NULL, total INT, KEY (user_id)); \
     CREATE TABLE tagged (id INT PRIMARY KEY, tag VARBINARY(20) NOT NULL, UNIQUE KEY (tag)); \
     CREATE TABLE place (code VARCHAR(9) PRIMARY KEY, n INT) CHARACTER SET latin1; \
     CREATE TABLE visit (id INT PRIMARY KEY, code VARCHAR(9)) CHARACTER SET latin1";

const ORDERS: u8 = 12;
/// Of nobody's results.
const UNUSED: u8 = 200;
/// Of one result, which tells that what was written before it was applied.
const LAST: u8 = 201;

/// No text in any encoding, with what would end a constant in it; some have zeros at their ends.
fn key(number: u8) -> [u8; 16] {
    let last = if number.is_multiple_of(2) { 0 } else { b' ' };
    [0xff, number, b'\'', b'\\', 0, 0xc3, 0x28, 1, 0x80, b'"', 0, 7, 7, 7, last, last]
}

fn constant(bytes: &[u8]) -> String {
    let digits = bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    format!("x'{digits}'")
}

fn results_go_with_their_own_rows(kind: Kind) -> Result<()> {
    // Of its own: what other tests define flushes the cache.
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, SCHEMA, &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    for number in (1..=ORDERS).chain([UNUSED, LAST]) {
        let key = constant(&key(number));
        direct.run(&format!(
            "INSERT INTO u VALUES ({key}, 'name'); INSERT INTO o VALUES ({number}, {key}, 1); \
             INSERT INTO tagged VALUES ({number}, {key})"
        ))?;
    }
    direct.run("INSERT INTO place VALUES ('caf\u{e9}', 1), ('bar', 2); INSERT INTO visit VALUES (1, 'caf\u{e9}')")?;
    let mut c = pair.connect()?;
    let reads = Reads::prepare(&mut c)?;
    let mut warm = || reads.warm(&pair, &mut c);
    // Of tables that were never written to no keys are read.
    direct.run(&format!(
        "UPDATE u SET name = 'first' WHERE id = {}; UPDATE o SET total = 7 WHERE id = {UNUSED}; \
         UPDATE tagged SET id = 220 WHERE id = {UNUSED}; UPDATE place SET n = 3 WHERE code = 'bar'; \
         INSERT INTO visit VALUES (2, 'bar')",
        constant(&key(UNUSED))
    ))?;
    let invalidated = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.count("freshet_invalidations_total"));
    for (written, expected) in [(UNUSED, 0), (3, 2), (4, 2)] {
        warm()?;
        let gone = invalidated()?;
        for number in [written, LAST] {
            direct.run(&format!("UPDATE u SET name = CONCAT(name, '!') WHERE id = {}", constant(&key(number))))?;
        }
        eventually(PATIENCE, || {
            let told = invalidated()? - gone;
            ensure!(
                told > expected,
                "{written} and the last write invalidated {told} results, expected more than {expected}"
            );
            Ok(())
        })?;
        let told = invalidated()? - gone - 1;
        ensure!(told == expected, "{written} invalidated {told} results, expected {expected}");
    }
    Ok(())
}

/// Statements over keys.
struct Reads {
    joined: super::support::Statement,
    by_key: super::support::Statement,
    by_text: super::support::Statement,
    latin: super::support::Statement,
}

impl Reads {
    fn prepare(c: &mut RawClient) -> Result<Self> {
        Ok(Self {
            joined: c.prepare("SELECT o.id, o.total, u.name FROM o JOIN u ON u.id = o.user_id WHERE o.id = ?")?,
            by_key: c.prepare("SELECT name FROM u WHERE id = ?")?,
            by_text: c.prepare("SELECT id FROM tagged WHERE tag = ?")?,
            latin: c.prepare("SELECT place.n FROM visit JOIN place ON place.code = visit.code WHERE visit.id = ?")?,
        })
    }

    /// Asks until each is served from the cache.
    fn warm(&self, pair: &Pair, c: &mut RawClient) -> Result<()> {
        let keys: Vec<[u8; 16]> = (1..=ORDERS).map(key).collect();
        let joins = (1..=ORDERS).chain([LAST]).map(|number| (self.joined, Value::Int(number.into())));
        let by_key = keys.iter().map(|key| (self.by_key, Value::Bytes(key)));
        let others = [(self.by_text, Value::Text("\u{e9}\u{2713}")), (self.latin, Value::Int(1))];
        let all: Vec<_> = joins.chain(by_key).chain(others).collect();
        eventually(PATIENCE, || {
            let before = pair.freshet.metrics()?;
            for (statement, value) in &all {
                let answer = c.execute(*statement, std::slice::from_ref(value))?;
                ensure!(answer.error().is_none(), "{answer:?}");
            }
            let after = pair.freshet.metrics()?;
            let hits = after.hits() - before.hits();
            ensure!(hits == all.len() as u64, "{hits} of {}; {:?}", all.len(), after.passed_since(&before));
            rest();
            Ok(())
        })
    }
}

/// A table with keys of a type: its definition, the key with a number, and what is asked.
struct Typed {
    name: &'static str,
    of: &'static str,
    key: fn(u8) -> String,
    asks: &'static [&'static str],
}

const BY_BYTES: Typed = Typed {
    name: "by_bytes",
    of: "BINARY(16)",
    key: |number| format!("{:032x}", bytes_of(number)),
    asks: &["x'$'", "0x$", "UNHEX('$')", "X'$' AND n > 0", "UNHEX('$') OR id = x''"],
};
const BY_BITS: Typed = Typed {
    name: "by_bits",
    of: "BIT(12)",
    key: |number| format!("{:b}", 0x300 + u16::from(number)),
    asks: &["b'$'", "0b$"],
};
const BY_UUID: Typed = Typed {
    name: "by_uuid",
    of: "UUID",
    // Those of versions that the server stores in different orders.
    key: |number| format!("a0eebc99-9c0b-{}ef8-bb6d-6bb9bd38{number:02x}00", if number % 2 == 0 { 1 } else { 7 }),
    asks: &["'$'", "'$' AND n > 0"],
};
const BY_INET6: Typed =
    Typed { name: "by_inet6", of: "INET6", key: |number| format!("2001:db8:{number:x}::"), asks: &["'$'"] };
const BY_INET4: Typed =
    Typed { name: "by_inet4", of: "INET4", key: |number| format!("10.1.{number}.0"), asks: &["'$'"] };

/// No UTF-8, with a zero and a quote in it.
fn bytes_of(number: u8) -> u128 {
    0xff00_27c3_2801_8022_0000_0000_0000_0000 + u128::from(number)
}

/// Those that a server knows.
fn types(kind: Kind) -> &'static [Typed] {
    const ALL: &[Typed] = &[BY_BYTES, BY_BITS, BY_UUID, BY_INET6, BY_INET4];
    if kind == Kind::Mariadb { ALL } else { &[BY_BYTES, BY_BITS] }
}

impl Typed {
    fn constant(&self, number: u8) -> String {
        self.asks[0].replace('$', &(self.key)(number))
    }

    fn schema(&self) -> String {
        let Self { name, of, .. } = self;
        let keys = (1..=ORDERS).chain([UNUSED, LAST]).map(|number| (number, self.constant(number)));
        let (rows, visits): (Vec<_>, Vec<_>) =
            keys.map(|(number, key)| (format!("({key}, {number})"), format!("({number}, {key})"))).unzip();
        format!(
            "CREATE TABLE {name} (id {of} PRIMARY KEY, n INT); INSERT INTO {name} VALUES {}; \
             CREATE TABLE {name}_visit (id INT PRIMARY KEY, key_id {of} NOT NULL, KEY (key_id)); \
             INSERT INTO {name}_visit VALUES {}",
            rows.join(", "),
            visits.join(", ")
        )
    }

    /// What is asked of a key; through a join, too, but of bits, which no key of another table is.
    fn statements(&self, number: u8) -> Vec<Vec<u8>> {
        let (name, key) = (self.name, (self.key)(number));
        let by_key = self.asks.iter().map(|ask| format!("SELECT n FROM {name} WHERE id = {}", ask.replace('$', &key)));
        let join = format!("SELECT n FROM {name}_visit v JOIN {name} t ON t.id = v.key_id WHERE v.id = {number}");
        let statements = by_key.chain((self.of != BY_BITS.of).then_some(join)).map(|sql| packets::query(&sql));
        // As drivers send them, with the bytes as they are.
        let raw = (self.of == BY_BYTES.of).then(|| {
            let mut command = packets::query(&format!("SELECT n FROM {name} WHERE id = _binary'"));
            for byte in bytes_of(number).to_be_bytes() {
                match byte {
                    0 => command.extend(br"\0"),
                    b'\'' | b'"' | b'\\' => command.extend([b'\\', byte]),
                    byte => command.push(byte),
                }
            }
            [&command, &b"'"[..]].concat()
        });
        statements.chain(raw).collect()
    }
}

fn constants_of_other_kinds_do(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    for typed in types(kind) {
        direct.run(&typed.schema())?;
    }
    let mut c = pair.connect()?;
    let invalidated = || Ok::<_, anyhow::Error>(pair.freshet.metrics()?.count("freshet_invalidations_total"));
    for typed in types(kind) {
        let Typed { name, .. } = typed;
        // Of tables that were never written to no keys are read.
        direct.run(&format!("UPDATE {name}_visit SET id = 250 WHERE id = {UNUSED}"))?;
        let all: Vec<_> = (1..=ORDERS).chain([LAST]).flat_map(|number| typed.statements(number)).collect();
        let count = typed.statements(LAST).len() as u64;
        for (written, expected) in [(UNUSED, 0), (3, count), (4, count)] {
            warm(&pair, &mut c, &all)?;
            let gone = invalidated()?;
            for number in [written, LAST] {
                direct.run(&format!("UPDATE {name} SET n = n + 1 WHERE id = {}", typed.constant(number)))?;
            }
            eventually(PATIENCE, || {
                let told = invalidated()? - gone;
                ensure!(told >= expected + count, "{name}: {told} invalidated by {written} and the last");
                Ok(())
            })?;
            let told = invalidated()? - gone - count;
            ensure!(told == expected, "{name}: {written} invalidated {told} results, expected {expected}");
        }
    }
    Ok(())
}

/// Asks until each is served from the cache.
fn warm(pair: &Pair, c: &mut RawClient, statements: &[Vec<u8>]) -> Result<()> {
    eventually(PATIENCE, || {
        let before = pair.freshet.metrics()?;
        for sql in statements {
            let answer = c.command(sql)?;
            let shown = sql.escape_ascii();
            ensure!(answer.error().is_none() && answer.rows().len() == 1, "{shown}: {answer:?}");
        }
        let after = pair.freshet.metrics()?;
        let hits = after.hits() - before.hits();
        ensure!(hits == statements.len() as u64, "{hits} of {}; {:?}", statements.len(), after.passed_since(&before));
        rest();
        Ok(())
    })
}

/// A result that begins at a constant of a type is invalidated by the rows of others that it leads to.
fn constants_lead_to_rows_of_others(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    let mut c = pair.connect()?;
    for typed in types(kind) {
        let name = typed.name;
        direct.run(&typed.schema())?;
        direct.run(&format!(
            "CREATE TABLE {name}_note (id INT PRIMARY KEY, n INT, text VARCHAR(20), KEY (n)); INSERT INTO {name}_note VALUES (1, 1, 'a'), (2, 2, 'b')"
        ))?;
        let sql =
            format!("SELECT o.text FROM {name} t JOIN {name}_note o ON o.n = t.n WHERE t.id = {}", typed.constant(1));
        for text in ["c", "d"] {
            warm(&pair, &mut c, &[[b"\x03", sql.as_bytes()].concat()])?;
            direct.run(&format!("UPDATE {name}_note SET text = '{text}' WHERE id = 1"))?;
            eventually(PATIENCE, || {
                let found = c.value(&sql)?;
                ensure!(found == text, "{name}: {found} for {text}");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// By an index the servers take a fraction for the number beside it, and a negative number for one of 64 bits.
fn bits_that_an_index_finds(kind: Kind) -> Result<()> {
    let pair = Pair::over(Database::create(kind.start(&Kind::settings())?)?, "", &["--admission", "always"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut direct = pair.database.connect()?;
    direct.run(
        "CREATE TABLE bits (id INT PRIMARY KEY, b8 BIT(8), b64 BIT(64), n INT, KEY (b8), KEY (b64)); \
         INSERT INTO bits VALUES (1, 5, 18446744073709551615, 0), (2, 6, 7, 0), (3, 8, 9, 0)",
    )?;
    let mut c = pair.connect()?;
    for condition in ["b8 = 5.4", "b8 = 5.5", "b64 = -1", "b8 = 5", "b64 = 18446744073709551615"] {
        let sql = format!("SELECT COALESCE(SUM(n), -1) FROM bits FORCE INDEX (b8, b64) WHERE {condition}");
        warm(&pair, &mut c, &[[b"\x03", sql.as_bytes()].concat()])?;
        direct.run("UPDATE bits SET n = n + 1")?;
        let right = direct.value(&sql)?;
        eventually(PATIENCE, || {
            let found = c.value(&sql)?;
            ensure!(found == right, "{condition}: {found}, not {right}");
            Ok(())
        })?;
    }
    Ok(())
}
