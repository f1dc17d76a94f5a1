//! Follows one stream after another, as long as the process runs.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use freshet_types::{Epoch, Lsn};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::error::Fault;
use crate::{Control, Identity, Sink};

/// Pause before the first reconnect.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two attempts, and the pause while an administrator must change something.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Limit of consecutive connections that break before the stream passes a position. Then the epoch ends, since the next connection would probably
/// break too.
const FRUITLESS_MAX: u32 = 10;

/// The operations of one family of databases that the follower needs. Futures may be dropped at any time, because the stream ends then.
pub(crate) trait Family: Sync {
    /// A connection to a server that can send a stream.
    type Connection;
    /// The position of a stream, with the facts from which it can continue.
    type Progress;

    /// The upstream, for messages.
    fn upstream(&self) -> &impl Display;

    /// Connects, and checks the requirements of a stream. `progress` is that of the broken stream.
    async fn open(&self, progress: Option<&Self::Progress>) -> Result<Self::Connection, Fault>;

    /// The server's identity.
    fn identity(connection: &Self::Connection) -> &Identity;

    /// Starts a stream: every commit that is not visible to statements sent from now on will be delivered. `told` is called with the reason if it
    /// takes long.
    async fn start(
        &self,
        connection: &mut Self::Connection,
        told: &(dyn Fn(&str) + Sync),
    ) -> Result<Self::Progress, Fault>;

    /// Continues where the stream broke.
    async fn resume(&self, connection: &mut Self::Connection, progress: &Self::Progress) -> Result<(), Fault>;

    /// The server and the start of its stream, for messages.
    fn describe(connection: &Self::Connection, progress: &Self::Progress) -> String;

    /// Passes everything received to the sink, until a fault.
    async fn run(
        &self,
        connection: &mut Self::Connection,
        progress: &mut Self::Progress,
        sink: &dyn Sink,
        control: &Control,
    ) -> Fault;

    /// The position up to which everything was passed to the sink.
    fn passed(progress: &Self::Progress) -> Lsn;

    /// The stream broke: forgets what a continued stream will send again. False: the server keeps no position for it.
    fn keep_place(progress: &mut Self::Progress) -> bool;

    /// Called when the connection has ended with this fault. `progress` is where the stream may continue.
    async fn close(&self, connection: Self::Connection, progress: Option<&mut Self::Progress>, fault: &Fault);
}

/// The position at which a stream broke and may continue.
struct Place<P> {
    epoch: Epoch,
    identity: Identity,
    progress: P,
    /// Number of consecutive connections without progress.
    fruitless: u32,
}

/// The end of a connection.
struct Ended<P> {
    fault: Fault,
    /// The sink was told that the stream is established.
    established: bool,
    /// Where the epoch may continue.
    place: Option<Place<P>>,
}

/// Follows the upstream until [`Control::shutdown`]. After a fault it continues the epoch if only the connection was lost and the server keeps the
/// stream's position. Otherwise it begins a new epoch.
pub(crate) async fn follow<F: Family>(family: F, sink: Arc<dyn Sink>, control: Arc<Control>) {
    let follower = Follower { family, sink, control };
    let mut pause = BACKOFF_MIN;
    let mut told = String::new();
    let mut place = None;
    loop {
        let Ended { fault, established, place: rest } = follower.connection(place, &mut told).await;
        place = rest;
        pause = match fault {
            Fault::Shutdown => return,
            Fault::Restart => Duration::ZERO,
            fault if fault.is_setup() => BACKOFF_MAX,
            _ if established => BACKOFF_MIN,
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

struct Follower<F> {
    family: F,
    sink: Arc<dyn Sink>,
    control: Arc<Control>,
}

impl<F: Family> Follower<F> {
    /// Reports that there is no stream. `again`: the sink already knows that, for another reason.
    fn tell(&self, fault: &Fault, suspended: bool, again: bool) {
        let why = fault.to_string();
        if suspended {
            self.sink.suspended(&why);
        } else {
            self.sink.disconnected(&why);
        }
        let until = if suspended { " until it continues" } else { "" };
        let upstream = self.family.upstream();
        let text = format!("no change stream from {upstream}, so nothing is served from the cache{until}: {why}");
        match fault {
            Fault::Shutdown => debug!("{why}"),
            Fault::Restart => info!("{text}"),
            // A server that restarts gives several reasons in a row.
            fault if again && fault.is_passing() => info!("{text}"),
            _ => warn!("{text}"),
        }
    }

    /// Reports the end of a connection, unless the reason is the previous one.
    fn tell_end(&self, ended: &Ended<F::Progress>, was_suspended: bool, told: &mut String) {
        let why = ended.fault.to_string();
        if ended.established || why != *told || (was_suspended && ended.place.is_none()) {
            self.tell(&ended.fault, ended.place.is_some(), !ended.established && !told.is_empty());
            *told = why;
        }
    }

    /// One connection, from its start to its fault, which is reported.
    async fn connection(&self, place: Option<Place<F::Progress>>, told: &mut String) -> Ended<F::Progress> {
        let was_suspended = place.is_some();
        let opened = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            opened = self.family.open(place.as_ref().map(|place| &place.progress)) => opened,
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(fault) => {
                let place = place.filter(|_| fault.is_passing());
                let ended = Ended { fault, established: false, place };
                self.tell_end(&ended, was_suspended, told);
                return ended;
            }
        };
        let mut ended = match place {
            Some(place) => self.continue_epoch(&mut connection, place).await,
            None => self.begin(&mut connection).await,
        };
        // This comes first: nothing may be served from the cache from now on.
        self.tell_end(&ended, was_suspended, told);
        let progress = ended.place.as_mut().map(|place| &mut place.progress);
        self.family.close(connection, progress, &ended.fault).await;
        ended
    }

    /// Begins a new epoch.
    async fn begin(&self, connection: &mut F::Connection) -> Ended<F::Progress> {
        let waits = |why: &str| {
            warn!("no change stream from {} yet: {why}", self.family.upstream());
            self.sink.disconnected(why);
        };
        let started = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            started = self.family.start(connection, &waits) => started,
        };
        let progress = match started {
            Ok(progress) => progress,
            Err(fault) => return Ended { fault, established: false, place: None },
        };
        let identity = F::identity(connection).clone();
        let epoch = self.sink.connected(&identity);
        let server = F::describe(connection, &progress);
        info!("change stream {} from {}, {server}", epoch.0, self.family.upstream());
        self.run(connection, Place { epoch, identity, progress, fruitless: 0 }).await
    }

    /// Continues the epoch of a stream that broke.
    async fn continue_epoch(&self, connection: &mut F::Connection, place: Place<F::Progress>) -> Ended<F::Progress> {
        if *F::identity(connection) != place.identity {
            return Ended { fault: Fault::OtherServer, established: false, place: None };
        }
        let resumed = tokio::select! {
            biased;
            fault = self.end_requested() => Err(fault),
            resumed = self.family.resume(connection, &place.progress) => resumed,
        };
        if let Err(fault) = resumed {
            let place = Some(place).filter(|_| fault.is_passing());
            return Ended { fault, established: false, place };
        }
        if !self.sink.resumed(&place.identity, place.epoch) {
            return Ended { fault: Fault::EpochEnded, established: true, place: None };
        }
        info!("change stream {} continues, {}", place.epoch.0, F::describe(connection, &place.progress));
        self.run(connection, place).await
    }

    /// Passes everything received to the sink, until a fault.
    async fn run(&self, connection: &mut F::Connection, mut place: Place<F::Progress>) -> Ended<F::Progress> {
        let before = F::passed(&place.progress);
        let fault = tokio::select! {
            biased;
            fault = self.end_requested() => fault,
            fault = self.family.run(connection, &mut place.progress, &*self.sink, &self.control) => fault,
        };
        place.fruitless = if F::passed(&place.progress) > before { 0 } else { place.fruitless + 1 };
        let continues = F::keep_place(&mut place.progress) && fault.is_passing() && place.fruitless <= FRUITLESS_MAX;
        Ended { fault, established: true, place: Some(place).filter(|_| continues) }
    }

    /// Waits until the end of the stream is requested.
    async fn end_requested(&self) -> Fault {
        tokio::select! {
            biased;
            () = self.control.stopped() => Fault::Shutdown,
            () = self.control.restart_requested() => Fault::Restart,
        }
    }
}
