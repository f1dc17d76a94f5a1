//! Reads `/api/status`.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::endpoint::Endpoint;

/// Reads the figures of one database, or of all.
pub(super) async fn read(endpoint: &Endpoint, database: Option<&str>) -> Result<Value> {
    let path = database.map_or("/api/status".to_owned(), |name| format!("/api/status?database={}", encoded(name)));
    let (status, body) = endpoint.get(&path).await?;
    match status {
        200 => {}
        401 => bail!("it asks for a token (--token-file)"),
        _ => bail!("it answers {status} to {path}"),
    }
    let status: Value = serde_json::from_str(&body).context("the answer is not Freshet's")?;
    ensure!(status.get("now").is_some(), "the answer is not Freshet's");
    Ok(status)
}

/// Percent-encoded, byte by byte.
fn encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02X}");
        out
    })
}
