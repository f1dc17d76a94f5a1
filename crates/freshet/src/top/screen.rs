//! The screen, and the same as plain text.

use std::fmt::Write as _;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use serde_json::Value;

use super::view::{View, number, text};
use super::words::{bytes, count, duration, percent};

const CACHE: Color = Color::Cyan;
const DATABASE: Color = Color::Yellow;
/// Number of queries in the plain text.
const PLAIN_QUERIES: usize = 20;

const COLUMNS: [(&str, u16); 7] =
    [("calls", 8), ("hits", 7), ("hit", 9), ("database", 9), ("at database", 11), ("saved", 9), ("statement", 0)];

/// The lines above the table, each with a name and figures.
fn figures(view: &View) -> Vec<(&'static str, String)> {
    let at = |name: &str| view.number(&format!("/now/{name}"));
    let latency = |of: &str| (duration(at(&format!("{of}_p50_seconds"))), duration(at(&format!("{of}_p99_seconds"))));
    let ((hit, hit_99), (answer, answer_99)) = (latency("hit"), latency("database"));
    let (rate, ratio) = (count(at("hits_per_second")), percent(at("hit_ratio")));
    let database = count(at("database_per_second"));
    let (fills, passed) = (count(at("fills_per_second")), count(at("passed_per_second")));
    let (stale, limit) = (duration(at("staleness_seconds")), duration(at("staleness_max_seconds")));
    let (used, memory) = (bytes(at("bytes")), bytes(at("memory_limit_bytes")));
    let (commits, invalidated) = (count(at("commits_per_second")), count(at("invalidated_per_second")));
    vec![
        ("from the cache", format!("{rate}/s, {ratio} of all; median {hit}, 99% {hit_99}")),
        (
            "from the database",
            format!("{database}/s: {fills} to be cached, {passed} passed; median {answer}, 99% {answer_99}"),
        ),
        ("staleness", format!("{stale}, limit {limit}; {commits} commits/s, {invalidated} results invalidated/s")),
        ("memory", format!("{used} of {memory}, {} results", count(at("entries")))),
        ("sessions", count(at("sessions"))),
    ]
}

fn title(view: &View) -> String {
    let version = view.text("/version");
    let upstream = match (view.text("/database"), view.list("/databases").len()) {
        ("", count @ 2..) => format!("{count} databases"),
        _ => view.text("/upstream").to_owned(),
    };
    format!("Freshet {version} before {upstream}, running for {}", duration(view.number("/uptime_seconds")))
}

fn health(view: &View) -> Vec<String> {
    let findings = view.list("/health").iter();
    let texts = findings.map(|finding| format!("{} {}", text(finding, "/text"), text(finding, "/next_step")));
    view.lost.iter().map(|why| format!("connection lost: {why}")).chain(texts).map(|text| clean(&text)).collect()
}

/// The text in one line, without control characters.
fn clean(text: &str) -> String {
    let printable: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    printable.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn cells(query: &Value) -> [String; 7] {
    let of = |pointer: &str| number(query, pointer);
    let calls = ["/hits", "/fills", "/passed"].iter().filter_map(|pointer| of(pointer)).sum::<f64>();
    [
        count(Some(calls)),
        percent(of("/hit_ratio")),
        duration(of("/hit_latency/p50_seconds")),
        duration(of("/database_latency/p50_seconds")),
        duration(of("/database_seconds")),
        duration(of("/saved_seconds")),
        clean(text(query, "/query")),
    ]
}

/// The figures as plain text, for scripts.
pub(super) fn plain(view: &View) -> String {
    let mut out = format!("{}\n", title(view));
    for line in health(view) {
        _ = writeln!(out, "! {line}");
    }
    for (name, figures) in figures(view) {
        _ = writeln!(out, "{name:18} {figures}");
    }
    out.push('\n');
    let mut line = |cells: [&str; 7]| {
        for (cell, (_, width)) in cells.iter().zip(COLUMNS) {
            let width = usize::from(width);
            _ = if width == 0 { writeln!(out, " {cell}") } else { write!(out, " {cell:>width$}") };
        }
    };
    line(COLUMNS.map(|(name, _)| name));
    for query in view.queries().into_iter().take(PLAIN_QUERIES) {
        line(cells(query).each_ref().map(String::as_str));
    }
    out
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let warnings = health(view);
    let figures = figures(view);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(u16::try_from(warnings.len()).unwrap_or(3).min(3) * 2),
        Constraint::Length(figures.len() as u16),
        Constraint::Length(if frame.area().height > 24 { 3 } else { 0 }),
        Constraint::Min(3),
        Constraint::Length(2),
        Constraint::Length(1),
    ];
    let [head, alarm, now, history, list, why, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Line::styled(title(view), Modifier::BOLD), head);
    let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(warnings.join("\n")).style(red).wrap(Wrap { trim: true }), alarm);
    frame.render_widget(Paragraph::new(figures.into_iter().map(figure_line).collect::<Vec<_>>()), now);
    draw_history(frame, view, history);
    let chosen = draw_queries(frame, view, list);
    frame.render_widget(Paragraph::new(chosen).wrap(Wrap { trim: true }), why);
    let keys_text = if view.is_typing {
        format!("search: {}▏  Enter: keep, Esc: end", view.search)
    } else {
        let search = if view.search.is_empty() { String::new() } else { format!("; search: {}", view.search) };
        let databases = if view.list("/databases").len() > 1 { "  d database" } else { "" };
        format!("q quit  s sort (by {})  / search  ↑↓ choose{databases}{search}", view.order())
    };
    frame.render_widget(Line::styled(keys_text, Modifier::DIM), keys);
}

fn figure_line((name, figures): (&'static str, String)) -> Line<'static> {
    let colour = match name {
        "from the cache" => Style::new().fg(CACHE),
        "from the database" => Style::new().fg(DATABASE),
        _ => Style::new(),
    };
    Line::from(vec![Span::styled(format!("{name:18} "), colour), Span::raw(figures)])
}

#[expect(clippy::cast_sign_loss, reason = "rates are positive")]
fn whole(rate: f64) -> u64 {
    rate.max(0.0) as u64
}

/// Statements per second of the last minutes: served from the cache on the left, sent to the database on the right.
fn draw_history(frame: &mut Frame<'_>, view: &View, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
    for (area, name, colour) in [(left, "/hits_per_second", CACHE), (right, "/database_per_second", DATABASE)] {
        let samples = view.list("/history");
        let latest = samples.len().saturating_sub(usize::from(area.width));
        let rate = |sample: &Value| whole(number(sample, name).unwrap_or_default());
        let rates: Vec<u64> = samples.iter().skip(latest).map(rate).collect();
        frame.render_widget(Sparkline::default().data(rates).style(Style::new().fg(colour)), area);
    }
}

/// Draws the queries, and returns the advice for the chosen one.
fn draw_queries(frame: &mut Frame<'_>, view: &mut View, area: Rect) -> String {
    let queries = view.queries();
    let selected = view.selected.min(queries.len().saturating_sub(1));
    let chosen = queries.get(selected);
    let why = chosen.and_then(|query| view.remedy(query)).map(|text| clean(&text)).unwrap_or_default();
    let rows = queries.iter().map(|query| Row::new(cells(query)));
    let widths = COLUMNS.map(|(_, width)| if width == 0 { Constraint::Fill(1) } else { Constraint::Length(width) });
    let header = Row::new(COLUMNS.map(|(name, _)| Cell::new(name))).style(Modifier::BOLD);
    let table = Table::new(rows, widths).header(header).row_highlight_style(Modifier::REVERSED);
    let mut state = TableState::new().with_selected((!queries.is_empty()).then_some(selected));
    frame.render_stateful_widget(table, area, &mut state);
    view.selected = selected;
    why
}
