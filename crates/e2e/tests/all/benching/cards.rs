//! Cards of access paths, through a real Freshet.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use freshet_bench::card::LEVELS;
use freshet_bench::report::{Document, Extra, read_any};

use super::runs::alone;
use super::{Directory, bench_well, direct, through};
use crate::support::{Pair, Version, on_both_at_length};

on_both_at_length!(a_card_of_a_point_select);

/// All five parts are there, of both targets; and what is written through Freshet is in the next answer.
fn a_card_of_a_point_select(version: Version) -> Result<()> {
    let pair = Pair::over(alone(version)?, "", &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (directory, rows) = (Directory::new()?, ["--rows", "500", "--distribution", "zipf:1"]);
    let (direct, through) = (direct(&pair.database), through(&pair));
    bench_well(&["load", "point-select", "--target", &direct, "--rows", "500"])?;
    let (output, page) = (directory.path("card.json"), directory.path("card.html"));
    let targets = ["--target", &direct, "--target", &through, "--output", &output, "--html", &page];
    let short = ["--time", "500ms", "--warm-up", "200ms", "--connections", "4", "--probes", "20", "--draws", "2000"];
    bench_well(&[&["card", "point-select"], &rows[..], &targets, &short].concat())?;

    let Document::Extra(extra) = read_any(Path::new(&output))? else { bail!("a run") };
    let Extra::Cards(cards) = *extra else { bail!("no cards") };
    let card = cards.statements.first().context("no card")?;
    ensure!(cards.statements.len() == 1 && card.name == "point select", "{:?}", card.name);
    ensure!(card.inputs.tables == ["sbtest1"] && card.inputs.drawn == 2000, "{:?}", card.inputs);
    let parameter = card.inputs.parameters.first().context("no parameter")?;
    ensure!(parameter.kind == "integer" && parameter.range[0] == 1, "{parameter:?}");
    // The first of 500 by Zipf's law has 15 of 100.
    ensure!((0.10..0.20).contains(&parameter.hottest), "{parameter:?}");
    let columns: Vec<(&str, &str)> =
        card.outputs.columns.iter().map(|column| (column.name.as_str(), column.kind.as_str())).collect();
    ensure!(columns == [("c", "bpchar")], "{columns:?}");
    ensure!(card.outputs.rows.most == 1 && card.outputs.bytes.median == 120, "{:?}", card.outputs);
    let levels: Vec<&str> = card.levels.iter().map(|level| level.name.as_str()).collect();
    ensure!(levels == LEVELS, "{levels:?}");
    for level in &card.levels {
        let rounds = level.run.cells.iter().flat_map(|cell| &cell.rounds);
        let loads: Vec<u64> = rounds.map(|round| round.load.transactions).collect();
        ensure!(loads.len() == 2 && loads.iter().all(|count| *count > 0), "{}: {loads:?}", level.name);
    }
    let fresh = card.freshness.get("freshet").context("no freshness")?;
    let past = fresh.past.as_ref().context("nothing was written past it")?;
    ensure!(fresh.through.writes == 20 && past.writes == 20, "{fresh:?}");
    ensure!(fresh.through.old_answers == 0 && fresh.through.never == 0 && past.never == 0, "{fresh:?}");
    let text = fs::read_to_string(page)?;
    ensure!(text.contains("Throughput at the peak") && text.contains("first new answer"), "a part is missing");
    Ok(())
}
