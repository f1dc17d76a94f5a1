//! Stream after stream, for as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use crate::error::Fault;
use crate::session::Session;
use crate::{Control, FollowerConfig, Sink, setup};

/// Pause before the first try to connect again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two tries, and the pause while an administrator must change something.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Follows the upstream until [`Control::shutdown`]. After any fault it starts a new stream in a new epoch.
pub async fn follow(config: FollowerConfig, sink: Arc<dyn Sink>, control: Arc<Control>) {
    let mut pause = BACKOFF_MIN;
    let mut told = String::new();
    loop {
        let mut stood = false;
        let fault = tokio::select! {
            biased;
            () = control.stopped() => Fault::Shutdown,
            () = control.restart_requested() => Fault::Restart,
            fault = stream(&config, &sink, &control, &mut stood) => fault,
        };
        let why = fault.to_string();
        if stood || why != told {
            sink.disconnected(&why);
            if matches!(fault, Fault::Shutdown | Fault::Restart) {
                info!("{why}");
            } else {
                warn!("no change stream from {}: {why}", config.upstream);
            }
            told = why;
        }
        pause = match fault {
            Fault::Shutdown => return,
            Fault::Restart => Duration::ZERO,
            Fault::Setup(_) => BACKOFF_MAX,
            _ if stood => BACKOFF_MIN,
            _ => (pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX),
        };
        tokio::select! {
            () = control.stopped() => {}
            () = control.restart_requested() => {}
            () = sleep(pause) => {}
        }
    }
}

/// One stream. `stood` tells whether the sink was told that it stands.
async fn stream(config: &FollowerConfig, sink: &Arc<dyn Sink>, control: &Control, stood: &mut bool) -> Fault {
    let started = match setup::start(config).await {
        Ok(started) => started,
        Err(fault) => return fault,
    };
    let identity = &started.identity;
    let epoch = sink.connected(identity);
    *stood = true;
    info!(
        "change stream {} from {}, PostgreSQL {}, system {}, timeline {}, at {}",
        epoch.0, config.upstream, identity.server_version_num, identity.system_id, identity.timeline, started.start
    );
    Session::new(started.client, sink.clone(), started.start, config.silence_max).run(control).await
}
