//! The dashboard in a real browser, before a real Freshet under load: what a person sees and clicks.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use freshet_testbed::{Settings, StopMode};
use serde_json::Value;

use super::configuration::File;
use super::{SCHEMA, databases};
use crate::clients::left_out;
use crate::support::browser::{Driver, Window};
use crate::support::{Database, PATIENCE, Pair, Version, eventually, pace};

/// Selectors of what is looked at.
const LINES: &str = "#queries-table tbody tr.row";
const PHONE: (u32, u32) = (390, 844);
const DESKTOP: (u32, u32) = (1400, 1000);

/// Some statements in a second until it is told to end: hits, fills and what passes.
fn load(pair: &Pair, ends: &AtomicBool) -> Result<()> {
    let mut c = pair.connect()?;
    let mut turn = 0;
    while !ends.load(Relaxed) {
        turn = turn % 100 + 1;
        c.query(&format!("select title from film where id = {turn}"))?;
        c.query("select count(*) from film where id < 50")?;
        if turn % 10 == 0 {
            c.query("select pg_sleep(0.01), clock_timestamp()")?;
        }
        pace(Duration::from_millis(5));
    }
    Ok(())
}

fn text(window: &Window<'_>, selector: &str) -> Result<String> {
    let value = window.run(&format!("return document.querySelector('{selector}')?.textContent"))?;
    Ok(value.as_str().with_context(|| format!("no {selector}"))?.to_owned())
}

fn number(window: &Window<'_>, script: &str) -> Result<f64> {
    let value = window.run(&format!("return {script}"))?;
    value.as_f64().with_context(|| format!("{script}: {value}"))
}

/// The statements in the table, in order.
fn statements(window: &Window<'_>) -> Result<Vec<String>> {
    let script = format!("return [...document.querySelectorAll('{LINES} .sql')].map((line) => line.textContent)");
    Ok(serde_json::from_value(window.run(&script)?)?)
}

/// Nothing is wider than the window but what scrolls by itself, and the browser does not complain.
fn is_sound(window: &Window<'_>, dark: bool) -> Result<()> {
    let wide = "[...document.querySelectorAll('body *')].filter((box) => !box.closest('.wide, .skip') && \
         box.getBoundingClientRect().right > innerWidth + 1).map((box) => `${box.tagName}.${box.className}`).slice(0, 5)";
    let wide = window.run(&format!("return {wide}"))?;
    ensure!(wide.as_array().is_some_and(Vec::is_empty), "wider than the window: {wide}");
    let scrolls = window.run("return document.documentElement.scrollWidth > innerWidth")?;
    ensure!(scrolls == Value::Bool(false), "the page scrolls to the side");
    let background = window.run("return getComputedStyle(document.documentElement).backgroundColor")?;
    let is_dark = background.as_str().is_some_and(|colour| colour.starts_with("rgb(14,"));
    ensure!(is_dark == dark, "the background is {background}");
    let complaints = window.complaints()?;
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

/// Figures move, all charts are drawn.
fn is_alive(window: &Window<'_>) -> Result<()> {
    eventually(PATIENCE, || {
        ensure!(text(window, "#link")? == "live", "{}", text(window, "#link")?);
        let served = text(window, "#tile-cache p")?;
        ensure!(served.ends_with("/s") && !served.starts_with("0 "), "served from the cache: {served}");
        let drawn = number(window, "document.querySelectorAll('.chart canvas').length")?;
        ensure!(drawn >= 6.0, "{drawn} charts");
        ensure!(statements(window)?.len() >= 3, "{:?}", statements(window)?);
        Ok(())
    })?;
    let hits = "document.querySelector('#chart-rate .u-legend .u-series:nth-child(1) .u-value').textContent.length";
    ensure!(number(window, hits)? > 1.0, "the legend has no time");
    Ok(())
}

fn searches_and_sorts(window: &Window<'_>) -> Result<()> {
    let all = statements(window)?.len();
    window.fill_in("#search", "COUNT(*)")?;
    let found = statements(window)?;
    ensure!(found.len() == 1 && found.iter().all(|text| text.contains("count(*)")), "{found:?}");
    window.fill_in("#search", "no such statement")?;
    ensure!(
        statements(window)?.is_empty() && text(window, "#queries-note")?.contains("No statement"),
        "it is not said"
    );
    window
        .run("const box = document.getElementById('search'); box.value = ''; box.dispatchEvent(new Event('input'))")?;
    ensure!(statements(window)?.len() >= all, "the search is not over");

    let calls = "[...document.querySelectorAll('#queries-table tbody tr.row td:nth-child(2)')]\
         .map((cell) => Number(cell.textContent.replaceAll(',', '')))";
    let sorted = |direction: &str| -> Result<()> {
        let all: Vec<f64> = serde_json::from_value(window.run(&format!("return {calls}"))?)?;
        let is_sorted = if direction == "descending" { all.is_sorted_by(|a, b| a >= b) } else { all.is_sorted() };
        ensure!(is_sorted && all.len() > 1, "{direction}: {all:?}");
        let said = window.run("return document.getElementById('by-calls').getAttribute('aria-sort')")?;
        ensure!(said == direction, "aria-sort is {said}");
        Ok(())
    };
    window.click("#by-calls button")?;
    sorted("descending")?;
    window.click("#by-calls button")?;
    sorted("ascending")?;
    window.run("document.getElementById('sort').value = 'calls'; document.getElementById('sort').dispatchEvent(new Event('change'))")?;
    sorted("descending")
}

/// A row opens, and says why its statement passes and what to do. It stays open while the figures change.
fn opens(window: &Window<'_>) -> Result<()> {
    window.fill_in("#search", "pg_sleep")?;
    window.click(&format!("{LINES} .open"))?;
    let detail = text(window, "#queries-table .detail")?;
    ensure!(detail.contains("Last reason") && detail.contains("digest"), "{detail}");
    eventually(PATIENCE, || {
        let later = text(window, "#queries-table .detail")?;
        ensure!(later != detail && later.contains("What to do"), "{later}");
        Ok(())
    })?;
    let advised = text(window, "#advice-list")?;
    ensure!(advised.contains("pg_sleep") && advised.contains("What to do"), "{advised}");
    window.run("document.getElementById('search').value = ''; document.getElementById('search').dispatchEvent(new Event('input'))")?;
    Ok(())
}

fn looked_at(pair: &Pair, driver: &Driver) -> Result<()> {
    let url = format!("http://{}/", pair.freshet.http);
    {
        let window = driver.open(DESKTOP, false)?;
        window.visit(&url)?;
        is_alive(&window).context("alive")?;
        searches_and_sorts(&window).context("search and order")?;
        opens(&window).context("a row")?;
        is_sound(&window, false).context("a desktop")?;
    }
    let window = driver.open(PHONE, true)?;
    window.visit(&url)?;
    is_alive(&window).context("alive on a phone")?;
    is_sound(&window, true).context("a phone")?;
    pair.database.server.stop(StopMode::Immediate)?;
    eventually(PATIENCE, || {
        let banner = text(&window, "#health .banner[data-level=problem]")?;
        ensure!(banner.contains("Nothing is served from the cache") && banner.contains("freshet check"), "{banner}");
        ensure!(text(&window, "#tile-staleness[data-of=problem] p").is_ok(), "staleness is not marked");
        Ok(())
    })?;
    is_sound(&window, true).context("a phone, the database stopped")?;
    Ok(())
}

#[test]
fn in_a_browser() -> Result<()> {
    let database = Database::create(Version::V15.start(&Settings::default())?)?;
    let mut pair = Pair::over(database, SCHEMA, &["--price", "4.50 USD"])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let Some(driver) = Driver::start()? else { return left_out("no chromedriver to open the dashboard with") };
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let loading = scope.spawn(|| load(&pair, &ends));
        let looked = looked_at(&pair, &driver);
        ends.store(true, Relaxed);
        // It has ended with the database, too.
        let _ = loading.join();
        looked
    })?;
    let window = driver.open(DESKTOP, false)?;
    window.visit(&format!("http://{}/", pair.freshet.http))?;
    let says = |what: &str| {
        eventually(PATIENCE, || {
            let said = text(&window, "#link")?;
            ensure!(said.starts_with(what), "{said}");
            Ok(())
        })
    };
    says("live")?;
    pair.freshet.end()?;
    says("connection lost")
}

/// Several databases: all together at first, then the one that is chosen.
#[test]
fn one_of_several_is_chosen() -> Result<()> {
    let (one, other) = (Database::shared(Version::V18)?, Database::shared(Version::V18)?);
    let entry = |database: &Database, name: &str| {
        format!("[[database]]\nname = \"{name}\"\nupstream = \"{}\"\n", database.url())
    };
    for database in [&one, &other] {
        database.run(SCHEMA)?;
    }
    let file = File::new("chosen.toml", &format!("{}{}", entry(&one, "one"), entry(&other, "other")))?;
    let Some(freshet) = databases::start(&file, &one)? else { return Ok(()) };
    let Some(driver) = Driver::start()? else { return left_out("no chromedriver to open the dashboard with") };
    databases::connect(&freshet, &one, "one")?.query("select title from film where id = 1")?;
    databases::connect(&freshet, &other, "other")?.query("select count(*) from film")?;
    let window = driver.open(PHONE, false)?;
    window.visit(&format!("http://{}/", freshet.http))?;
    let shows = |place: &str, count: usize| {
        eventually(PATIENCE, || {
            let (said, listed) = (text(&window, "#where")?, statements(&window)?);
            let streams = window.run("return document.querySelectorAll('#streams dl').length")?;
            ensure!(said.contains(place) && listed.len() == count, "{said}: {listed:?}");
            ensure!(streams.as_u64() == u64::try_from(count).ok(), "{streams} streams");
            Ok(listed)
        })
    };
    shows("2 databases", 2)?;
    let choose =
        "const box = document.getElementById('database'); box.value = 'other'; box.dispatchEvent(new Event('change'))";
    window.run(choose)?;
    let listed = shows(&other.name, 1)?;
    ensure!(listed.iter().all(|statement| statement.contains("count(*)")), "{listed:?}");
    is_sound(&window, false)
}
