//! Transaction pooling: a session has a server connection only while something of it lives there.
//!
//! At rest, behind each command, the session gives its connection back unless a [`Pin`] holds it. It takes one again before the next command that must
//! reach the server ([`super::check_out`]). Hits need none. What a command leaves is noted in [`super::state_left`]. This is possible where the login ends at Freshet, which can then log in again.
//!
//! What a session has on its connection goes with it to another one in one of these ways:
//!
//! | state | how |
//! |---|---|
//! | settings by SET with constants or computed from settings, the default database, COM_RESET_CONNECTION | sessions with the same share connections, and a new connection is brought into that state ([`super::label`]) |
//! | FOUND_ROWS(), ROW_COUNT() of 0 or -1 | made again before a statement that may ask, as behind a hit ([`super::diagnostics`]) |
//! | prepared statements of the binary protocol | prepared again on the next one when they are needed ([`super::own_statements`]) |
//! | user variables that were set to constants | set on the next one in the same network packet as the next command ([`super::user_variables`]) |
//! | LAST_INSERT_ID() | asked for before the connection is given back, and set on the next one in the same network packet as the next command |
//! | all other state | a pin |
//!
//! Before it is given back, the connection has an empty list of warnings, and no transaction. What Freshet knows of the settings in force was read on one of
//! the connections. Another connection is known to have the same if they were read there, too; else they are asked for again.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use freshet_sql::Code;
use freshet_types::{Catalog, Reason};
use freshet_wire::mysql::capabilities::Status;
use freshet_wire::mysql::error::put_error;

use crate::mysql::MySql;
use crate::mysql::kills::Target;
use crate::mysql::login::{About, Account};
use crate::mysql::session::connection::{Facts, ServerConnection};
use crate::mysql::session::known::Known;
use crate::mysql::session::label::Label;
use crate::mysql::session::pin::{Lasting, Pin};
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::user_variables::UserVariables;
use crate::mysql::session::yielding::Resting;
use crate::mysql::session::{Session, SessionError};
use crate::pool::{Group, Lease, PoolMode};
use crate::server::sessions::Link;
use crate::statement::registry::Statement;

/// What logs in on more connections like that of a session's login.
#[derive(Debug)]
pub(crate) struct PooledLogin {
    pub(crate) account: Arc<Account>,
    pub(crate) database: Option<Arc<str>>,
    pub(crate) group: Group,
}

/// Limit of pieces of code of which it is not known yet what they have left.
const UNJUDGED_MAX: usize = 64;
/// Looks at the catalogue that may show it, and the time between two of them.
const JUDGEMENT_TRIES: usize = 200;
const JUDGEMENT_PAUSE: Duration = Duration::from_millis(5);

/// What may have run stored code.
#[derive(Debug)]
pub(super) struct Unjudged {
    /// None: a text that is too long to be analysed.
    statement: Option<Arc<Statement>>,
    /// The default database.
    schemas: Vec<Arc<str>>,
    /// Its words, which name what it runs.
    code: Arc<Code>,
    /// What it runs may leave something in the session, by the catalogue before it.
    leaves: bool,
    /// Of that catalogue: see [`Catalog::code_changes`].
    changes: u64,
}

impl Unjudged {
    pub(super) fn new(
        statement: Option<&Arc<Statement>>,
        code: &Arc<Code>,
        schemas: &[Arc<str>],
        before: Option<&Catalog>,
    ) -> Self {
        let stored = before.map(|before| &before.stored_code).filter(|stored| stored.is_complete);
        // A function that is not built in may be one that no catalogue shows.
        let calls = statement.is_none_or(|statement| statement.query.template.calls_unknown());
        let leaves = stored
            .is_some_and(|stored| code.temporaries(stored).may_leave_state() || calls && !stored.has_all_functions);
        let changes = before.map_or(0, |before| before.code_changes);
        Self { statement: statement.cloned(), schemas: schemas.to_vec(), code: code.clone(), leaves, changes }
    }

    /// Whether what it has run may have left something. By now the code may be gone again.
    fn may_have_left(&self, catalog: &Catalog) -> bool {
        let leaves_now = || self.code.temporaries(&catalog.stored_code).may_leave_state();
        self.leaves || catalog.code_changes.saturating_sub(self.changes) > 1 || leaves_now()
    }
}

/// What the session has run of which it is not known yet what it has left.
#[derive(Debug, Default)]
pub(super) struct Ran {
    unjudged: Vec<Unjudged>,
    /// The session has waited for the catalogue in vain.
    has_waited: bool,
}

/// What goes with the session to another connection.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) label: Label,
    pub(super) variables: UserVariables,
}

/// The part of a session in transaction mode.
#[derive(Debug)]
pub(crate) struct Pooling {
    pub(super) account: Arc<Account>,
    mode: PoolMode,
    /// That of its login, for which others look.
    _login: Arc<PooledLogin>,
    pub(super) target: Arc<Target>,
    /// Of the connection that the session has.
    pub(super) lease: Option<Lease<ServerConnection>>,
    /// The sessions with which it shares connections.
    pub(super) group: Group,
    pub(super) carried: Carried,
    pub(super) database: Option<Arc<str>>,
    pub(super) lasting: Lasting,
    /// Until the catalogue shows the code.
    ran: Ran,
    /// The session's LAST_INSERT_ID(); None: that of its connection.
    pub(super) insert_id: Option<u64>,
    /// It has written on the connection that it has.
    pub(super) wrote_here: bool,
    /// The number of answers that are due to statements sent ahead of the next command.
    pub(super) sent_ahead: usize,
    /// The most prepared statements that stay on a connection; 0: the session's are not shared.
    prepared_max: usize,
    pub(super) resting: Resting,
}

impl Pooling {
    /// The state after a login. The connection of the login takes a place in the pool; without one it is closed.
    pub(super) fn begin(
        account: Account,
        about: &About,
        (connection, link): (ServerConnection, &Arc<Link>),
        shared: &Arc<MySql>,
    ) -> (Option<ServerConnection>, Self) {
        let (account, mode) = (Arc::new(account), shared.settings.pool.mode_of(&about.user));
        let (database, carried) = (about.database.as_deref().map(Arc::from), Carried::default());
        let group = group(&account, &carried, about.database.as_deref());
        let login =
            Arc::new(PooledLogin { account: account.clone(), database: database.clone(), group: group.clone() });
        if mode.shares() {
            shared.logins.note(&account.key, &login);
        }
        let mut lease = if mode.shares() { shared.pools.try_check_out(&account.key, &group) } else { None };
        let target = shared.kills.begin(account.number, &about.user, link);
        if let Some(lease) = &mut lease {
            drop(lease.take());
            lease.renew();
        }
        let connection = (lease.is_some() || !mode.shares()).then_some(connection);
        if let Some(connection) = &connection {
            target.has(connection.thread);
        }
        let pooling = Self {
            group,
            account,
            mode,
            _login: login,
            target,
            lease,
            carried,
            database,
            lasting: Lasting::default(),
            ran: Ran::default(),
            insert_id: Some(0),
            wrote_here: false,
            sent_ahead: 0,
            prepared_max: shared.settings.pool.prepared_max,
            resting: Resting::default(),
        };
        (connection, pooling)
    }

    /// The server has reset the session.
    pub(crate) fn begin_anew(&mut self) {
        self.carried.label.reset();
        self.carried.variables = UserVariables::default();
        self.regroup();
        self.lasting = Lasting::default();
        self.ran = Ran::default();
        self.resting.has_lost = false;
        self.insert_id = None;
    }

    /// Whether the session gives its connection back. Else it has it to its end.
    pub(super) fn shares(&self) -> bool {
        self.mode.shares()
    }

    /// Whether the session's prepared statements keep no connection.
    pub(super) fn shares_statements(&self) -> bool {
        self.shares() && self.prepared_max > 0
    }

    /// Whether its settings may be others than those of its label.
    pub(super) fn has_doubts(&self) -> bool {
        self.lasting.may_have_set() || !self.ran.unjudged.is_empty()
    }

    /// Something was sent that may have run stored code.
    pub(super) fn ran(&mut self, unjudged: Unjudged) {
        match self.ran.unjudged.len() {
            0..UNJUDGED_MAX => self.ran.unjudged.push(unjudged),
            _ => self.lasting.add(Pin::StoredCode),
        }
    }

    /// The connection stays with the session until it is reset.
    pub(crate) fn keep(&mut self) {
        self.lasting.add(Pin::Unknown);
    }

    /// The connection is another user's from now on, so it is never given back.
    pub(super) fn stop_sharing(&mut self) {
        self.mode = PoolMode::Session;
    }

    pub(super) fn regroup(&mut self) {
        self.group = group(&self.account, &self.carried, self.database.as_deref());
    }
}

/// The key of the group of connections in the same state.
fn group(account: &Account, carried: &Carried, database: Option<&str>) -> Group {
    let mut key = account.shape();
    key.push(u8::from(database.is_some()));
    key.extend_from_slice(database.unwrap_or_default().as_bytes());
    key.push(0);
    carried.label.write_key(&mut key);
    key.push(0);
    carried.variables.write_key(&mut key);
    Group::of(&key)
}

impl Session {
    // --- giving back ----------------------------------------------------------------------------------------

    /// A command has been handled: gives the connection back if nothing of the session lives there.
    pub(super) async fn rest(&mut self) -> Result<(), SessionError> {
        if !self.server.is_connected() {
            return Ok(());
        }
        // The command may have had no answer.
        self.settle_sent_ahead().await?;
        let Some(pooling) = self.server.pooling.as_ref().filter(|pooling| pooling.shares()) else { return Ok(()) };
        let refuses_blocks = pooling.mode == PoolMode::Statement;
        if self.client.output.is_high() {
            return Ok(());
        }
        if refuses_blocks && (self.status.has(Status::IN_TRANS) || self.transaction.is_within_block()) {
            // ER_NOT_SUPPORTED_YET
            let text = "Transactions are not allowed with the pool mode statement";
            put_error(self.client.output.buffer(), &mut 1, 1235, Some("42000"), text);
            return Err(SessionError::NoConnection);
        }
        let pin = self.pin();
        self.note_pin(pin.map(Pin::name));
        let may_end = match pin {
            Some(Pin::Warnings | Pin::RowCount) => true,
            Some(Pin::StoredCode | Pin::TemporaryTable) => self.waits_for_catalog(),
            _ => false,
        };
        if let Some(pooling) = &mut self.server.pooling {
            pooling.resting.may_end = may_end;
        }
        if pin.is_some() {
            return Ok(());
        }
        self.leave_statements();
        if !self.clear_warnings().await? {
            return Ok(());
        }
        let can_leave = self.replay.can_leave_connection();
        let knows_insert_id = self.server.pooling.as_ref().is_some_and(|pooling| pooling.insert_id.is_some());
        if self.find_quiet().await && (can_leave && knows_insert_id || self.ask_what_stays().await?) {
            self.give_back();
        }
        Ok(())
    }

    pub(super) fn note_pin(&mut self, reason: Option<&'static str>) {
        if let Some(pooling) = &mut self.server.pooling
            && pooling.resting.pinned != reason
        {
            pooling.resting.pinned = reason;
            self.shared.sessions.note_pin(&self.server.link, reason);
        }
    }

    /// Whether nothing is on its way in either direction.
    async fn find_quiet(&mut self) -> bool {
        std::future::poll_fn(|cx| {
            self.server.poll_send(cx);
            Poll::Ready(())
        })
        .await;
        let is_silent = self.server.received().is_empty() && !self.server.has_ended() && !self.server.is_deaf();
        is_silent && self.server.peer().is_some_and(|peer| !peer.has_output())
    }

    /// What holds the session on its connection.
    fn pin(&mut self) -> Option<Pin> {
        self.judge_code();
        if let Some(pin) = self.server.pooling.as_ref().and_then(|pooling| pooling.lasting.first()) {
            return Some(pin);
        }
        let is_open = self.status.has(Status::IN_TRANS);
        if is_open || self.transaction.is_within_block() || self.server.settings.one_shot {
            return Some(Pin::Transaction);
        }
        let are_shared = self.server.shares_statements();
        if !are_shared && (!self.server.prepareds.are_none() || self.replay.has_closed()) {
            return Some(Pin::PreparedStatement);
        }
        if self.server.pooling.as_ref().is_some_and(|pooling| !pooling.ran.unjudged.is_empty()) {
            return Some(Pin::StoredCode);
        }
        if self.undecided().is_some() || !self.server.settings.temporaries.are_none() {
            return Some(Pin::TemporaryTable);
        }
        if self.server.settings.locked {
            return Some(Pin::LockedTables);
        }
        if self.server.settings.watched.is_some() || self.server.settings.sets_clock {
            return Some(Pin::Setting);
        }
        let database = self.default_database();
        let (behind_hit, row_count) = (self.replay.is_behind_hit(), self.answer.row_count);
        // A hit that reads tables has an empty list of warnings, as it would have at the server.
        let is_warned = self.answer.warned && !self.replay.is_behind_read();
        let pooling = self.server.pooling.as_mut()?;
        let database = match database {
            Ok(database) => database,
            Err(pin) => return Some(pin),
        };
        if pooling.database != database {
            pooling.database = database;
            pooling.regroup();
        }
        match () {
            () if pooling.resting.gives_up => self.pin_of_statements(),
            () if is_warned => Some(Pin::Warnings),
            () if row_count == RowCount::Other && !behind_hit => Some(Pin::RowCount),
            () => self.pin_of_statements(),
        }
    }

    /// The default database, if there is one; an error if that is not known.
    pub(super) fn default_database(&self) -> Result<Option<Arc<str>>, Pin> {
        let settings = &self.server.settings;
        if let Some(name) = settings.schemas.first() {
            return Ok(Some(name.clone()));
        }
        let had_none = self.server.pooling.as_ref().is_some_and(|pooling| pooling.database.is_none());
        let has_none = matches!(&settings.known, Known::Context(context, _) if context.schemas.is_empty());
        if had_none || has_none { Ok(None) } else { Err(Pin::Database) }
    }

    /// Whether the catalogue is still to show what stored code has left, and nothing else holds the session for good.
    fn waits_for_catalog(&mut self) -> bool {
        let is_undecided = matches!(self.undecided(), Some(Reason::Watermark | Reason::CatalogStale));
        let Some(pooling) = &self.server.pooling else { return false };
        pooling.lasting.first().is_none() && (is_undecided || !pooling.ran.unjudged.is_empty())
    }

    /// Decides what the stored code has left that statements have run, as soon as the catalogue shows it.
    fn judge_code(&mut self) {
        let Some(pooling) = &mut self.server.pooling else { return };
        let unjudged = std::mem::take(&mut pooling.ran.unjudged);
        if unjudged.is_empty() {
            return;
        }
        let catalog = self.shared.catalog.load_full();
        let has_unread = catalog.stored_code.has_unread;
        let is_shown = !has_unread && self.shared.cache.reflects(self.watermark.get(), catalog.version);
        let (mut waiting, mut leaves) = (Vec::new(), false);
        for ran in unjudged {
            // A table that was not known before has no triggers.
            let is_as_before = ran.changes == catalog.code_changes && ran.schemas == self.server.settings.schemas;
            let runs = |statement: &Arc<Statement>| self.mark(Some(statement)).runs_stored_code();
            let is_plain = is_as_before && ran.statement.as_ref().is_some_and(|statement| !runs(statement));
            match () {
                () if is_plain => leaves |= ran.leaves,
                () if is_shown => leaves |= ran.may_have_left(&catalog),
                () => waiting.push(ran),
            }
        }
        let Some(pooling) = &mut self.server.pooling else { return };
        pooling.ran.has_waited &= !waiting.is_empty();
        pooling.ran.unjudged = waiting;
        if leaves {
            pooling.lasting.add(Pin::StoredCode);
        }
    }

    /// Waits, once and not for long, until the catalogue has shown what stored code has left: until then nobody knows what a text means.
    pub(super) async fn wait_for_judgement(&mut self) {
        for _ in 0..JUDGEMENT_TRIES {
            self.judge_code();
            let is_late = self.shared.cache.epoch().is_none() || self.shared.catalog.load().stored_code.has_unread;
            let Some(pooling) = &mut self.server.pooling else { return };
            if pooling.ran.unjudged.is_empty() || pooling.ran.has_waited || is_late || self.server.link.is_killed() {
                return;
            }
            tokio::time::sleep(JUDGEMENT_PAUSE).await;
        }
        if let Some(pooling) = &mut self.server.pooling {
            pooling.ran.has_waited = true;
        }
    }

    /// Empties the list of warnings, which is not that of the session's last statement, a hit. False: it has failed.
    async fn clear_warnings(&mut self) -> Result<bool, SessionError> {
        if !self.answer.warned {
            return Ok(true);
        }
        // MariaDB keeps the list over statements without a table.
        self.server.put_query(b"SELECT 1 FROM (SELECT 1) of_freshet");
        let is_empty = self.hear_row().await?.is_some();
        self.answer.warned = !is_empty;
        Ok(is_empty)
    }

    /// Asks for what goes to the next connection. False: it is not known.
    async fn ask_what_stays(&mut self) -> Result<bool, SessionError> {
        self.server.put_query(b"SELECT FOUND_ROWS(), LAST_INSERT_ID()");
        let Some(row) = self.hear_row().await? else { return Ok(false) };
        let number = |at: usize| row.get(at).and_then(Option::as_ref).and_then(|text| text.parse::<u64>().ok());
        let (Some(found), Some(insert_id)) = (number(0), number(1)) else { return Ok(false) };
        if !self.replay.can_leave_connection() {
            self.replay.set_counted(u32::try_from(found).ok());
        }
        let capabilities = self.capabilities();
        if let Some(pooling) = &mut self.server.pooling {
            pooling.insert_id = Some(insert_id);
            self.replay.leave_connection(self.answer.row_count == RowCount::Zero, capabilities);
        }
        Ok(self.replay.can_leave_connection())
    }

    /// Puts the connection into the pool.
    fn give_back(&mut self) {
        let capabilities = self.capabilities();
        let Some(pooling) = &mut self.server.pooling else { return };
        self.replay.leave_connection(self.answer.row_count == RowCount::Zero, capabilities);
        let (insert_id, group) = (pooling.insert_id.unwrap_or_default(), pooling.group.clone());
        let variables = pooling.carried.variables.clone();
        if !pooling.target.leaves() {
            return;
        }
        pooling.wrote_here = false;
        pooling.resting.has_lost |= pooling.resting.gives_up;
        let Some(mut lease) = pooling.lease.take() else { return };
        let Some(mut connection) = self.server.disconnect() else { return };
        let settings = &mut self.server.settings;
        connection.facts = Facts {
            server: settings.server.take(),
            compared: settings.compared.clone(),
            settings: match &settings.known {
                Known::Context(context, _) => Some(context.settings),
                Known::Nothing | Known::Unknowable(_) => None,
            },
            insert_id,
            variables,
            stale: self.track.is_stale(),
            counted: std::mem::take(&mut connection.facts.counted),
        };
        if connection.peer.rest().is_ok() {
            lease.regroup(group);
            lease.give_back(connection);
        }
    }
}
