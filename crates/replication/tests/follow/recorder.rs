//! A sink that records the follower's calls, and a follower of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use freshet_net::Upstream;
use freshet_replication::{Control, FollowerConfig, Identity, Sink, follow};
use freshet_testbed::{Postgres, Server, Settings};
use freshet_types::{Change, ChangeSet, Commit, Epoch, Lsn, TableId};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Longest wait for events that should happen at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A call of the follower.
#[derive(Debug)]
pub(crate) enum Event {
    Connected(Identity),
    Commit(Commit),
    Suspended(String),
    Resumed,
    Disconnected(String),
}

/// Records the follower's calls.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) events: Mutex<Vec<Event>>,
    pub(crate) epoch: AtomicU64,
    pub(crate) passed: AtomicU64,
    pub(crate) advances: AtomicU64,
}

impl Recorder {
    pub(crate) fn record(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(crate) fn take(&self) -> Option<Event> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.is_empty() { None } else { Some(events.remove(0)) }
    }

    pub(crate) async fn next(&self) -> Result<Event> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            ensure!(began.elapsed() < PATIENCE, "nothing came");
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn connected(&self) -> Result<Identity> {
        match self.next().await? {
            Event::Connected(identity) => Ok(identity),
            other => bail!("{other:?}"),
        }
    }

    pub(crate) async fn disconnected(&self) -> Result<String> {
        match self.next().await? {
            Event::Disconnected(why) => Ok(why),
            other => bail!("{other:?}"),
        }
    }

    /// The changes of the next commit with changes.
    pub(crate) async fn changes(&self) -> Result<Vec<Change>> {
        loop {
            match self.next().await? {
                Event::Commit(Commit { changes, .. }) if changes.is_empty() => {}
                Event::Commit(Commit { changes: ChangeSet::Rows(rows), .. }) => return Ok(rows),
                other => bail!("{other:?}"),
            }
        }
    }

    /// The time until the stream has passed a position.
    pub(crate) async fn passes(&self, lsn: Lsn) -> Result<Duration> {
        let began = Instant::now();
        while self.passed.load(Ordering::SeqCst) < lsn.0 {
            ensure!(began.elapsed() < PATIENCE, "{lsn} not reached");
            sleep(Duration::from_micros(100)).await;
        }
        Ok(began.elapsed())
    }
}

impl Sink for Recorder {
    fn connected(&self, identity: &Identity) -> Epoch {
        self.passed.store(0, Ordering::SeqCst);
        self.record(Event::Connected(identity.clone()));
        Epoch(self.epoch.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn commit(&self, commit: Commit) {
        assert!(commit.end.0 > self.passed.load(Ordering::SeqCst), "a commit behind what had passed");
        self.record(Event::Commit(commit));
    }

    fn advance(&self, lsn: Lsn) {
        self.advances.fetch_add(1, Ordering::SeqCst);
        assert!(self.passed.swap(lsn.0, Ordering::SeqCst) <= lsn.0, "the stream went back");
    }

    fn suspended(&self, why: &str) {
        self.record(Event::Suspended(why.into()));
    }

    fn resumed(&self, _: &Identity, epoch: Epoch) -> bool {
        assert_eq!(epoch.0, self.epoch.load(Ordering::SeqCst), "another epoch");
        self.record(Event::Resumed);
        true
    }

    fn disconnected(&self, why: &str) {
        self.record(Event::Disconnected(why.into()));
    }
}

/// A server, its follower, and a connection for statements.
pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
    pub(crate) url: Arc<Upstream>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) control: Arc<Control>,
    pub(crate) task: JoinHandle<()>,
}

impl Fixture {
    /// Starts a server with the objects that `schema` creates, and a follower.
    pub(crate) fn start(major: u32, settings: &Settings, schema: &str) -> Result<Self> {
        let server = Postgres::find(Some(major))?.start(settings)?;
        server.psql(schema)?;
        Self::follow(server)
    }

    pub(crate) fn follow(server: Server) -> Result<Self> {
        Self::follow_with(server, |_| {})
    }

    pub(crate) fn follow_with(server: Server, change: impl FnOnce(&mut FollowerConfig)) -> Result<Self> {
        let url = Arc::new(Upstream::parse(&server.url())?);
        let mut config = FollowerConfig::new(url.clone());
        change(&mut config);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let recorder = Arc::new(Recorder::default());
        let control = Arc::new(Control::new());
        let task = runtime.spawn(follow(config, recorder.clone(), control.clone()));
        Ok(Self { runtime, server, url, recorder, control, task })
    }

    /// Ends the follower and checks that it makes no other call.
    pub(crate) fn finish(self) -> Result<()> {
        self.control.shutdown();
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.task).await.context("the follower does not end")??;
            while let Some(event) = self.recorder.take() {
                match event {
                    Event::Disconnected(why) if why.contains("shut down") => return Ok(()),
                    Event::Commit(commit) if commit.changes.is_empty() => {}
                    other => bail!("{other:?}"),
                }
            }
            bail!("the end was not told")
        })
    }

    /// The changes of the next transaction after a statement.
    pub(crate) fn after(&self, sql: &str) -> Result<Vec<Change>> {
        self.server.psql(sql)?;
        self.runtime.block_on(self.recorder.changes()).with_context(|| sql.to_owned())
    }

    pub(crate) fn table(&self, name: &str) -> Result<TableId> {
        Ok(TableId(self.server.psql(&format!("SELECT '{name}'::regclass::oid"))?.parse()?))
    }
}
