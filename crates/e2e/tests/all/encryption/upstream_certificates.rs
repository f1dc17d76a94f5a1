//! The certificates of the upstream that are accepted in each mode: libpq's answers are the reference.

use std::path::Path;

use anyhow::{Result, ensure};
use freshet_testbed::{Settings, Tls};

use super::programs::psql_output;
use super::to_upstream::{attempt, is_absent, url};
use super::workshop::{Workshop, text};
use crate::support::{Database, Version};

const MODES: [&str; 3] = ["require", "verify-ca", "verify-full"];

/// A server's certificate, and the file that should make it trusted.
struct Case<'a> {
    name: &'a str,
    tls: &'a Tls,
    root: Option<&'a Path>,
    /// With require, verify-ca and verify-full.
    good: [bool; 3],
}

#[test]
fn every_kind_in_every_mode() -> Result<()> {
    if is_absent() {
        return Ok(());
    }
    let shop = Workshop::open()?;
    let (authority, strangers) = (shop.authority("ca")?, shop.authority("strangers")?);
    let good = shop.leaf("good", &["localhost"], &authority)?;
    let wrong = shop.leaf("wrong", &["db.example"], &authority)?;
    let common_name = shop.common_name_only("common", "localhost", &authority)?;
    let expired = shop.expired("expired", &["localhost"], &authority)?;
    let (quick, quick_wrong) = (shop.quick("quick", "localhost")?, shop.quick("quick_wrong", "db.example")?);
    let (manual, manual_root) = shop.manual("manual", "localhost")?;
    let (ca, other) = (Some(authority.cert.as_path()), Some(strangers.cert.as_path()));
    let case = |name, tls, root, good| Case { name, tls, root, good };
    let cases = [
        case("unverified", &expired, None, [true, false, false]),
        case("good", &good, ca, [true, true, true]),
        case("of another authority", &good, other, [false, false, false]),
        case("wrong name", &wrong, ca, [true, true, false]),
        case("common name only", &common_name, ca, [true, true, true]),
        case("expired", &expired, ca, [false, false, false]),
        case("the manual's quick one", &quick, Some(&quick.cert), [true, true, true]),
        case("the manual's quick one, wrong name", &quick_wrong, Some(&quick_wrong.cert), [true, true, false]),
        case("self-signed, another one trusted", &quick, Some(&quick_wrong.cert), [false, false, false]),
        case("by the manual's authority", &manual, Some(&manual_root), [true, true, true]),
        case("by the manual's authority, another trusted", &manual, ca, [false, false, false]),
    ];
    let database = Database::create(Version::V15.start(&Settings::default().with_tls(good.clone()))?)?;
    for case in &cases {
        database.server.replace_tls(case.tls)?;
        for (mode, good) in MODES.iter().zip(case.good) {
            let root = case.root.map_or_else(String::new, |root| format!("&sslrootcert={}", text(root)));
            let url = url(&database, database.address(), "postgres", &format!("sslmode={mode}{root}"));
            let libpq = psql_output(&url, "select 1")?;
            let what = format!("{}, {mode}: {}", case.name, String::from_utf8_lossy(&libpq.stderr));
            ensure!(libpq.status.success() == good, "libpq: {what}");
            let outcome = attempt(database.address(), &url, database.login(), &[])?;
            ensure!(outcome.is_ok() == good, "{what}: {outcome:?}");
            ensure!(outcome.is_err() || outcome.as_deref() == Ok("t"), "{what}: not encrypted");
        }
    }
    Ok(())
}
