//! The interface of connections and transactions for the loops, and the implementation that runs a workload's scripts.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::Round;
use super::recorder::Recorder;
use crate::driver::Failure;
use crate::random::Random;
use crate::session::{Opening, Session};
use crate::workload::{Script, Workload};

/// The random numbers of the writer's scripts are independent of the number of load connections.
const WRITERS: u64 = 1 << 32;

/// Opens connections and runs transactions on them. A connection stays on its thread.
pub(super) trait Client: Send + Sync + 'static {
    /// A connection, with the state that is kept when it is opened again.
    type Connection: 'static;

    /// The address, for errors.
    fn target(&self) -> String;

    /// Opens the connection with this number.
    fn open(
        &self,
        number: usize,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> impl Future<Output = Result<Self::Connection, Failure>>;

    /// Opens a lost connection again.
    fn reopen(
        &self,
        connection: &mut Self::Connection,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// For a replay: the time of the connection's next transaction, since the start.
    fn due(&self, _connection: &Self::Connection) -> Option<Duration> {
        None
    }

    /// Runs a transaction.
    fn run(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), Failure>>;

    /// Ends a failed transaction.
    fn roll_back(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), Failure>>;
}

/// Runs the scripts of a workload.
#[derive(Debug)]
pub(super) struct Scripted {
    opening: Opening,
    workload: Arc<dyn Workload>,
    seed: u64,
    writes: bool,
}

impl Scripted {
    /// The connections of the load.
    pub(super) fn foreground(round: &Round) -> Self {
        let (opening, workload) = (round.opening.clone(), Arc::clone(&round.workload));
        Self { opening, workload, seed: round.seed, writes: false }
    }

    /// The connections of the background writer. None if the workload has no background writes.
    pub(super) fn background(round: &Round) -> Option<Self> {
        round.workload.writer(Random::new(round.seed))?;
        Some(Self { writes: true, ..Self::foreground(round) })
    }

    /// The address, for errors.
    pub(super) const fn name(&self) -> &'static str {
        if self.writes { "the background writer" } else { "the load" }
    }

    fn script(&self, number: u64) -> Result<Script, Failure> {
        if !self.writes {
            return Ok(self.workload.part(number as usize, Random::numbered(self.seed, number)));
        }
        let writer = self.workload.writer(Random::numbered(self.seed, WRITERS + number));
        writer.ok_or_else(|| Failure::connection(&"the workload has no background writes"))
    }
}

impl Client for Scripted {
    type Connection = (Session, Script);

    fn target(&self) -> String {
        format!("{} ({})", self.opening.target.name, self.opening.target.shown_url())
    }

    async fn open(&self, number: usize, recorder: &Rc<RefCell<Recorder>>) -> Result<Self::Connection, Failure> {
        Ok((Session::open(&self.opening, recorder).await?, self.script(number as u64)?))
    }

    async fn reopen(
        &self,
        (session, _): &mut Self::Connection,
        recorder: &Rc<RefCell<Recorder>>,
    ) -> Result<(), Failure> {
        *session = Session::open(&self.opening, recorder).await?;
        Ok(())
    }

    fn due(&self, (_, script): &Self::Connection) -> Option<Duration> {
        script.due()
    }

    async fn run(&self, (session, script): &mut Self::Connection) -> Result<(), Failure> {
        script.run(session).await
    }

    async fn roll_back(&self, (session, _): &mut Self::Connection) -> Result<(), Failure> {
        session.roll_back().await
    }
}
