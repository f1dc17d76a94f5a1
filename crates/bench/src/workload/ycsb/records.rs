//! YCSB's table: its keys, its fields and its load.

use anyhow::{Context, Result};
use indicatif::ProgressBar;

use super::super::distribution::fnv;
use super::super::loading::{self, Cell, Data, Rows, Table};
use crate::driver::keyvalue::Connection;
use crate::random::Random;
use crate::target::{Family, Target};
use crate::value::Value;

/// The loaded rows. Their numbers begin at 0.
#[derive(Debug)]
pub(in super::super) struct Records {
    count: usize,
    fields: usize,
    length: usize,
    seed: u64,
}

impl Records {
    pub(in super::super) fn new(count: u32, (fields, length): (u32, u32), seed: u64) -> Self {
        Self { count: count as usize, fields: fields as usize, length: length as usize, seed }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    pub(super) const fn fields(&self) -> usize {
        self.fields
    }

    /// A field's random characters: printable ASCII from the blank on, with quotes and backslashes, as YCSB's `RandomByteIterator` makes them.
    pub(super) fn field(&self, random: &mut Random) -> String {
        let mut text = String::with_capacity(self.length + 10);
        while text.len() < self.length {
            let bits = random.next();
            text.extend((0..10).map(|part| char::from(b' ' + (bits >> (part * 6) & 63) as u8)));
        }
        text.truncate(self.length);
        text
    }

    /// The fields of a loaded row.
    pub(super) fn row(&self, number: u64) -> Vec<String> {
        let mut random = Random::numbered(self.seed, number);
        (0..self.fields).map(|_| self.field(&mut random)).collect()
    }

    /// Creates the table. A key-value target gets the fields of each row as one value instead.
    pub(super) async fn load(&self, target: &Target, bar: &ProgressBar) -> Result<u64> {
        if target.family().is_some() {
            return loading::load(self, target, bar).await;
        }
        bar.set_length(self.steps());
        let mut connection = Connection::open(&target.kind).await?;
        for number in 0..self.steps() {
            let value = self.row(number).concat();
            connection.set(&name(number), value.as_bytes()).await.with_context(|| format!("storing row {number}"))?;
            bar.inc(1);
        }
        Ok(self.steps())
    }
}

/// The key of a row (`buildKeyName`, `insertorder=hashed`). Keys are scattered, so rows with successive numbers are not adjacent.
pub(super) fn name(number: u64) -> String {
    format!("user{}", fnv(number))
}

/// The key as a parameter.
pub(super) fn key(number: u64) -> Value {
    Value::from(name(number))
}

pub(super) fn columns(fields: usize) -> Vec<String> {
    (0..fields).map(|number| format!("field{number}")).collect()
}

impl Data for Records {
    fn kind(&self) -> &'static str {
        "ycsb"
    }

    fn settings(&self) -> Vec<(String, String)> {
        let texts = [
            ("records", self.count as u64),
            ("fields", self.fields as u64),
            ("field-length", self.length as u64),
            ("data-seed", self.seed),
        ];
        texts.map(|(name, number)| (name.to_owned(), number.to_string())).into()
    }

    /// Keys are compared and ordered by bytes, so that scans return the same rows in both families.
    fn tables(&self, family: Family) -> Vec<Table> {
        let key = match family {
            Family::Postgres => "varchar(255) COLLATE \"C\" NOT NULL",
            Family::Mysql => "varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
        };
        let fields = columns(self.fields).join(" text, ");
        let columns = format!("ycsb_key {key}, {fields} text");
        vec![Table { name: "usertable".to_owned(), columns, key: "ycsb_key", after: Vec::new() }]
    }

    fn steps(&self) -> u64 {
        self.count as u64
    }

    fn step(&self, number: u64, rows: &mut Rows) -> Result<()> {
        let (key, fields) = (name(number), self.row(number));
        let cells: Vec<Cell<'_>> = std::iter::once(&key).chain(&fields).map(|text| Cell::Text(text.as_str())).collect();
        rows.add(0, &cells);
        Ok(())
    }
}
