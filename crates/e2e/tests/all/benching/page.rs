//! The page of `freshet-bench report` in a browser: light and dark, on a desktop and on a phone.
//!
//! A test cannot decide whether it looks good. It checks that the page is drawn (a picture of the requested size, with many colours, dark where it
//! should be), that nothing is wider than the window, that keys show values, and that the browser reports no error. A machine without Chromium's shell skips
//! it; `FRESHET_TEST_STRICT=1` makes this a failure.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::ZlibDecoder;
use freshet_bench::report::read;
use freshet_bench::result::Cell;
use freshet_testbed::find_program;

use super::{Directory, bench, bench_well};
use crate::clients::left_out;
use crate::support::{eventually, program};

/// Of a cold start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// As the browser numbers them.
const SCHEMES: [(&str, u8); 2] = [("dark", 0), ("light", 1)];
const WINDOWS: [(u32, u32); 2] = [(1280, 900), (390, 844)];

/// What a page looks at itself with, once it is there. The tables have boxes of their own.
const PROBE: &str = "<script>{
  const wide = innerWidth, said = [];
  const inside = (box) => box.closest('.wide, pre, .shapes');
  for (const box of document.querySelectorAll('body *'))
    if (!inside(box) && box.getBoundingClientRect().right > wide + 1) said.push(box.tagName + '.' + box.getAttribute('class'));
  if (document.documentElement.scrollWidth > wide) said.push('scrolls');
  const chart = document.querySelector('.chart');
  chart.focus({ preventScroll: true });
  chart.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
  const tip = document.getElementById('tip');
  document.body.dataset.probe = `wide: ${said.slice(0, 5)}; tip: ${tip.hidden ? '' : tip.textContent}; width: ${wide};`;
  chart.blur();
  document.getElementById('theme').click();
  document.body.dataset.theme = document.documentElement.dataset.theme;
  document.getElementById('theme').click();
}</script></body>";

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/benching/stored").join(name)
}

/// Two stored results.
const STORED: [&str; 2] = ["title-5.json", "changes-title-5.json"];

/// What the first chart says of its first point, by the table of the same figures.
fn first_tip() -> Result<String> {
    let tables = bench_well(&["show", "--markdown", &stored(STORED[0]).display().to_string()])?.stdout;
    let row = tables.lines().find(|line| line.contains("| direct |") && line.contains("1.00×")).context("no row")?;
    let columns: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, _, connections, _, rate, range, ..] = columns[..] else { bail!("{row}") };
    Ok(format!("direct, {connections} connections: {rate} transactions/s (rounds: {range})"))
}

/// What else there is: the cards of a workload, and a sizing.
const STORED_EXTRAS: [&str; 2] = ["card-title-5.json", "sizing-point-select.json"];

/// The page and the CSV of stored results, one with several numbers of connections, one under changes, with cards and a sizing.
fn written(directory: &Directory) -> Result<(String, String)> {
    let (page, csv) = (directory.path("page.html"), directory.path("figures.csv"));
    let files: Vec<String> =
        STORED.iter().chain(&STORED_EXTRAS).map(|name| stored(name).display().to_string()).collect();
    let options = ["--html", &page, "--csv", &csv, "--price-per-hour", "0.0832 USD", "--weight", "title-5=2"];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    bench_well(&[&["report"], &files[..], &options[..]].concat())?;
    Ok((page, csv))
}

#[test]
fn a_report_of_stored_results() -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let directory = Directory::new()?;
    let (page, csv) = written(&directory)?;
    let (text, csv) = (fs::read_to_string(&page)?, fs::read_to_string(&csv)?);
    let mut lines = 1;
    for name in STORED {
        let run = read(&stored(name))?;
        let targets = |cell: &Cell| cell.rounds.iter().map(|round| &round.target).collect::<BTreeSet<_>>().len();
        lines += run.cells.iter().map(targets).sum::<usize>();
    }
    ensure!(csv.lines().count() == lines && lines > 20, "{lines} lines? {csv}");
    ensure!(text.len() < 4_000_000, "{} bytes", text.len());
    for part in ["USD per million queries", "geometric mean", "Access paths of title-5", "Memory for point-select"] {
        ensure!(text.contains(part), "{part} is missing");
    }
    let said = bench(&["report", &page, "--html", &directory.path("other.html")])?;
    ensure!(!said.success && said.stderr.contains("page.html is not a run that can be read"), "{said:#?}");
    let said = bench(&["report", &page])?;
    ensure!(!said.success && said.stderr.contains("--html FILE or --csv FILE"), "{said:#?}");
    Ok(())
}

#[test]
fn a_report_in_a_browser() -> Result<()> {
    if program()?.is_none() {
        return Ok(());
    }
    let Some(browser) = find_program("chromium-headless-shell") else {
        return left_out("no chromium-headless-shell to open the report with");
    };
    let directory = Directory::new()?;
    let (page, _) = written(&directory)?;
    let text = fs::read_to_string(&page)?;
    let (before, after) = text.rsplit_once("</body>").context("the end of the page")?;
    let probed = directory.path("probed.html");
    fs::write(&probed, format!("{before}{PROBE}{after}"))?;
    for (scheme, number) in SCHEMES {
        for (width, height) in WINDOWS {
            let window = Window { browser: &browser, directory: &directory, number, width, height };
            let place = || format!("{scheme}, {width} × {height}");
            window.looks(&page, scheme == "dark").with_context(place)?;
            window.is_sound(&probed, scheme == "dark").with_context(place)?;
        }
    }
    Ok(())
}

struct Window<'a> {
    browser: &'a Path,
    directory: &'a Directory,
    /// The scheme's.
    number: u8,
    width: u32,
    height: u32,
}

impl Window<'_> {
    /// The picture that the browser takes.
    fn looks(&self, page: &str, dark: bool) -> Result<()> {
        let picture = self.directory.path("picture.png");
        self.open(page, &format!("--screenshot={picture}"))?;
        let picture = Picture::read(&fs::read(&picture)?)?;
        ensure!((picture.width, picture.height) == (self.width, self.height), "{} × {}", picture.width, picture.height);
        let colours: BTreeSet<&[u8]> = picture.pixels().collect();
        ensure!(colours.len() > 100, "{} colours", colours.len());
        let corner = picture.pixels().next().context("a pixel")?;
        ensure!(corner.iter().all(|part| (*part < 64) == dark), "the corner is {corner:?}");
        Ok(())
    }

    /// The page as it is once the script has run, and what the browser says of it.
    fn is_sound(&self, page: &str, dark: bool) -> Result<()> {
        let text = self.open(page, "--dump-dom")?;
        let probe = text.split("data-probe=\"").nth(1).and_then(|rest| rest.split('"').next()).context("no probe")?;
        let expected = format!("wide: ; tip: {}; width: {};", first_tip()?, self.width);
        ensure!(probe == expected, "{probe}");
        let other = if dark { "light" } else { "dark" };
        ensure!(text.contains(&format!("data-theme=\"{other}\"")), "the switch does nothing");
        Ok(())
    }

    /// Opens the page; what the browser printed. It may have no complaints.
    fn open(&self, page: &str, wanted: &str) -> Result<String> {
        let path = |name: &str| PathBuf::from(self.directory.path(name));
        let (profile, stdout, stderr) = (path("profile"), path("stdout"), path("stderr"));
        // It would remember which scheme was chosen last.
        let _ = fs::remove_dir_all(&profile);
        let mut command = Command::new(self.browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
        command.args(["--enable-logging=stderr", "--no-first-run", "--disable-extensions", wanted]);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.arg(format!("--window-size={},{}", self.width, self.height));
        command.arg(format!("--blink-settings=preferredColorScheme={}", self.number));
        command.arg(format!("file://{page}"));
        command.stdin(Stdio::null()).stdout(fs::File::create(&stdout)?).stderr(fs::File::create(&stderr)?);
        let mut child = command.spawn()?;
        let ended = eventually(PATIENCE, || child.try_wait()?.context("it goes on"));
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        let said = fs::read_to_string(&stderr)?;
        ensure!(ended?.success(), "the browser failed: {said}");
        if let Some(line) = said.lines().find(|line| line.contains("CONSOLE")) {
            bail!("the browser complains: {line}");
        }
        Ok(fs::read_to_string(&stdout)?)
    }
}

/// A PNG of 8 bits a channel, as browsers write it.
struct Picture {
    width: u32,
    height: u32,
    channels: usize,
    bytes: Vec<u8>,
}

impl Picture {
    fn read(file: &[u8]) -> Result<Self> {
        let mut rest = file.strip_prefix(b"\x89PNG\r\n\x1a\n").context("no PNG")?;
        let number = |bytes: &[u8]| -> Result<u32> { Ok(u32::from_be_bytes(bytes.try_into()?)) };
        let (mut header, mut packed) = (Vec::new(), Vec::new());
        while let Some((length, after)) = rest.split_at_checked(4) {
            let (kind, after) = after.split_at_checked(4).context("a cut chunk")?;
            let (data, after) = after.split_at_checked(number(length)? as usize).context("a cut chunk")?;
            match kind {
                b"IHDR" => header = data.to_vec(),
                b"IDAT" => packed.extend_from_slice(data),
                b"IEND" => break,
                _ => {}
            }
            // Behind each is its checksum.
            rest = after.get(4..).context("a cut chunk")?;
        }
        ensure!(header.len() == 13 && header[8] == 8, "header {header:?}");
        let channels = match header[9] {
            2 => 3,
            6 => 4,
            other => bail!("colour type {other}"),
        };
        let (width, height) = (number(&header[..4])?, number(&header[4..8])?);
        let mut lines = Vec::new();
        ZlibDecoder::new(packed.as_slice()).read_to_end(&mut lines)?;
        let bytes = unfiltered(&lines, width as usize * channels, channels);
        ensure!(bytes.len() == width as usize * channels * height as usize, "{} bytes", bytes.len());
        Ok(Self { width, height, channels, bytes })
    }

    fn pixels(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.channels).map(|pixel| &pixel[..3])
    }
}

/// Each line says in its first byte what was taken off its bytes (PNG specification, chapter 9).
fn unfiltered(lines: &[u8], length: usize, channels: usize) -> Vec<u8> {
    let mut above = vec![0; length];
    let mut all = Vec::new();
    for line in lines.chunks_exact(length + 1) {
        let mut bytes = line[1..].to_vec();
        for at in 0..length {
            let left = if at < channels { 0 } else { bytes[at - channels] };
            let corner = if at < channels { 0 } else { above[at - channels] };
            let added = match line[0] {
                1 => left,
                2 => above[at],
                3 => u8::midpoint(left, above[at]),
                4 => paeth(left, above[at], corner),
                _ => 0,
            };
            bytes[at] = bytes[at].wrapping_add(added);
        }
        all.extend_from_slice(&bytes);
        above = bytes;
    }
    all
}

/// The neighbour that is nearest to left + above − corner.
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let estimate = i16::from(left) + i16::from(above) - i16::from(corner);
    let far = |byte: &u8| (estimate - i16::from(*byte)).abs();
    [left, above, corner].into_iter().min_by_key(far).unwrap_or(left)
}
