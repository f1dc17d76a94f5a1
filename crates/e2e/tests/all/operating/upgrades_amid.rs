//! SIGUSR2 amid other things: a new process that dies, a rule that is made meanwhile, connections to the web endpoints.

use std::fs::{self, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::configuration::File;
use super::service::until_told;
use super::upgrades::{Installed, Successor, fails, handed_over, old_ends_well, signal};
use super::{SCHEMA, ends_by_command, rows};
use crate::support::{Database, Freshet, Login, PATIENCE, RawClient, Version, eventually, get};

/// `open` does not wait for the other end of a named pipe.
const NONBLOCK: i32 = 0o4000;
const TOKEN: &str = "a token of some length";

/// A Freshet of this program over a database, and the service manager that it tells.
struct Service {
    freshet: Freshet,
    manager: UnixDatagram,
    database: Database,
}

impl Service {
    fn start(installed: &Installed, more: &[&str]) -> Result<Self> {
        let database = Database::shared(Version::V18)?;
        database.run(SCHEMA)?;
        let notify = installed.path.join("notify");
        let manager = UnixDatagram::bind(&notify)?;
        manager.set_read_timeout(Some(PATIENCE))?;
        let mut command = Command::new(installed.program());
        command.args(["serve", "--upstream", &database.url(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.args(["--upgrade-grace", "3600s"]).args(more);
        // Few messages: more than some are lost while nobody reads them.
        command.env("NOTIFY_SOCKET", &notify).env("WATCHDOG_USEC", "3000000");
        let freshet = Freshet::spawn(database.address(), Some(command))?;
        freshet.wait_ready()?;
        until_told(&manager, "READY=1")?;
        Ok(Self { freshet, manager, database })
    }

    fn login(&self) -> Result<RawClient> {
        RawClient::login(self.freshet.address, self.database.login())
    }

    fn pid(&self) -> Result<u32> {
        self.freshet.pid().context("no process")
    }

    fn is_bypassed(&self) -> Result<bool> {
        Ok(self.freshet.metrics()?.value("freshet_bypass") > 0.5)
    }
}

#[test]
fn one_that_dies_before_it_has_taken_over_is_no_service() -> Result<()> {
    let Some(installed) = Installed::new("dies-before")? else { return Ok(()) };
    let mut service = Service::start(&installed, &[])?;
    let mut client = service.login()?;
    let ends = "printf 'ready\\n' >&0; while read -r line; do [ \"$line\" != go ] || exit 5; done";
    installed.install_script(ends)?;
    fails(&service.freshet, &mut client, "it has ended with exit status: 5")?;
    ensure!(handed_over(&service.freshet).is_empty(), "something was handed over");
    ensure!(!service.is_bypassed()?, "the cache is off");
    client.run("create cache film1 ttl '1h' from select title as of1 from film")?;
    // One that might have accepted connections.
    installed.install_script("printf 'ready\\n' >&0; read -r line; printf 'hello\\n' >&0; exec cat >/dev/null")?;
    let why = "its cache stays off until it is restarted: it does not know how to take over";
    fails(&service.freshet, &mut client, why)?;
    ensure!(service.is_bypassed()?, "the cache is on");
    // Nor does a further attempt or a statement switch it on.
    installed.install_script(ends)?;
    fails(&service.freshet, &mut client, "its cache stays off until it is restarted: it has ended")?;
    ensure!(service.is_bypassed()?, "the cache is on after another attempt");
    ensure!(rows(&client.query("freshet bypass off")?) == [["bypass", "on"]], "it is switched off");
    let shown = rows(&client.query("show config")?);
    let of_bypass = shown.iter().find(|row| row[0] == "bypass").context("no bypass")?;
    ensure!(of_bypass[1] == "false" && of_bypass[4] != "run time", "nobody has set it: {of_bypass:?}");
    let mut console =
        RawClient::login(service.freshet.address, Login { database: "pgbouncer", ..service.database.login() })?;
    let answer = console.query("set bypass = off")?;
    let error = answer.iter().find(|message| message.tag == b'E').and_then(|message| message.field(b'M'));
    ensure!(error.is_some_and(|text| text.contains("bypass stays on")), "{answer:?}");
    drop(console);
    let (_, status) = get(service.freshet.http, "/api/status")?;
    ensure!(status.contains("restart Freshet") && !status.contains("freshet bypass off"), "{status}");
    let answer = client.query("drop cache film1")?;
    let error = answer.iter().find(|message| message.tag == b'E').and_then(|message| message.field(b'M'));
    ensure!(error.is_some_and(|text| text.contains("has not yet done so")), "{answer:?}");
    // The service manager hears of this process, and of no other.
    for _ in 0..2 {
        ensure!(until_told(&service.manager, "")? == "WATCHDOG=1", "something else is told");
    }
    installed.install_program()?;
    let successor = Successor::of(&service.freshet, service.pid()?)?;
    ensure!(until_told(&service.manager, "MAINPID=")? == format!("MAINPID={}", successor.0), "another process");
    drop(client);
    old_ends_well(&mut service.freshet)?;
    service.freshet.wait_ready()?;
    successor.end()
}

#[test]
fn an_end_amid_a_handover_is_that_of_the_new_process_too() -> Result<()> {
    let Some(installed) = Installed::new("end-amid-handover")? else { return Ok(()) };
    let mut service = Service::start(&installed, &["--drain-timeout", "3600s"])?;
    let mut client = service.login()?;
    client.run("begin")?;
    let file = installed.path.join("process");
    let at = file.display();
    installed.install_script(&format!(
        "printf 'ready\\n' >&0; read -r line; echo $$ >'{at}.new'; mv '{at}.new' '{at}'; exec tail -f /dev/null"
    ))?;
    signal(service.pid()?, "USR2")?;
    let process = eventually(PATIENCE, || Ok(fs::read_to_string(&file)?))?;
    let successor = Successor(process.trim().parse()?);
    signal(service.pid()?, "TERM")?;
    eventually(PATIENCE, || {
        ensure!(successor.has_ended(), "the new process goes on");
        Ok(())
    })?;
    eventually(PATIENCE, || {
        let log = service.freshet.log();
        ensure!(log.contains("sessions end as soon as"), "no drain:\n{log}");
        Ok(())
    })?;
    ensure!(service.freshet.is_alive(), "the drain has ended");
    client.run("commit")?;
    old_ends_well(&mut service.freshet)
}

#[test]
fn one_that_dies_after_it_has_taken_over_is_replaced_by_the_service_manager() -> Result<()> {
    let Some(installed) = Installed::new("dies-after")? else { return Ok(()) };
    let mut service = Service::start(&installed, &[])?;
    let mut client = service.login()?;
    let successor = Successor::of(&service.freshet, service.pid()?)?;
    until_told(&service.manager, "MAINPID=")?;
    signal(successor.0, "KILL")?;
    let old = service.pid()?;
    ensure!(until_told(&service.manager, "MAINPID=")? == format!("MAINPID={old}"), "it is not the service again");
    until_told(&service.manager, "STOPPING=1")?;
    ends_by_command(&mut client)?;
    let status = eventually(PATIENCE, || service.freshet.ended()?.context("the old process still runs"))?;
    // The unit's Restart=on-failure and RestartPreventExitStatus= let it start again.
    ensure!(status.code() == Some(70), "{status}");
    let said = "freshet: the process that had taken over has ended with signal: 9";
    ensure!(service.freshet.log().contains(said), "{}", service.freshet.log());
    Ok(())
}

#[test]
fn a_rule_made_while_it_is_prepared_reaches_the_new_process() -> Result<()> {
    let Some(installed) = Installed::new("rule-amid-upgrade")? else { return Ok(()) };
    let database = Database::shared(Version::V18)?;
    database.run(SCHEMA)?;
    let (state, pipe) = (installed.path.join("state.toml"), installed.path.join("pipe"));
    let settings = format!(
        "upstream = \"{}\"\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\nstate_file = \"{}\"\nupgrade_grace = \"3600s\"\n",
        database.url(),
        state.display()
    );
    let config = File::new("rule-amid-upgrade.toml", &settings)?;
    let mut command = Command::new(installed.program());
    command.args(["serve", "--config", config.path()]);
    let mut freshet = Freshet::spawn(database.address(), Some(command))?;
    freshet.wait_ready()?;
    let mut admin = RawClient::login(freshet.address, database.login())?;
    let create = |id: u32| format!("create cache film{id} ttl '1h' from select title as of{id} from film");
    admin.run(&create(1))?;
    // The new process has read the rules when it opens the file of the token, and waits there.
    ensure!(Command::new("mkfifo").arg(&pipe).status()?.success(), "mkfifo");
    config.write(&format!("{settings}http_token_file = \"{}\"\n", pipe.display()))?;
    signal(freshet.pid().context("no process")?, "USR2")?;
    let mut token = eventually(PATIENCE, || {
        let opened = OpenOptions::new().write(true).custom_flags(NONBLOCK).open(&pipe);
        opened.with_context(|| format!("nobody reads the token in\n{}", freshet.log()))
    })?;
    admin.run(&create(2))?;
    admin.run("drop cache film1")?;
    token.write_all(TOKEN.as_bytes())?;
    drop(token);
    let file = installed.path.join("token");
    fs::write(&file, TOKEN)?;
    fs::rename(file, &pipe)?;
    let successor = eventually(PATIENCE, || {
        let process = handed_over(&freshet).first().copied();
        process.map(Successor).with_context(|| format!("no handover in\n{}", freshet.log()))
    })?;
    let mut client = RawClient::login(freshet.address, database.login())?;
    let rules = rows(&client.query("show rules")?);
    ensure!(rules.len() == 1 && rules.iter().all(|rule| rule.contains(&"film2".to_owned())), "{rules:?}");
    // In the old process no rule is made any more.
    let answer = admin.query(&create(3))?;
    ensure!(super::sqlstate(&answer).as_deref() == Some("55000"), "{answer:?}");
    drop(admin);
    old_ends_well(&mut freshet)?;
    successor.end()
}

/// A connection to the web endpoints.
struct Http {
    stream: TcpStream,
    address: SocketAddr,
}

impl Http {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, address })
    }

    fn send(&mut self, text: &str) -> Result<()> {
        Ok(self.stream.write_all(text.as_bytes())?)
    }

    fn ask(&mut self, path: &str) -> Result<()> {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }

    /// Reads up to this text.
    fn read_to(&mut self, end: &str) -> Result<String> {
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(end.as_bytes()) {
            self.stream.read_exact(&mut byte).with_context(|| format!("after {:?}", String::from_utf8_lossy(&text)))?;
            text.extend(byte);
        }
        Ok(String::from_utf8(text)?)
    }

    /// Reads up to the end of the connection.
    fn rest(&mut self) -> Result<String> {
        let mut text = String::new();
        self.stream.read_to_string(&mut text)?;
        Ok(text)
    }
}

#[test]
fn kept_connections_to_the_endpoints_end_with_the_handover() -> Result<()> {
    let Some(installed) = Installed::new("kept-http")? else { return Ok(()) };
    let mut service = Service::start(&installed, &["--drain-timeout", "3600s"])?;
    let client = service.login()?;
    let http = service.freshet.http;
    let (mut idle, mut begun, mut fresh, mut events) =
        (Http::open(http)?, Http::open(http)?, Http::open(http)?, Http::open(http)?);
    for _ in 0..2 {
        idle.ask("/readyz")?;
        ensure!(idle.read_to("\r\n\r\nready\n")?.starts_with("HTTP/1.1 200"), "not ready");
    }
    events.ask("/api/events")?;
    events.read_to("event: sample")?;
    begun.send("GET /readyz HTTP/1.1\r\n")?;
    let successor = Successor::of(&service.freshet, service.pid()?)?;
    ensure!(idle.rest()?.is_empty(), "something else was said");
    ensure!(events.rest()?.ends_with("\r\n0\r\n\r\n"), "the events do not end well");
    begun.send("Host: freshet\r\n\r\n")?;
    fresh.ask("/readyz")?;
    for connection in [&mut begun, &mut fresh] {
        let answer = connection.rest()?;
        ensure!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nready\n"), "{answer}");
    }
    ensure!(service.freshet.is_alive(), "the old process has left a session");
    ensure!(get(http, "/readyz")?.0 == 200, "the new process is not ready");
    drop(client);
    old_ends_well(&mut service.freshet)?;
    successor.end()
}
