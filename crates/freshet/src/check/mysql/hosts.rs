//! The hosts of an upstream of several, with their roles.

use std::time::Duration;

use anyhow::Result;
use freshet_net::mysql::{Client, Upstream};

use super::super::report::Report;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Names each host of several, and whether it could be the primary.
pub(super) async fn look(upstream: &Upstream, report: &mut Report) {
    if !upstream.has_several_hosts() {
        return;
    }
    let mut primaries = 0;
    for (at, address) in upstream.addresses().enumerate() {
        match is_primary(upstream, at).await {
            Ok(true) => {
                primaries += 1;
                report.ok(format!("the server {address} is a primary"));
            }
            Ok(false) => report.ok(format!("the server {address} is read-only: it is used once it is promoted")),
            Err(error) => report.warning(format!("the server {address} cannot be looked at: {error:#}"), Vec::new()),
        }
    }
    if primaries > 1 {
        let text = format!("{primaries} servers can be written: Freshet uses the first that answers, and no other");
        report.warning(text, vec!["-- at the replicas: SET GLOBAL read_only = ON, and in their option file".into()]);
    }
}

async fn is_primary(upstream: &Upstream, at: usize) -> Result<bool> {
    let mut client = Client::connect_to(upstream, at).await?;
    let is_primary = client.ask_for_primary(ANSWER_TIMEOUT).await?;
    client.close().await;
    Ok(is_primary)
}
