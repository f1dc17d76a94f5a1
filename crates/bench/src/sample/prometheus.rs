//! Counters in Prometheus's text format, over plain HTTP.
//!
//! It uses HTTP 1.0, so that the answer is not chunked and the server closes the connection after it. Time and length of the answer are limited,
//! since any server may be at the address.

use std::io::Read as _;

use anyhow::{Context, Result, ensure};

use super::lines::{finite, request};
use crate::result::Cache;

const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The answer to a GET of `http://host:port/path`.
pub(super) fn get(url: &str) -> Result<String> {
    let rest = url.strip_prefix("http://").with_context(|| format!("{url} is not an http:// URL"))?;
    let (place, path) =
        rest.split_once('/').map_or((rest, "metrics".to_owned()), |(place, path)| (place, path.to_owned()));
    let text = format!("GET /{path} HTTP/1.0\r\nHost: {place}\r\n\r\n");
    let mut answer = Vec::new();
    request(place, 80, text.as_bytes())?
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .with_context(|| format!("reading {url}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{url}: not an HTTP answer"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "{url} answered {status}");
    Ok(body.to_owned())
}

/// The counters of a cache. Series with the same name are added up, and missing ones are 0. A page without any of hits, fills and passed is an error,
/// and so is a figure that is not finite.
pub(super) fn parse(text: &str) -> Result<Cache> {
    let (mut cache, mut known) = (Cache::default(), false);
    for line in text.lines() {
        let Some((name, labels, value)) = series(line) else { continue };
        // BEGIN, COMMIT and writes cannot be hits, and other caches do not count them as misses.
        if labels.contains("reason=\"not_select\"") {
            continue;
        }
        if name == "freshet_stream_age_seconds" {
            // It is infinite before there is a proof, and after the proof is lost.
            cache.age = finite(value);
            continue;
        }
        let figure = match name {
            "freshet_hits_total" => &mut cache.hits,
            "freshet_fills_total" => &mut cache.fills,
            "freshet_passed_total" => &mut cache.passed,
            "freshet_evictions_total" => &mut cache.evictions,
            "freshet_invalidations_total" => &mut cache.changed,
            "freshet_entries" => &mut cache.entries,
            "freshet_bytes" => &mut cache.bytes,
            _ => continue,
        };
        *figure += finite(value).with_context(|| format!("{name} is {value}"))?;
        known |= matches!(name, "freshet_hits_total" | "freshet_fills_total" | "freshet_passed_total");
    }
    ensure!(known, "no counters of a known cache");
    Ok(cache)
}

/// Name, labels and value of `name{labels} value timestamp`. Labels and timestamp may be missing. The series used here have no brace in a label's
/// value.
pub(crate) fn series(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
    let (labels, behind) = rest.strip_prefix('{').map_or(Some(("", rest)), |labelled| labelled.split_once('}'))?;
    Some((name, labels, behind.split_whitespace().next()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn series_of_one_name_are_added_up() {
        let text = "# HELP freshet_hits hits\n# TYPE freshet_hits counter\nfreshet_hits_total{protocol=\"text\"} 3\n\
                    freshet_hits_total{protocol=\"binary\"} 4 1700000000000\nfreshet_fills_total 2\nfreshet_hits_total_other 9\n\
                    freshet_passed_total{reason=\"not_published\"} 1\n\
                    freshet_passed_total{reason=\"not_select\"} 50\nfreshet_entries 5\nfreshet_bytes 1e3\n\
                    freshet_stream_age_seconds 0.05\nfreshet_invalidations_total 3\n# EOF\n";
        let cache = Cache { hits: 7.0, fills: 2.0, passed: 1.0, changed: 3.0, ..Cache::default() };
        let cache = Cache { entries: 5.0, bytes: 1_000.0, age: Some(0.05), ..cache };
        assert_eq!(parse(text).unwrap(), cache);
        let without = parse("freshet_hits_total 1\nfreshet_stream_age_seconds +Inf\n").unwrap();
        assert_eq!((without.hits, without.age), (1.0, None));
        let zero = parse("freshet_hits_total 0 1700000000000\n").unwrap();
        assert_eq!(zero, Cache::default());
    }

    #[test]
    fn what_says_nothing_of_a_cache_is_an_error() {
        let error = |text| parse(text).unwrap_err().to_string();
        for text in ["", "no metrics at all", "up 1\nother_hits_total 4\n", "freshet_entries 5\n"] {
            assert_eq!(error(text), "no counters of a known cache", "{text:?}");
        }
        assert_eq!(error("freshet_fills_total 1\nfreshet_hits_total NaN\n"), "freshet_hits_total is NaN");
        assert_eq!(error("freshet_hits_total +Inf 5\n"), "freshet_hits_total is +Inf");
    }

    fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            // The whole request is read, since closing earlier would reset the connection.
            let mut rest = [0; 1024];
            let _ = stream.read(&mut rest);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        format!("http://{address}/metrics")
    }

    #[test]
    fn an_answer_is_its_body() {
        assert_eq!(
            get(&answering("HTTP/1.0 200 OK\r\nA: b\r\n\r\nfreshet_entries 5\n")).unwrap(),
            "freshet_entries 5\n"
        );
    }

    #[test]
    fn what_is_no_good_answer_is_an_error() {
        for answer in ["HTTP/1.1 503 Not now\r\n\r\nno", "SSH-2.0-OpenSSH\r\n", ""] {
            assert!(get(&answering(answer)).is_err(), "{answer:?}");
        }
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(get(&format!("http://{nobody}/metrics")).is_err());
        assert!(get("https://127.0.0.1/metrics").is_err());
    }
}
