//! Stream after stream, for as long as the process runs.

use std::sync::Arc;
use std::time::Duration;

use freshet_net::pg::Client;
use freshet_types::{Epoch, Lsn};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::assemble::Assembler;
use crate::error::Fault;
use crate::session::Session;
use crate::setup::Opened;
use crate::slot::{Keeper, Slot};
use crate::{Control, FollowerConfig, Identity, Sink, setup};

/// Pause before the first try to connect again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two tries, and the pause while an administrator must change something.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Connections in a row that broke before anything passed, after which the epoch ends: with the next one it is the
/// same again, probably.
const FRUITLESS_MAX: u32 = 10;

/// Where a stream broke, and may go on.
struct Place {
    epoch: Epoch,
    identity: Identity,
    slot: Slot,
    /// The process that held the slot.
    walsender: String,
    /// Everything up to here was given to the sink.
    passed: Lsn,
    assembler: Assembler,
    /// How many connections in a row have brought nothing.
    fruitless: u32,
}

/// How a connection ended.
struct Ended {
    fault: Fault,
    /// The sink was told that the stream stands.
    stood: bool,
    /// Where the epoch may go on.
    place: Option<Place>,
}

/// Follows the upstream until [`Control::shutdown`]. After any fault it starts a new stream in a new epoch, or goes on in
/// the same epoch if it has a lasting slot and only the connection was lost.
pub async fn follow(config: FollowerConfig, sink: Arc<dyn Sink>, control: Arc<Control>) {
    let follower = Follower { config, sink, control };
    let mut pause = BACKOFF_MIN;
    let mut told = String::new();
    let mut place = None;
    loop {
        let Ended { fault, stood, place: rest } = follower.connection(place, &mut told).await;
        place = rest;
        pause = match fault {
            Fault::Shutdown => return,
            Fault::Restart => Duration::ZERO,
            Fault::Setup(_) => BACKOFF_MAX,
            _ if stood => BACKOFF_MIN,
            _ => (pause * 2).clamp(BACKOFF_MIN, BACKOFF_MAX),
        };
        tokio::select! {
            () = follower.control.stopped() => {}
            () = follower.control.restart_requested() => if place.take().is_some() {
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

    /// Tells how a connection ended, unless it is nothing new.
    fn tell_end(&self, ended: &Ended, was_suspended: bool, told: &mut String) {
        let why = ended.fault.to_string();
        if ended.stood || why != *told || (was_suspended && ended.place.is_none()) {
            self.tell(&ended.fault, ended.place.is_some(), !ended.stood && !told.is_empty());
            *told = why;
        }
    }

    /// One connection, from its start to its fault, which is told.
    async fn connection(&self, place: Option<Place>, told: &mut String) -> Ended {
        let was_suspended = place.is_some();
        let slot = place.as_ref().map_or_else(|| Slot::new(&self.config.slot), |place| place.slot.clone());
        let opened = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            opened = setup::open(&self.config, &slot) => opened,
        };
        let Opened { client, identity, walsender } = match opened {
            Ok(opened) => opened,
            Err(fault) => {
                let place = place.filter(|_| fault.is_passing());
                let ended = Ended { fault, stood: false, place };
                self.tell_end(&ended, was_suspended, told);
                return ended;
            }
        };
        let mut keeper = Keeper::new(&self.config, &slot, &identity, &walsender);
        let mut ended = match place {
            Some(place) => self.go_on(client, &mut keeper, place).await,
            None => self.begin(client, &mut keeper).await,
        };
        // First of all: nothing may be served any more.
        self.tell_end(&ended, was_suspended, told);
        match &mut ended.place {
            Some(place) => place.walsender.clone_from(&walsender),
            // Somebody else's, perhaps.
            None if matches!(ended.fault, Fault::Setup(_)) => {}
            None => keeper.drop_slot().await,
        }
        ended
    }

    /// A new epoch.
    async fn begin(&self, mut client: Client, keeper: &mut Keeper<'_>) -> Ended {
        let (slot, identity) = (keeper.slot().clone(), keeper.identity().clone());
        let start = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            fault = keeper.watch() => Err(fault),
            start = setup::start(&mut client, &self.config, &slot, identity.server_version_num) => start,
        };
        let start = match start {
            Ok(start) => start,
            Err(fault) => return Ended { fault, stood: false, place: None },
        };
        let epoch = self.sink.connected(&identity);
        info!(
            "change stream {} from {}, PostgreSQL {}, system {}, timeline {}, at {start}",
            epoch.0, self.config.upstream, identity.server_version_num, identity.system_id, identity.timeline
        );
        let (assembler, walsender) = (Assembler::default(), String::new());
        let place = Place { epoch, identity, slot, walsender, passed: start, assembler, fruitless: 0 };
        self.run(client, keeper, place).await
    }

    /// The epoch of a stream that broke.
    async fn go_on(&self, mut client: Client, keeper: &mut Keeper<'_>, place: Place) -> Ended {
        if *keeper.identity() != place.identity {
            return Ended { fault: Fault::OtherServer, stood: false, place: None };
        }
        let resumed = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            resumed = setup::resume(&mut client, &self.config, keeper, place.passed) => resumed,
        };
        if let Err(fault) = resumed {
            if matches!(fault, Fault::SlotBusy)
                && let Err(error) = place.slot.end_walsender(&mut client, &place.walsender).await
            {
                warn!("process {} holds the slot and cannot be ended: {error}", place.walsender);
            }
            let place = Some(place).filter(|_| fault.is_passing());
            return Ended { fault, stood: false, place };
        }
        if !self.sink.resumed(&place.identity, place.epoch) {
            return Ended { fault: Fault::EpochEnded, stood: true, place: None };
        }
        info!("change stream {} goes on at {}", place.epoch.0, place.passed);
        self.run(client, keeper, place).await
    }

    /// Gives what comes to the sink, until something is wrong.
    async fn run(&self, client: Client, keeper: &mut Keeper<'_>, mut place: Place) -> Ended {
        let assembler = std::mem::take(&mut place.assembler);
        let mut session = Session::new(client, self.sink.clone(), place.passed, assembler, self.config.silence_max);
        let fault = tokio::select! {
            biased;
            fault = self.end_requested() => fault,
            fault = keeper.watch() => fault,
            fault = session.run(&self.control) => fault,
        };
        let (passed, assembler) = session.into_rest();
        let fruitless = if passed > place.passed { 0 } else { place.fruitless + 1 };
        let lasting = place.slot.lasting && fault.is_passing() && fruitless <= FRUITLESS_MAX;
        let place = lasting.then_some(Place { passed, assembler, fruitless, ..place });
        Ended { fault, stood: true, place }
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
