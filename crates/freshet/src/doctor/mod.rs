//! `freshet doctor`: one text with all that a report of trouble needs, and without secrets.
//!
//! It runs beside the server, with the same configuration file. Each part that cannot be had is replaced by the reason, so
//! that the report is made in any state of the installation.

mod log;
mod machine;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::config::{self, Resolved, Source};
use crate::{exit, version};

/// Options of `freshet doctor`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// The configuration file of the server
    #[arg(long, value_name = "FILE", env = "FRESHET_CONFIG")]
    config: Option<PathBuf>,
    /// The unit of systemd whose log is shown
    #[arg(long, value_name = "NAME", default_value = "freshet")]
    unit: String,
    /// Show the end of this file instead of systemd's log
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Number of lines of the log
    #[arg(long, value_name = "N", default_value = "50")]
    lines: usize,
}

/// What /api/status tells beside texts of statements and clients.
const SHOWN: [&str; 7] = ["version", "upstream", "uptime_seconds", "health", "bypass", "totals", "streams"];

/// Prints the report.
pub(crate) async fn run(args: DoctorArgs) -> Result<()> {
    let mut report = "Freshet's report. It holds no passwords; read it before you pass it on.\n".to_owned();
    part(&mut report, "version", &format!("freshet {}", version::long()));
    part(&mut report, "machine", &machine::machine());
    part(&mut report, "limits", &machine::limits());
    let mut arguments: Vec<OsString> = vec!["freshet".into(), "serve".into()];
    if let Some(path) = &args.config {
        arguments.extend(["--config".into(), path.into()]);
    }
    let resolved = config::read(&arguments);
    part(&mut report, "configuration", &configuration(&args, &resolved));
    part(&mut report, "status", &status(resolved.ok().as_ref()).await);
    part(&mut report, "log", &log::tail(&args));
    print!("{report}");
    Ok(())
}

fn part(report: &mut String, title: &str, text: &str) {
    let _ = writeln!(report, "\n== {title}\n{}", text.trim_end());
}

/// The settings that do not have their defaults, or what is wrong with the file.
fn configuration(args: &DoctorArgs, resolved: &Result<Resolved, Vec<config::Fault>>) -> String {
    let path = args.config.as_ref().map_or("no file (--config)".to_owned(), |path| path.display().to_string());
    let config = match resolved {
        Ok(config) => config,
        Err(faults) => {
            let faults = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            return format!("{path}, read as {}: cannot be used\n{faults}", exit::user());
        }
    };
    let mut text = format!("{path}, read as {}; what is not here has its default\n", exit::user());
    let of_database =
        |database: &config::DatabaseConfig| (format!("[{}] ", database.label()), database.settings.clone());
    let tables = config.databases.iter().filter(|database| database.name.is_some()).map(of_database);
    for (prefix, settings) in std::iter::once((String::new(), config.settings.clone())).chain(tables) {
        for setting in settings.iter().filter(|setting| setting.source != Source::Default) {
            let _ = writeln!(text, "{prefix}{} = {} ({})", setting.key, setting.shown(), setting.source.label());
        }
    }
    let _ = write!(text, "rules: {}", config.rules.len());
    text
}

/// The answers of the running Freshet.
async fn status(config: Option<&Resolved>) -> String {
    let Some(config) = config else { return "unknown, since the configuration cannot be used".to_owned() };
    let endpoint = match config.args.web.local_endpoint() {
        Ok(Some(endpoint)) => endpoint,
        Ok(None) => return "unknown: the configuration has no http address to ask".to_owned(),
        Err(error) => return format!("unknown: {error:#}"),
    };
    let mut text = String::new();
    for path in ["/livez", "/readyz", "/cachez"] {
        match endpoint.get(path).await {
            Ok((status, body)) => _ = writeln!(text, "{path}: {status} {}", body.trim_end().replace('\n', "; ")),
            Err(error) => return format!("{error:#}"),
        }
    }
    let figures = endpoint.get("/api/status").await.and_then(|(status, body)| match status {
        200 => Ok(serde_json::from_str::<Value>(&body)?),
        _ => Err(anyhow!("/api/status: {status}")),
    });
    match figures {
        Ok(figures) => {
            for key in SHOWN {
                let _ = writeln!(text, "{key}: {}", figures.get(key).unwrap_or(&Value::Null));
            }
            for key in ["limit_bytes", "bytes", "overhead_bytes", "entries"] {
                let value = figures.pointer(&format!("/memory/{key}")).unwrap_or(&Value::Null);
                let _ = writeln!(text, "memory {key}: {value}");
            }
        }
        Err(error) => _ = write!(text, "{error:#}"),
    }
    text
}
