//! What an operator should see first: whether the cache works, and if not, the next step.

use std::sync::atomic::Ordering::Relaxed;

use freshet_proxy::Database;
use serde_json::{Value, json};

use crate::handover::WAITING;

/// The findings about these databases, the most serious first. Empty if all is well. If there are several databases, each finding begins with the
/// name.
pub(super) fn health(all: &[Database]) -> Vec<Value> {
    let of = |database: &Database| {
        let name = if all.len() > 1 { format!("{}: ", database.name) } else { String::new() };
        health_of(database, &name)
    };
    let mut found: Vec<Value> = all.iter().flat_map(of).collect();
    found.sort_by_key(|finding| finding.get("level").is_none_or(|level| level != "problem"));
    found
}

fn health_of(database: &Database, name: &str) -> Vec<Value> {
    let shared = database.family.shared();
    let mut found = Vec::new();
    let mut add = |level: &str, text: String, next: &str| {
        found.push(json!({ "level": level, "text": format!("{name}{text}"), "next_step": next }));
    };
    if shared.switches.is_draining() {
        add(
            "problem",
            "Freshet is about to end: it accepts no new sessions.".to_owned(),
            "Start it again, if that is not meant.",
        );
    }
    let different = shared.verifier.different.load(Relaxed);
    if different > 0 {
        let text = format!(
            "{different} sampled hits differed from the database's answer. Their statements are no longer cached."
        );
        add("problem", text, "The log names the statements. Please report them.");
    }
    if let Some(why) = shared.trouble().filter(|_| database.has_stream()) {
        let next = next_step(&why);
        add("problem", format!("Nothing is served from the cache: {why}. All statements go to the database."), next);
    }
    if shared.switches.is_retired() {
        let text = "A new process was asked to take over. Nothing is served from the cache here any more.".to_owned();
        add("warning", text, "If the log says that it has failed, restart Freshet.");
    } else if shared.switches.bypass() {
        let text = "The cache is switched off. All statements go to the database.".to_owned();
        add("warning", text, "`freshet bypass off` switches it on again.");
    }
    if shared.metrics.hits() == 0 && shared.metrics.fills() == 0 && shared.metrics.passed() > 100 {
        let text = "No statement is cacheable so far.".to_owned();
        add("warning", text, "\"Not cached\" below has the reasons, and what to do about each.");
    }
    found
}

fn next_step(why: &str) -> &'static str {
    match why {
        "the change stream is being set up" => {
            "This takes a few seconds after a start. If it lasts, run `freshet check`: it names what the database lacks."
        }
        WAITING => {
            "This ends with these sessions, or after --upgrade-grace and --drain-timeout. Then results are cached."
        }
        "the change stream is late" => {
            "See whether the database, the network or this machine is overloaded. Caching resumes by itself."
        }
        _ => {
            "See whether the database is up and reachable. `freshet check` names what it lacks, and the statements that mend it. \
             Freshet tries again by itself."
        }
    }
}
