//! `freshet top`: as plain text, and in a terminal that is driven by keys.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::SCHEMA;
use crate::cached::until_hit;
use crate::support::{PATIENCE, Pair, Version, eventually, program};

const READ: &str = "select title from film where id = 1";

/// What it prints, and how it ended.
fn once(program: &Path, http: &str) -> Result<(bool, String)> {
    let output = Command::new(program).args(["top", "--once", "--http", http]).output()?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// In a terminal of its own (`script` of bsdutils makes it).
fn in_a_terminal(program: &Path, http: &str) -> Result<()> {
    let line = format!("stty cols 120 rows 40; exec {} top --http {http}", program.display());
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]).env("TERM", "xterm-256color");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut keys, mut stdout) = (child.stdin.take().context("stdin")?, child.stdout.take().context("stdout")?);
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let written = seen.clone();
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut bytes) {
            written.lock().expect("no panic").extend_from_slice(&bytes[..count]);
        }
    });
    let shows = |what: &str| {
        eventually(PATIENCE, || {
            let text = String::from_utf8_lossy(&seen.lock().expect("no panic")).into_owned();
            ensure!(text.contains(what), "no {what:?} in {text:?}");
            Ok(())
        })
    };
    let looked = (|| {
        // The other screen, the figures, the queries and the keys.
        ["\x1b[?1049h", "Freshet", "staleness", "statement", "film", "quit"].into_iter().try_for_each(shows)?;
        keys.write_all(b"/clock")?;
        shows("▏")?;
        keys.write_all(b"\r")?;
        // What is to be done about the one that is left.
        shows("cached:")?;
        keys.write_all(b"q")?;
        shows("\x1b[?1049l")
    })();
    if looked.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    drop(keys);
    reader.join().ok();
    looked?;
    ensure!(status.success(), "{status}");
    Ok(())
}

#[test]
fn top() -> Result<()> {
    let pair = Pair::new(Version::V15, SCHEMA)?;
    let Some(program) = program()? else { return Ok(()) };
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, READ)?;
    c.query("select clock_timestamp()")?;
    let http = pair.freshet.http.to_string();
    eventually(PATIENCE, || {
        // Their latency may be milliseconds on a busy machine, but not for ever.
        (0..10).try_for_each(|_| c.query(READ).map(drop))?;
        let (well, said) = once(&program, &http)?;
        ensure!(well && said.starts_with("Freshet ") && said.contains("before"), "{said}");
        let lines = ["from the cache", "from the database", "staleness", "limit 1.00 s", "memory", "of 512 MiB"];
        ensure!(lines.iter().all(|line| said.contains(line)), "{said}");
        let film = said.lines().find(|line| line.contains("from film where id")).with_context(|| said.clone())?;
        ensure!(film.contains('%') && film.contains("µs"), "{film}");
        Ok(())
    })?;
    let (well, said) = once(&program, "127.0.0.1:1")?;
    ensure!(!well && said.contains("no Freshet answers at 127.0.0.1:1"), "{said}");
    in_a_terminal(&program, &http)
}
