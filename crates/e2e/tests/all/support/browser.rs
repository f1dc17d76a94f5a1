//! A real Chromium, driven by its chromedriver (W3C WebDriver: JSON over HTTP).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use freshet_testbed::find_program;
use serde_json::{Value, json};

/// Time limit of a cold start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The driver. It is ended, with its browsers, when this is dropped.
pub(crate) struct Driver {
    child: Child,
    address: SocketAddr,
}

/// A window.
pub(crate) struct Window<'a> {
    driver: &'a Driver,
    session: String,
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Driver {
    /// None on a machine without Chromium.
    pub(crate) fn start() -> Result<Option<Self>> {
        let Some(program) = find_program("chromedriver") else { return Ok(None) };
        let mut command = Command::new(program);
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut driver = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                driver.address.set_port(port.trim_end_matches('.').parse()?);
                return Ok(Some(driver));
            }
        }
        anyhow::bail!("chromedriver does not say its port")
    }

    /// A window of this size. A narrow one stands for a phone.
    pub(crate) fn open(&self, (width, height): (u32, u32), dark: bool) -> Result<Window<'_>> {
        let mut args = vec!["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let size = format!("--window-size={width},{height}");
        args.push(&size);
        if dark {
            args.push("--blink-settings=preferredColorScheme=0");
        }
        let mut options = json!({ "args": args });
        if width < 500 {
            let metrics = json!({ "width": width, "height": height, "pixelRatio": 2.0 });
            options["mobileEmulation"] = json!({ "deviceMetrics": metrics });
        }
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let made = self.call("POST", "/session", Some(&json!({ "capabilities": { "alwaysMatch": wanted } })))?;
        let id = made["sessionId"].as_str().with_context(|| made.to_string())?;
        Ok(Window { driver: self, session: format!("/session/{id}") })
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!("Host: {}\r\nConnection: close\r\nContent-Length: {}\r\n", self.address, body.len());
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}Content-Type: application/json\r\n\r\n{body}")?;
        let mut reader = BufReader::new(stream);
        let (mut length, mut line) = (0, String::new());
        while line != "\r\n" {
            line.clear();
            ensure!(reader.read_line(&mut line)? > 0, "no answer to {method} {path}");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text)?;
        let mut answer: Value = serde_json::from_slice(&text)?;
        let value = answer["value"].take();
        ensure!(value["error"].is_null(), "{method} {path} {body}: {} {}", value["error"], value["message"]);
        Ok(value)
    }
}

impl Window<'_> {
    pub(crate) fn visit(&self, url: &str) -> Result<()> {
        self.driver.call("POST", &format!("{}/url", self.session), Some(&json!({ "url": url })))?;
        Ok(())
    }

    /// The result of the script.
    pub(crate) fn run(&self, script: &str) -> Result<Value> {
        let body = json!({ "script": script, "args": [] });
        self.driver.call("POST", &format!("{}/execute/sync", self.session), Some(&body))
    }

    /// Clicks on, or types into, the first element that matches the selector.
    pub(crate) fn click(&self, selector: &str) -> Result<()> {
        let element = self.find(selector)?;
        self.driver.call("POST", &format!("{}/element/{element}/click", self.session), Some(&json!({})))?;
        Ok(())
    }

    pub(crate) fn fill_in(&self, selector: &str, text: &str) -> Result<()> {
        let at = format!("{}/element/{}", self.session, self.find(selector)?);
        self.driver.call("POST", &format!("{at}/clear"), Some(&json!({})))?;
        self.driver.call("POST", &format!("{at}/value"), Some(&json!({ "text": text })))?;
        Ok(())
    }

    fn find(&self, selector: &str) -> Result<String> {
        let body = json!({ "using": "css selector", "value": selector });
        let found = self.driver.call("POST", &format!("{}/element", self.session), Some(&body))?;
        let id = found.as_object().and_then(|ids| ids.values().next()).and_then(Value::as_str);
        Ok(id.with_context(|| format!("{selector}: {found}"))?.to_owned())
    }

    /// The browser's log since the last call.
    pub(crate) fn complaints(&self) -> Result<Vec<String>> {
        let log = self.driver.call("POST", &format!("{}/se/log", self.session), Some(&json!({ "type": "browser" })))?;
        let lines = log.as_array().into_iter().flatten();
        Ok(lines.map(|line| line["message"].to_string()).collect())
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        let _ = self.driver.call("DELETE", &self.session, None);
    }
}
