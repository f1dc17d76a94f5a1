//! Random batches of several sessions, in turns over shared connections: each session hears what it hears on a connection of its own.

use anyhow::{Context, Result};

use super::{SCHEMA, Step, play, run, together};
use crate::pooling::postgres::shared_with;
use crate::support::frames::{close_statement, describe_statement, parse, query, sync};
use crate::support::{Version, ensure_same, on_both};

on_both!(random_batches_are_the_same);

/// A sequence of numbers that is the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "long name"];
const TEXTS: &[&str] = &[
    "select v from t where id = $1::int",
    "select id, v from t where id >= $1::int order by id",
    "update t set v = v + 1 where id = $1::int returning v",
    "select 'text' || $1::int",
    "select '01/02/2024'::date + $1::int, (1::float8/3)::text",
    "select 10 / $1::int",
    "select nothing from t where id = $1::int",
    "selec $1",
];
const QUERIES: &[&str] = &[
    "begin",
    "commit",
    "rollback",
    "select v from t where id = 1",
    "discard all",
    "deallocate all",
    "deallocate a",
    "execute b(1)",
    "set work_mem = '1MB'",
    "reset work_mem",
    "set datestyle = 'SQL, DMY'",
    "set datestyle = 'SQL, MDY'",
    "set extra_float_digits = -3",
    "reset all",
    "create table u (); drop table u",
];

fn batch(numbers: &mut Numbers) -> (Vec<u8>, usize) {
    if numbers.below(6) == 0 {
        return (query(numbers.of(QUERIES)), 1);
    }
    let mut bytes = Vec::new();
    for _ in 0..=numbers.below(4) {
        let name = numbers.of(NAMES);
        bytes.extend(match numbers.below(9) {
            0 | 1 => parse(name, numbers.of(TEXTS)),
            2 => together(&[parse(name, numbers.of(TEXTS)), describe_statement(name), run(name, &["1"])]),
            3 => close_statement(name),
            4 => describe_statement(name),
            5 => run(name, &["0"]),
            6 => together(&[parse("", numbers.of(TEXTS)), run("", &["2"])]),
            _ => run(name, &["1"]),
        });
        if numbers.below(8) == 0 {
            bytes.extend(sync());
            bytes.extend(batch(numbers).0);
            break;
        }
    }
    if !bytes.ends_with(&sync()) && bytes.first() != Some(&b'Q') {
        bytes.extend(sync());
    }
    let ready = count_ready(&bytes);
    (bytes, ready)
}

/// How many times the server will be ready: each `Query`, and each `Sync`.
pub(super) fn count_ready(mut bytes: &[u8]) -> usize {
    let mut ready = 0;
    while let Some((head, _)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        ready += usize::from(matches!(head[0], b'Q' | b'S'));
        bytes = &bytes[1 + length..];
    }
    ready
}

fn random_batches_are_the_same(version: Version) -> Result<()> {
    // A session that keeps its connection must not make another one wait.
    let pair = shared_with(version, SCHEMA, 4, &["--max-prepared-statements", "3"])?;
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let mut steps: Vec<Step> = Vec::new();
        for _ in 0..120 {
            let at = numbers.below(4);
            let (bytes, ready) = batch(&mut numbers);
            steps.push((at, bytes, ready));
        }
        let [direct, through] = [pair.database.address(), pair.address()].map(|address| -> Result<_> {
            pair.connect()?.run("update t set v = id * 10")?;
            play(&pair, address, 4, &steps).with_context(|| format!("seed {seed}"))
        });
        let (direct, all_through) = (direct?, through?);
        for (step, (direct, through)) in direct.iter().zip(&all_through).enumerate() {
            let told = |(at, bytes, _): &Step| format!("session {at}: {}", bytes.escape_ascii());
            let before = || steps.iter().take(step + 1).map(told).skip(step.saturating_sub(20)).collect::<Vec<_>>();
            ensure_same(direct, through).with_context(|| format!("seed {seed}, step {step}: {:#?}", before()))?;
        }
    }
    Ok(())
}
