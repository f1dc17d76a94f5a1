//! A whole run as Markdown.

use std::fmt::Write as _;

use super::figures::{bytes, date, number};
use super::grid::Grid;
use super::tables::Group;
use crate::driver::Protocol;
use crate::load::Loop;
use crate::result::{Cell, Run};

/// The whole run as Markdown.
pub fn markdown(run: &Run) -> String {
    let mut text = format!("# {}\n\n", title(run));
    let _ = writeln!(text, "Measured {} by `freshet-bench` {}.", date(run.started), run.program);
    if run.interrupted {
        text.push_str("\n**The run ended early.** Only complete rounds are shown.\n");
    }
    text.push_str(&setting(run));
    for group in Group::all(run) {
        text.push_str(&section(&group));
    }
    let _ = write!(text, "\n## To repeat it\n\n    freshet-bench {}\n", command(&run.command));
    text.push_str("\nPasswords are left out of the URLs.\n");
    text
}

/// The title of the run.
pub(super) fn title(run: &Run) -> String {
    let mut workloads: Vec<&str> = run.cells.iter().map(|cell| cell.workload.as_str()).collect();
    workloads.dedup();
    if workloads.is_empty() { "Nothing measured".to_owned() } else { workloads.join(", ") }
}

/// Machine, targets, method.
fn setting(run: &Run) -> String {
    let mut text = format!("\n## Machine and targets\n\n{}\n\n", machine(run));
    text.push_str(&targets(run).markdown());
    text.push_str("\n## Method\n\n");
    for line in method(run) {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// The machine.
pub(super) fn machine(run: &Run) -> String {
    let machine = &run.machine;
    format!(
        "{} × {}, {}, {}; load average before the start {:.2}. The client ran here.",
        machine.cores,
        machine.processor,
        bytes(machine.memory as f64),
        machine.system,
        machine.load_average,
    )
}

/// The table of targets.
pub(super) fn targets(run: &Run) -> Grid {
    let mut grid = Grid::new(&["target", "URL", "version", "settings", "process"], []);
    for target in &run.targets {
        let settings: Vec<String> = target.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        // PostgreSQL's version continues with the compiler.
        let version = target.version.split(" on ").next().unwrap_or_default().to_owned();
        let process = target.process.clone().unwrap_or("not seen from here".to_owned());
        grid.row(vec![target.name.clone(), target.url.clone(), version, settings.join(", "), process]);
    }
    grid
}

/// The method in sentences. The number of lines is fixed, so that the methods of two runs can be compared line by line.
pub(super) fn method(run: &Run) -> [String; 5] {
    let method = &run.method;
    let protocol = match method.protocol {
        Protocol::Prepared => "Statements are prepared once per connection and executed with parameters.",
        Protocol::Text => "Statements are sent as text with the values written into them.",
    };
    let pace = match method.pace {
        Loop::Closed => "Closed loop: each connection begins its next transaction when the last has ended.".to_owned(),
        Loop::Replay { speed } => format!(
            "A log is replayed at {} times its speed: each statement at its time, or when the session's previous one was answered, if later. \
             Latency counts from sending.",
            number(speed)
        ),
        Loop::Open { rate, poisson } => format!(
            "Open loop: {} transactions per second over all connections, {}; latency counts from the intended start.",
            number(rate),
            if poisson { "with exponentially distributed gaps" } else { "equally spaced" },
        ),
    };
    let mut writes: Vec<f64> = run.cells.iter().map(|cell| cell.writes).collect();
    writes.dedup();
    let writes = if writes.iter().any(|rate| *rate > 0.0) {
        let rates: Vec<String> = writes.into_iter().map(number).collect();
        format!("Background writes: {} transactions per second, through the same target.", rates.join(", "))
    } else {
        "No background writes.".to_owned()
    };
    [
        format!(
            "{} round(s) of each target; the targets alternate within a round. Rates are medians of the rounds (with their range), latencies those of all rounds' transactions.",
            method.repetitions
        ),
        format!(
            "A round is {} s of warm-up, {} s measured, {} s of cool-down.",
            method.warm_up, method.measured, method.cool_down
        ),
        pace,
        format!("{protocol} The client has {} thread(s), its random numbers seed {}.", method.threads, method.seed),
        writes,
    ]
}

fn section(group: &Group<'_>) -> String {
    let Some(cell) = group.cell() else { return String::new() };
    let mut text = format!("\n## {}\n", cell.workload);
    let settings = group.settings();
    if !settings.is_empty() {
        let _ = write!(text, "\nSettings: {settings}.\n");
    }
    for (title, grid) in group.tables() {
        let _ = write!(text, "\n### {title}\n\n{}", grid.markdown());
    }
    let said = |line: String| format!("- {}\n", line.replace(['<', '>', '`'], "'"));
    let lines: String = group.notes().into_iter().map(said).collect();
    if lines.is_empty() { text } else { text + "\n" + &lines }
}

/// A workload's settings in one line.
pub(super) fn settings(cell: &Cell) -> String {
    let settings: Vec<String> = cell.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    settings.join(", ")
}

/// The command in the form of a shell.
pub(super) fn command(arguments: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=:/.,@%+".contains(c);
    let quoted = |argument: &String| {
        if !argument.is_empty() && argument.chars().all(plain) {
            return argument.clone();
        }
        format!("'{}'", argument.replace('\'', r"'\''"))
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
