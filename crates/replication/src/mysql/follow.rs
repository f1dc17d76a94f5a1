//! Stream after stream, for as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use freshet_types::Epoch;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::mysql::FollowerConfig;
use crate::mysql::error::Fault;
use crate::mysql::progress::Progress;
use crate::mysql::session::Session;
use crate::mysql::setup::{self, Opened};
use crate::{Control, Identity, Sink};

/// Pause before the first try to connect again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two tries, and the pause while an administrator must change something.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Connections in a row that broke before anything passed, after which the epoch ends: with the next one it is the
/// same again, probably.
const FRUITLESS_MAX: u32 = 10;

/// Where a stream broke, and may go on.
struct Broken {
    epoch: Epoch,
    identity: Identity,
    progress: Progress,
    /// How many connections in a row have brought nothing.
    fruitless: u32,
}

/// How a connection ended.
struct Ended {
    fault: Fault,
    /// The sink was told that the stream stands.
    stood: bool,
    /// Where the epoch may go on.
    broken: Option<Broken>,
}

/// Follows the upstream until [`Control::shutdown`]. After a fault it goes on in the same epoch if only the connection was
/// lost, and in a new one otherwise.
pub async fn follow(config: FollowerConfig, sink: Arc<dyn Sink>, control: Arc<Control>) {
    let follower = Follower { config, sink, control };
    let mut pause = BACKOFF_MIN;
    let mut told = String::new();
    let mut broken = None;
    loop {
        let Ended { fault, stood, broken: rest } = follower.connection(broken, &mut told).await;
        broken = rest;
        pause = match fault {
            Fault::Shutdown => return,
            Fault::Restart => Duration::ZERO,
            Fault::Setup(_) => BACKOFF_MAX,
            _ if stood => BACKOFF_MIN,
            _ => (pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX),
        };
        tokio::select! {
            () = follower.control.stopped() => {}
            () = follower.control.restart_requested() => if broken.take().is_some() {
                follower.tell(&Fault::Restart, false, true);
            },
            () = sleep(pause) => {}
        }
    }
}

struct Follower {
    config: FollowerConfig,
    sink: Arc<dyn Sink>,
    control: Arc<Control>,
}

impl Follower {
    /// `again`: it was told before that there is no stream, for another reason.
    fn tell(&self, fault: &Fault, suspended: bool, again: bool) {
        let why = fault.to_string();
        if suspended {
            self.sink.suspended(&why);
        } else {
            self.sink.disconnected(&why);
        }
        let until = if suspended { " until it goes on" } else { "" };
        let text = format!(
            "no change stream from {}, so nothing is answered from the cache{until}: {why}",
            self.config.upstream
        );
        match fault {
            Fault::Shutdown => debug!("{why}"),
            Fault::Restart => info!("{text}"),
            // A server that restarts gives one reason after the other.
            fault if again && fault.is_passing() => info!("{text}"),
            _ => warn!("{text}"),
        }
    }

    /// One connection, from its start to its fault, which is told unless it is nothing new.
    async fn connection(&self, broken: Option<Broken>, told: &mut String) -> Ended {
        let was_suspended = broken.is_some();
        let opened = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            opened = setup::open(&self.config) => opened,
        };
        let ended = match (opened, broken) {
            (Ok(opened), Some(broken)) => self.go_on(opened, broken).await,
            (Ok(opened), None) => self.begin(opened).await,
            (Err(fault), broken) => {
                let broken = broken.filter(|_| fault.is_passing());
                Ended { fault, stood: false, broken }
            }
        };
        let why = ended.fault.to_string();
        if ended.stood || why != *told || (was_suspended && ended.broken.is_none()) {
            self.tell(&ended.fault, ended.broken.is_some(), !ended.stood && !told.is_empty());
            *told = why;
        }
        ended
    }

    /// A new epoch.
    async fn begin(&self, mut opened: Opened) -> Ended {
        let started = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            started = async {
                let waits = |why: &str| {
                    warn!("no change stream from {} yet: {why}", self.config.upstream);
                    self.sink.disconnected(why);
                };
                let progress = setup::start(&mut opened, &self.config, &waits).await?;
                let first = setup::follow_from(&mut opened, &self.config, &progress).await?;
                Ok((progress, first))
            } => started,
        };
        let (progress, first) = match started {
            Ok(started) => started,
            Err(fault) => return Ended { fault, stood: false, broken: None },
        };
        let identity = opened.identity.clone();
        let epoch = self.sink.connected(&identity);
        let (server, system) = (opened.client.server(), &identity.system_id);
        info!("change stream {} from {}, {server}, server {system}", epoch.0, self.config.upstream);
        if !progress.place.file.is_empty() {
            // All up to here is visible.
            self.sink.advance(progress.passed);
        }
        self.run(opened, &first, Broken { epoch, identity, progress, fruitless: 0 }).await
    }

    /// The epoch of a stream that broke.
    async fn go_on(&self, mut opened: Opened, broken: Broken) -> Ended {
        if opened.identity != broken.identity {
            return Ended { fault: Fault::OtherServer, stood: false, broken: None };
        }
        let first = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            first = setup::follow_from(&mut opened, &self.config, &broken.progress) => first,
        };
        let first = match first {
            Ok(first) => first,
            Err(fault) => {
                let broken = Some(broken).filter(|_| fault.is_passing());
                return Ended { fault, stood: false, broken };
            }
        };
        if !self.sink.resumed(&broken.identity, broken.epoch) {
            return Ended { fault: Fault::EpochEnded, stood: true, broken: None };
        }
        info!("change stream {} goes on", broken.epoch.0);
        self.run(opened, &first, broken).await
    }

    /// Gives what comes to the sink, until something is wrong.
    async fn run(&self, opened: Opened, first: &[u8], broken: Broken) -> Ended {
        let Broken { epoch, identity, progress, fruitless } = broken;
        let before = progress.passed;
        let mut session = Session::new(opened, &self.config, self.sink.clone(), progress);
        let fault = tokio::select! {
            biased;
            fault = self.end_requested() => fault,
            fault = session.run(first, &self.control) => fault,
        };
        let progress = session.into_progress();
        let fruitless = if progress.passed > before { 0 } else { fruitless + 1 };
        let goes_on = fault.is_passing() && fruitless <= FRUITLESS_MAX;
        let broken = goes_on.then_some(Broken { epoch, identity, progress, fruitless });
        Ended { fault, stood: true, broken }
    }

    /// Ends when somebody wants the stream to end.
    async fn end_requested(&self) -> Fault {
        tokio::select! {
            biased;
            () = self.control.stopped() => Fault::Shutdown,
            () = self.control.restart_requested() => Fault::Restart,
        }
    }
}
