//! Freshet as a service: what a service manager is told, the exit codes by which it decides, the probes and the report.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};

use super::configuration::{File, run};
use crate::support::{Freshet, LISTEN, PATIENCE, eventually, program};

/// Nobody listens there; Freshet serves all the same.
const UPSTREAM: &str = "postgres://u:geheim@127.0.0.1:1/d";

/// A directory of this test, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("freshet-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing else needs it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn here() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// Reads messages until one begins with this.
pub(super) fn until_told(manager: &UnixDatagram, beginning: &str) -> Result<String> {
    let mut message = [0; 1024];
    for _ in 0..1000 {
        let length = manager.recv(&mut message).with_context(|| format!("no {beginning}"))?;
        let text = String::from_utf8_lossy(message.get(..length).unwrap_or_default()).into_owned();
        if text.starts_with(beginning) {
            return Ok(text);
        }
    }
    bail!("no {beginning} in 1000 messages")
}

#[test]
fn a_service_manager_is_told() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let directory = Directory::new("notify")?;
    let socket = directory.0.join("notify");
    let manager = UnixDatagram::bind(&socket)?;
    manager.set_read_timeout(Some(PATIENCE))?;
    let mut command = Command::new(&program);
    command.args(["serve", "--upstream", UPSTREAM, "--drain-timeout", "7s"]).args(LISTEN);
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "300000");
    let mut freshet = Freshet::spawn(here(), Some(command))?;
    ensure!(until_told(&manager, "READY=1")?.contains("STATUS=serving"), "no status");
    for _ in 0..3 {
        until_told(&manager, "WATCHDOG=1")?;
    }
    let pid = freshet.pid().context("no process")?.to_string();
    let kill = |signal: &str| Command::new("kill").args([signal, &pid]).status();
    kill("-HUP")?;
    let told = until_told(&manager, "RELOADING=1")?;
    let at: u64 = told.split_once("MONOTONIC_USEC=").context("no time")?.1.trim().parse()?;
    let uptime = fs::read_to_string("/proc/uptime")?;
    let now: f64 = uptime.split(' ').next().context("no time")?.parse()?;
    ensure!((now - at as f64 / 1e6).abs() < 300.0, "{at} microseconds are not the time since the boot, {now} s");
    until_told(&manager, "READY=1")?;
    kill("-TERM")?;
    let told = until_told(&manager, "STOPPING=1")?;
    ensure!(told.contains("EXTEND_TIMEOUT_USEC=22000000"), "the drain's time is not in {told}");
    let status = eventually(PATIENCE, || freshet.ended()?.context("it still runs"))?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

#[test]
fn a_failed_start_says_what_to_do() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let in_use = taken.local_addr()?.to_string();
    let missing = File::new("users.toml", &format!("upstream = \"{UPSTREAM}\"\nusers = \"/nowhere/users\"\n"))?;
    for (arguments, code, says) in [
        (&["--listen", in_use.as_str()][..], 69, "end what listens there"),
        (&["--listen", "127.0.0.1:0", "--http", in_use.as_str()], 69, "end what listens there"),
        (&["--listen", "192.0.2.1:6432"], 78, "this machine has no such address"),
        (&["--listen", "127.0.0.1:0", "--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"], 78, "/nowhere/"),
        (&["--config", missing.path()], 78, "/nowhere/users"),
        (&["--config", "/nowhere/freshet.toml"], 78, "/nowhere/freshet.toml: cannot be read"),
        (&["--no-such-option"], 2, "--no-such-option"),
    ] {
        let (status, _, said) = run(&program, &[&["serve", "--upstream", UPSTREAM], arguments].concat())?;
        ensure!(status == Some(code) && said.contains(says), "{arguments:?}: {status:?} {said}");
        let last: Vec<&str> = said.lines().filter(|line| line.contains(says)).collect();
        ensure!(last.len() == 1 && !said.contains("geheim"), "{said}");
        let system = said.matches("(os error").count();
        ensure!(system <= 1, "the cause is said {system} times: {said}");
    }
    let few = format!("ulimit -n 12; exec {} serve --upstream {UPSTREAM} --listen 127.0.0.1:0", program.display());
    let Output { status, stderr, .. } = Command::new("sh").args(["-c", &few]).output()?;
    let said = String::from_utf8_lossy(&stderr);
    ensure!(status.code() == Some(71) && said.contains("raise the limit of open files"), "{status} {said}");
    Ok(())
}

/// What belongs to root, and a program that runs as nobody. Without root there is no other user to be.
#[test]
fn another_user_is_told_what_to_make_readable() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let directory = Directory::new("other-user")?;
    if fs::metadata(&directory.0)?.uid() != 0 {
        return Ok(());
    }
    let (copy, closed) = (directory.0.join("freshet"), directory.0.join("closed"));
    // The directory of the tested one may be closed to others.
    fs::copy(&program, &copy)?;
    fs::create_dir(&closed)?;
    let file = |name: &str, mode: u32, text: &str| -> Result<String> {
        let path = directory.0.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path.display().to_string())
    };
    let certificate = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let cert = file("cert.pem", 0o644, &certificate.cert.pem())?;
    let key = file("key.pem", 0o600, &certificate.signing_key.serialize_pem())?;
    let config = file("freshet.toml", 0o600, "")?;
    let closed = closed.display().to_string();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755))?;
    let any = ["--listen", "127.0.0.1:0"];
    for (arguments, code, says) in [
        (&["--tls-cert", cert.as_str(), "--tls-key", &key][..], 78, "make it readable for the user"),
        (&["--config", &config], 78, "make it readable for the user"),
        (&["--upstream-password-file", &config], 78, "make it readable for the user"),
        (&["--listen", &closed], 77, "make the directory writable for the user"),
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command.args(["serve", "--upstream", UPSTREAM]).args(any).args(arguments);
        let Output { status, stderr, .. } = command.output()?;
        let said = String::from_utf8_lossy(&stderr);
        ensure!(status.code() == Some(code) && said.contains(says), "{arguments:?}: {status} {said}");
        ensure!(said.contains("(65534)") && said.lines().filter(|line| line.contains("65534")).count() == 1, "{said}");
    }
    Ok(())
}

#[test]
fn a_report_and_probes_of_a_running_one() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let token = File::new("doctor-token", "0123456789abcdef0123456789abcdef\n")?;
    let config = File::new("doctor.toml", "")?;
    let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    config.write(&format!(
        "upstream = \"{UPSTREAM}\"\nlisten = \"127.0.0.1:0\"\nhttp = \"{http}\"\nhttp_token_file = \"{}\"\n\
         login_failures_max = 7\n",
        token.path()
    ))?;
    let mut command = Command::new(&program);
    command.args(["serve", "--config", config.path()]);
    let freshet = Freshet::spawn(here(), Some(command))?;
    let log = File::new("doctor.log", "first line\nlast line\n")?;
    let doctor = ["doctor", "--config", config.path(), "--log-file", log.path(), "--lines", "1"];
    let (status, report, said) = run(&program, &doctor)?;
    ensure!(status == Some(0) && said.is_empty(), "{status:?} {said}");
    for part in [
        "== version\nfreshet ",
        "\nfeatures: ",
        "\ncores: ",
        "Max open files ",
        "\nlogin_failures_max = 7 (file)\n",
        "\n/readyz: 200 ready\n",
        "\n/cachez: 503 not caching: ",
        "\ntotals: {",
        "== log\nlast line",
    ] {
        ensure!(report.contains(part), "no {part:?} in\n{report}");
    }
    ensure!(report.contains(&format!("process {}:", freshet.pid().context("no process")?)), "{report}");
    for secret in ["geheim", "0123456789abcdef", "first line"] {
        ensure!(!report.contains(secret), "{secret:?} is in\n{report}");
    }
    let probe = |name: &str| run(&program, &["probe", name, "--http", &http]);
    ensure!(probe("live")?.0 == Some(0), "{:?}", probe("live")?);
    ensure!(probe("ready")? == (Some(0), "ready\n".to_owned(), String::new()), "{:?}", probe("ready")?);
    let (status, said, _) = probe("cache")?;
    ensure!(status == Some(1) && said.starts_with("not caching"), "{status:?} {said}");
    drop(freshet);
    ensure!(probe("live")?.0 == Some(1), "nobody answers");
    // The report is made without a server and with a broken file as well.
    config.write("memory = \"much\"\nupstream = \"postgres://u:geheim@h/\"\n")?;
    let (status, report, _) = run(&program, &doctor)?;
    ensure!(status == Some(0) && report.contains(":1:10: memory: ") && !report.contains("geheim"), "{report}");
    Ok(())
}

#[test]
fn pages_and_version_are_those_of_the_command_line() -> Result<()> {
    let Some(program) = program()? else { return Ok(()) };
    let directory = Directory::new("pages")?;
    let path = directory.0.to_str().context("a path")?;
    let (status, _, said) = run(&program, &["pages", path])?;
    ensure!(status == Some(0), "{said}");
    let read = |name: &str| fs::read_to_string(directory.0.join(name)).with_context(|| name.to_owned());
    ensure!(read("freshet-serve.1")?.contains("\\-\\-max\\-staleness"), "an option is missing");
    ensure!(read("freshet.1")?.contains("freshet\\-doctor(1)"), "a command is missing");
    for name in ["freshet.bash", "_freshet", "freshet.fish"] {
        ensure!(read(name)?.contains("max-staleness"), "{name} lacks an option");
    }
    let bench = program.with_file_name("freshet-bench");
    let (status, _, said) = run(&bench, &["pages", path])?;
    ensure!(status == Some(0), "{said}");
    ensure!(read("freshet-bench-run.1")?.contains("\\-\\-target"), "an option is missing");
    ensure!(read("freshet-bench.1")?.contains("freshet\\-bench\\-demo(1)"), "a command is missing");
    let (_, version, _) = run(&program, &["--version"])?;
    for part in ["freshet ", "\ncommit: ", "\nbuilt for: ", "\nfeatures: "] {
        ensure!(version.contains(part), "no {part:?} in {version}");
    }
    Ok(())
}

/// The unit names the codes that no new start can mend, and the options that exist.
#[test]
fn the_unit_fits_the_program() -> Result<()> {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/freshet.service");
    let unit = fs::read_to_string(unit)?;
    let value = |key: &str| unit.lines().rev().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    ensure!(value("Type") == Some("notify-reload"), "the type");
    ensure!(value("RestartPreventExitStatus") == Some("2 CONFIG NOPERM"), "the codes");
    // After an upgrade the old process, too, may say which one is the service.
    ensure!(value("WatchdogSec").is_some() && value("NotifyAccess") == Some("all"), "the watchdog");
    ensure!(value("ExecReload") == Some("/bin/sh -c 'kill -HUP $MAINPID'"), "a program that not every system has");
    let Some(program) = program()? else { return Ok(()) };
    let command = value("ExecStart").context("no ExecStart")?;
    let mut words = command.split(' ');
    ensure!(words.next() == Some("/usr/bin/freshet"), "{command}");
    let config = File::new("unit.toml", &run(&program, &["config", "default"])?.1)?;
    let words = words.map(|word| if word == "/etc/freshet/freshet.toml" { config.path() } else { word });
    let (status, _, said) = run(&program, &words.chain(["--check-config"]).collect::<Vec<_>>())?;
    ensure!(status == Some(0), "{said}");
    Ok(())
}
