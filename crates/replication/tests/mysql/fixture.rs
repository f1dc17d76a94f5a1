//! A server, a follower of it, and a record of the follower's calls.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use freshet_net::mysql::Upstream;
use freshet_replication::mysql::{FollowerConfig, Schemas, follow};
use freshet_replication::{Control, Identity, Sink};
use freshet_testbed::{Mariadb, Mysql, MysqlSettings, Mysqld};
use freshet_types::{Cell, Change, ChangeSet, Commit, Epoch, Lsn, TableId, TableNames};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Longest wait for events that should happen at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of the family.
pub(crate) enum Database {
    MariaDb(Mariadb),
    MySql(Mysql),
}

impl Deref for Database {
    type Target = Mysqld;

    fn deref(&self) -> &Mysqld {
        match self {
            Self::MariaDb(server) => server,
            Self::MySql(server) => server,
        }
    }
}

impl Database {
    pub(crate) fn mariadb(settings: MysqlSettings) -> Result<Self> {
        Ok(Self::MariaDb(Mariadb::start(&settings.with_binlog())?))
    }

    pub(crate) fn mysql(settings: &MysqlSettings) -> Result<Self> {
        Ok(Self::MySql(Mysql::start(settings)?))
    }

    pub(crate) fn is_mariadb(&self) -> bool {
        matches!(self, Self::MariaDb(_))
    }
}

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
    events: Mutex<Vec<Event>>,
    epoch: AtomicU64,
    pub(crate) passed: AtomicU64,
}

impl Recorder {
    fn record(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    pub(crate) fn take(&self) -> Option<Event> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        (!events.is_empty()).then(|| events.remove(0))
    }

    pub(crate) fn next(&self) -> Result<Event> {
        let began = Instant::now();
        loop {
            if let Some(event) = self.take() {
                return Ok(event);
            }
            ensure!(began.elapsed() < PATIENCE, "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The next event that is not a commit.
    pub(crate) fn next_state(&self) -> Result<Event> {
        loop {
            match self.next()? {
                Event::Commit(_) => {}
                other => return Ok(other),
            }
        }
    }

    pub(crate) fn connected(&self) -> Result<Identity> {
        match self.next()? {
            Event::Connected(identity) => Ok(identity),
            other => bail!("{other:?}"),
        }
    }

    /// The next commit with changes.
    pub(crate) fn commit(&self) -> Result<Commit> {
        loop {
            match self.next()? {
                Event::Commit(commit) if commit.changes.is_empty() && !commit.redefines => {}
                Event::Commit(commit) => return Ok(commit),
                other => bail!("{other:?}"),
            }
        }
    }

    pub(crate) fn passes(&self, lsn: Lsn) -> Result<()> {
        let began = Instant::now();
        while self.passed.load(Ordering::SeqCst) < lsn.0 {
            let passed = Lsn(self.passed.load(Ordering::SeqCst)).binlog_parts();
            ensure!(began.elapsed() < PATIENCE, "{:?} not reached, but {passed:?}", lsn.binlog_parts());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
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

/// The columns that a test has declared.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub(crate) names: TableNames,
    columns: Mutex<HashMap<TableId, Arc<[Arc<str>]>>>,
}

impl Catalogue {
    pub(crate) fn learn(&self, table: &str, columns: &[&str]) {
        let columns = columns.iter().map(|name| Arc::from(*name)).collect();
        let id = self.names.id("freshet", table);
        self.columns.lock().unwrap_or_else(PoisonError::into_inner).insert(id, columns);
    }
}

impl Schemas for Catalogue {
    fn table(&self, schema: &str, name: &str) -> TableId {
        self.names.id(schema, name)
    }

    fn columns(&self, table: TableId) -> Option<Arc<[Arc<str>]>> {
        self.columns.lock().unwrap_or_else(PoisonError::into_inner).get(&table).cloned()
    }
}

/// A server, its follower, and the record of its calls.
pub(crate) struct Fixture {
    runtime: Runtime,
    pub(crate) server: Database,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) control: Arc<Control>,
    task: JoinHandle<()>,
}

impl Fixture {
    /// Follows the server as its superuser.
    pub(crate) fn follow(server: Database) -> Result<Self> {
        let url = format!("{}?ssl-mode=disabled", server.url());
        Self::follow_as(server, &url)
    }

    pub(crate) fn follow_as(server: Database, url: &str) -> Result<Self> {
        let upstream = Arc::new(Upstream::parse(url)?);
        let (catalogue, recorder) = (Arc::new(Catalogue::default()), Arc::new(Recorder::default()));
        let control = Arc::new(Control::new());
        let mut config = FollowerConfig::new(upstream, catalogue.clone());
        config.silence_max = Duration::from_secs(5);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let task = runtime.spawn(follow(config, recorder.clone(), control.clone()));
        Ok(Self { runtime, server, catalogue, recorder, control, task })
    }

    /// Ends the follower and checks that it makes no other call.
    pub(crate) fn finish(self) -> Result<()> {
        self.control.shutdown();
        self.runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.task).await.context("the follower does not end")?.context("follower")
        })?;
        match self.recorder.next_state()? {
            Event::Disconnected(why) if why.contains("shut down") => Ok(()),
            other => bail!("{other:?}"),
        }
    }

    /// Ends the follower and returns the server.
    pub(crate) fn stop(self) -> Result<Database> {
        self.control.shutdown();
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.task).await })??;
        Ok(self.server)
    }

    /// The changes of the next commit after a statement, in short form.
    pub(crate) fn after(&self, sql: &str) -> Result<Vec<String>> {
        self.server.sql(sql)?;
        let commit = self.recorder.commit().with_context(|| sql.to_owned())?;
        Ok(shorts(&commit.changes))
    }

    /// Checks the changes of a table of statements, one commit each.
    pub(crate) fn check(&self, table: &[(&str, &str)]) -> Result<()> {
        for (sql, expected) in table {
            assert_eq!(self.after(sql)?.join(" "), *expected, "{sql}");
        }
        Ok(())
    }

    /// The log end, read over another connection.
    pub(crate) fn end(&self) -> Result<Lsn> {
        let status = self.server.sql("SHOW MASTER STATUS")?;
        let mut fields = status.split('\t');
        let (file, offset) = (fields.next().context("file")?, fields.next().context("position")?);
        let number = file.rsplit_once('.').context("number")?.1.parse()?;
        Lsn::in_binlog(number, offset.parse()?).context("position")
    }
}

/// A row in short form: values, `-` for NULL, `?` for unknown values.
fn short(row: &[Cell]) -> String {
    let cell = |cell: &Cell| match cell {
        Cell::Null => "-".into(),
        Cell::Absent => "?".into(),
        Cell::Unchanged => "=".into(),
        Cell::Text(text) => String::from_utf8_lossy(text).into_owned(),
    };
    row.iter().map(cell).collect::<Vec<_>>().join(",")
}

/// Changes in short form.
pub(crate) fn shorts(changes: &ChangeSet) -> Vec<String> {
    let ChangeSet::Rows(changes) = changes else { return vec!["everything".into()] };
    let change = |change: &Change| match change {
        Change::Insert { new, .. } => format!("+{}", short(new)),
        Change::Update { old, new, .. } => format!("{}>{}", short(old), short(new)),
        Change::Delete { old, .. } => format!("-{}", short(old)),
        Change::AnyRow(_) => "any".into(),
        Change::Redefined { name, .. } => format!("redefined:{name}"),
    };
    let mut changes: Vec<String> = changes.iter().map(change).collect();
    // Redefinitions have no order.
    if changes.iter().all(|change| change.starts_with("redefined")) {
        changes.sort();
    }
    changes
}
