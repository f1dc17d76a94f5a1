//! `freshet-bench suite --paper`: a small version of all workloads on both families, in under half an hour on two cores.
//!
//! It consists of items of the suite and some of its own. It ends with results that a run of cells does not give: the cards of the movie page's
//! access paths, and the memory that point selects need.

use anyhow::{Context, Result};
use clap::Parser;

use super::{Item, MEMORY_BYTES, Servers};
use crate::card::{self, CardArgs};
use crate::peers::started::Started;
use crate::sizing::{self, SizingArgs};

/// The items of the paper in order. Items that do not exist are left out.
pub(super) const NAMES: [&str; 14] = [
    // A movie page.
    "title-5",
    "title-5-mariadb",
    "title-5-mysql",
    // Point selects with a growing cache.
    "point-select-sweep",
    "point-select-sweep-mariadb",
    // sysbench's OLTP.
    "oltp-read-only-standby",
    "oltp-read-write",
    "oltp-read-only-mariadb",
    "oltp-read-write-mariadb",
    // A game's rows.
    "game-rows",
    "game-rows-mariadb",
    // The share of reads.
    "ycsb-read-share",
    "ycsb-read-share-mariadb",
    "ycsb-read-share-mysql",
];

/// Items that only the paper has.
pub(super) const ITEMS: [Item; 6] = [
    Item {
        name: "title-5-mariadb",
        title: "A movie page on MariaDB, prepared",
        targets: MARIADB,
        command: "title-5 --movies 56000 --connections 4,16,64 --time 3s --warm-up 1s --rounds 2",
    },
    Item {
        name: "point-select-sweep-mariadb",
        title: "25 rows per transaction on MariaDB, from a cold cache, by its size",
        targets: MARIADB,
        command: "point-select --rows 100000 --per-transaction 25 --distribution zipf:1 --connections 16 --cold \
                  --sizes 1MiB,4MiB,16MiB,64MiB --warm-up 0s --time 8s --rounds 1",
    },
    Item {
        name: "oltp-read-only-standby",
        title: "sysbench's OLTP, read-only, with a streaming standby for comparison",
        targets: &["direct", "freshet", "standby", "pgbouncer"],
        command: "oltp-read-only --rows 100000 --connections 16 --time 3s --warm-up 1s",
    },
    Item {
        name: "oltp-read-only-mariadb",
        title: "sysbench's OLTP on MariaDB, read-only, in REPEATABLE READ transactions",
        targets: MARIADB,
        command: "oltp-read-only --rows 100000 --connections 16 --time 3s --warm-up 1s --rounds 2",
    },
    Item {
        name: "oltp-read-write-mariadb",
        title: "sysbench's OLTP on MariaDB, read-write, in REPEATABLE READ transactions",
        targets: MARIADB,
        command: "oltp-read-write --rows 100000 --connections 16 --time 3s --warm-up 1s --rounds 2",
    },
    Item {
        name: "game-rows-mariadb",
        title: "A game's rows on MariaDB: read, update, look up by email",
        targets: MARIADB,
        command: "game-rows --rows 100000 --connections 16 --time 3s --warm-up 1s --rounds 2",
    },
];

const MARIADB: &[&str] = &["mariadb", "freshet-mariadb"];

/// Documents that are not runs: their names, and their command lines without targets.
pub(super) const EXTRAS: [&str; 2] = ["card-title-5", "sizing-point-select"];
const CARD: &str = "title-5 --movies 56000 --time 2s --warm-up 1s";
const SIZING: &str = "point-select --rows 100000 --distribution zipf:1 --time 5s --warm-up 10s";
/// The options that `--quick` adds to them.
const QUICK: [[&str; 4]; 2] = [
    ["--time=300ms", "--warm-up=300ms", "--probes=5", "--draws=1000"],
    ["--time=1s", "--warm-up=1s", "--accesses=20000", "--sample=0.1"],
];

#[derive(Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct CardLine {
    #[command(flatten)]
    card: CardArgs,
}

#[derive(Parser)]
#[command(no_binary_name = true, args_override_self = true)]
struct SizingLine {
    #[command(flatten)]
    sizing: SizingArgs,
}

/// Cards and a sizing of PostgreSQL and a Freshet. They use the data of the items.
pub(super) async fn extras(servers: &Servers, output: &std::path::Path, quick: bool) -> Result<()> {
    let line = |index: usize, command: &str, more: Vec<String>| {
        let mut line: Vec<String> = command.split_ascii_whitespace().map(str::to_owned).collect();
        line.extend(
            ["direct", "freshet"]
                .iter()
                .filter_map(|name| servers.target(name))
                .map(|t| format!("--target={}", t.typed())),
        );
        line.push(format!("--output={}", output.join(EXTRAS[index]).with_extension("json").display()));
        line.extend(more);
        line.extend(QUICK[index].iter().filter(|_| quick).map(|word| (*word).to_owned()));
        line
    };
    let (name, command) = servers.freshets.first().context("no Freshet")?;
    let target = servers.target(name).context("no Freshet")?;
    let shown = |name: &str, line: &[String]| {
        let words = line.iter().map(|word| word.replace(&servers.program, "freshet"));
        Some(std::iter::once(name.to_owned()).chain(words).collect::<Vec<String>>())
    };
    println!("\n## Access paths of the movie page\n");
    let started = Started::run(command, Some(MEMORY_BYTES), target).await?;
    let words = line(0, CARD, Vec::new());
    let mut args = CardLine::try_parse_from(&words)?.card;
    args.command = shown("card", &words);
    card::run(args).await?;
    drop(started);
    println!("\n## Memory for point selects\n");
    let words = line(1, SIZING, vec![format!("--start={name}={command}")]);
    let mut args = SizingLine::try_parse_from(&words)?.sizing;
    args.command = shown("sizing", &words);
    sizing::run(args).await
}

#[cfg(test)]
mod tests {
    use super::super::{all, parse};
    use super::*;

    /// The rounds without loading and starting take at most two thirds of the half hour on two cores.
    #[test]
    fn it_takes_twenty_minutes_at_most() {
        let mut seconds = 0.0;
        for item in NAMES.iter().filter_map(|name| all().find(|item| item.name == *name)) {
            let line = format!(
                "{} --start=direct={{size}} --target=direct=postgres://h/d {}",
                super::super::MEMORY,
                item.command
            );
            let plan =
                parse(line.split_ascii_whitespace().map(str::to_owned).collect(), false).unwrap().plan().unwrap();
            let cells = plan.connections.len() * plan.writes.len() * plan.sizes.len();
            let rounds = (cells * item.targets.len() * plan.method.repetitions) as f64;
            seconds += rounds
                * (plan.method.warm_up + plan.method.measured + plan.method.cool_down + plan.settle.as_secs_f64());
        }
        assert!((300.0..1_200.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn all_five_workloads_are_there() {
        for workload in ["title-5", "point-select", "oltp-read-only", "oltp-read-write", "game-rows"] {
            for family in ["", "-mariadb"] {
                let of = |item: &super::super::Item| {
                    let other = item.name.ends_with("-mariadb") == family.is_empty();
                    item.name.starts_with(workload) && !other && NAMES.contains(&item.name)
                };
                assert!(all().any(of), "{workload}{family}");
            }
        }
    }

    #[test]
    fn the_extra_command_lines_are_understood() {
        let line = |command: &str| format!("{command} --target=direct=postgres://h/d --output=x");
        let words = |text: String| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
        CardLine::try_parse_from(words(line(CARD))).unwrap();
        SizingLine::try_parse_from(words(line(SIZING))).unwrap();
    }
}
