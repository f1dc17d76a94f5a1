//! What an answer means for the state of the session.

use std::sync::Arc;

use freshet_cache::Watermark;
use freshet_sql::{Bracket, Code, Effect};
use freshet_types::{CatalogVersion, Nanos, Reason, TableId};
use freshet_wire::mysql::capabilities::Status;
use freshet_wire::mysql::handshake::ChangeUser;
use freshet_wire::mysql::ok::Ok as OkPacket;
use freshet_wire::mysql::packet::{self, HEADER_BYTES};
use freshet_wire::mysql::response::Done;

use crate::mysql::login::{Exchange, Leg, Refusal, change_user, login_ok};
use crate::mysql::session::idle::Command;
use crate::mysql::session::known::Known;
use crate::mysql::session::mark::{Makes, Mark};
use crate::mysql::session::pin::Pin;
use crate::mysql::session::reading::Reading;
use crate::mysql::session::row_count::RowCount;
use crate::mysql::session::temporaries::may_define_code;
use crate::mysql::session::track::{Written, is_dml};
use crate::mysql::session::transaction::Answered;
use crate::mysql::session::{Outcome, Session, SessionError};
use crate::session::commit_wait::Touched;
use crate::statement::registry::{Marks, Statement, first_word};

/// Flags about the answered statement, not about later ones.
const OF_ONE_STATEMENT: Status = Status(Status::DB_DROPPED.0 | Status::QUERY_WAS_SLOW.0);

/// Global variables on which results depend, and variables that set them with others. Their changes are in no log.
const UNLOGGED: [&str; 4] = ["mandatory_roles", "read_only", "server_id", "super_read_only"];

impl Session {
    /// The possible effects of a statement, by its text and the catalogue.
    pub(crate) fn mark(&self, statement: Option<&Arc<Statement>>) -> Mark {
        let Some(statement) = statement else { return Mark::UNKNOWN };
        let template = &statement.query.template;
        let catalog = self.shared.catalog.load();
        let schemas = &self.server.settings.schemas;
        let (effect, marks) = match &self.server.settings.known {
            Known::Context(context, _) => {
                let verdict = statement.query.resolve(&catalog, context);
                (verdict.effect, (context.schemas == *schemas).then_some(verdict.marks))
            }
            _ => (template.effect_in(&catalog, schemas), None),
        };
        let marks = marks.unwrap_or_else(|| Marks::of(template, &catalog, schemas));
        let bracket = template.bracket();
        let word = || first_word(&statement.query.text);
        let calls = || statement.query.text.contains('(');
        let writes = match effect {
            Effect::Pure | Effect::Signal => false,
            // XA COMMIT may end a transaction of another session.
            Effect::TransactionControl => word().eq_ignore_ascii_case("xa"),
            Effect::Settings => calls(),
            Effect::Write | Effect::Definition | Effect::Forgets => true,
        };
        let tells_nothing = match effect {
            Effect::Pure => !template.names_relations() && word().eq_ignore_ascii_case("select"),
            Effect::TransactionControl => matches!(bracket, Some(Bracket::Begin(_) | Bracket::Savepoint)),
            Effect::Settings => !calls(),
            // DO: its answer has no rows, but the statement may wait for a lock, or show data by its duration.
            Effect::Signal => template.is_silent_signal() && !calls(),
            Effect::Write | Effect::Definition | Effect::Forgets => false,
        };
        let names = match effect {
            Effect::Write => true,
            Effect::Pure => template.names_relations(),
            Effect::Signal | Effect::Settings => calls() || template.names_relations(),
            Effect::TransactionControl | Effect::Definition | Effect::Forgets => false,
        };
        // The session may have just defined the objects that it names.
        let may_be_new = names && !self.shows_own_definitions(catalog.version);
        let takes_snapshot = marks.takes_snapshot
            && (bracket.is_some() || !self.server.settings.temporaries.may_hide(template.reads_first()));
        let makes = match () {
            () if marks.runs_stored_code || may_be_new => Makes::ByStoredCode,
            () if marks.makes_temporary => Makes::ByItself,
            () => Makes::NoTables,
        };
        Mark {
            effect,
            bracket,
            writes,
            reads: !tells_nothing,
            takes_snapshot: takes_snapshot.then_some(catalog.version),
            keeps_settings: marks.keeps_settings,
            makes,
        }
    }

    /// Whether a catalogue shows what the session has defined. A later check does not prove it: a check renews the lease while changes that the
    /// stream has delivered are still to be read.
    pub(crate) fn shows_own_definitions(&self, version: CatalogVersion) -> bool {
        let shows = |since| self.shared.cache.reflects(&Watermark { since, ..Watermark::default() }, version);
        self.definitions.defined_at().is_none_or(shows)
    }

    /// The tables that an ordinary write may touch, and the catalogue that says so.
    pub(crate) fn written(&self, statement: &Statement) -> Option<(CatalogVersion, Arc<[TableId]>)> {
        let Known::Context(context, _) = &self.server.settings.known else { return None };
        let catalog = self.shared.catalog.load();
        let same = context.schemas == self.server.settings.schemas;
        let written = same.then(|| statement.query.resolve(&catalog, context).written).flatten()?;
        Some((catalog.version, written))
    }

    /// A command has been answered, and the answer is in the client's output.
    pub(crate) async fn after(
        &mut self,
        mark: &Mark,
        statement: Option<&Arc<Statement>>,
        done: &Done,
        was: Status,
    ) -> Result<(), SessionError> {
        let unread = self.at_hand.unread.clone();
        self.followed(mark, statement, done, was).await;
        if self.server.pooling.is_some() {
            self.note_state(*mark, statement, unread.as_ref(), done);
        }
        if mark.effect >= Effect::Settings && self.sets_unlogged(statement, unread.as_deref()) {
            self.wait_for_catalog().await;
        }
        let opens = matches!(mark.effect, Effect::Settings | Effect::TransactionControl) && !mark.writes;
        self.server.settings.opening &= opens;
        // It is acknowledged, and definitions need no COMMIT.
        self.definitions.acknowledged();
        Ok(())
    }

    /// Whether a statement that was answered may have set a global variable on which results depend, as far as its text is known.
    fn sets_unlogged(&self, statement: Option<&Arc<Statement>>, unread: Option<&Code>) -> bool {
        let says = |code: &Code| code.words().any(|word| UNLOGGED.contains(&word));
        statement.is_some_and(|statement| says(statement.query.code()))
            || statement.and_then(|_| self.server.settings.temporaries.named.run()).is_some_and(|code| says(code))
            || unread.is_some_and(says)
    }

    async fn followed(&mut self, mark: &Mark, statement: Option<&Arc<Statement>>, done: &Done, was: Status) {
        let failed = done.error.is_some();
        let told = self.take_told(*mark, done);
        let clears = statement.is_some_and(|statement| self.clears_warnings(statement));
        self.answer.warned = failed || done.warnings > 0 || self.answer.warned && !clears;
        self.answer.outcome = match (failed, done.cursor) {
            (true, _) => Outcome::Failed,
            (false, true) => Outcome::Cursor,
            (false, false) => Outcome::Plain,
        };
        if done.prepared.is_none() {
            self.answer.row_count = RowCount::behind(done);
        }
        if let Some(status) = done.status {
            self.note_status(status.without(OF_ONE_STATEMENT));
        }
        // The rows of a cursor may be read later.
        self.transaction.sure_by = self.transaction.sure_by.filter(|_| !done.cursor);
        let unread = self.at_hand.unread.clone();
        self.note_temporaries(*mark, statement, done.error);
        if !mark.keeps_settings {
            self.server.settings.doubt();
        }
        if !matches!(mark.effect, Effect::Pure | Effect::Write) {
            self.follow_settings(statement, unread.as_deref(), done.status);
        }
        let now = self.now();
        if mark.reads || mark.writes {
            self.raise_watermark(now);
        }
        if mark.effect >= Effect::Definition {
            self.watermark.note_definition(now);
            if mark.runs_stored_code() || may_define_code(statement, unread.as_deref()) {
                self.definitions.defined(now);
            }
        }
        if !failed && done.status.is_none() {
            return; // it shows nothing about transactions
        }
        let was_in_transaction = was.has(Status::IN_TRANS);
        let proven = self.transaction.proven_before.take();
        let answered = Answered { failed, rows: done.rows, was_in_transaction, proven, now };
        if self.follow_block(*mark, answered) {
            // A failed statement may have left a transaction open, and a procedure may have opened one.
            let ended = !failed && !self.status.has(Status::IN_TRANS);
            let touched = if ended { std::mem::take(&mut self.transaction.touched) } else { Touched::Anything };
            self.acknowledge(told, &touched, Written { mark: *mark, statement, done, was }).await;
        }
    }

    /// Whether a statement without warnings of its own leaves an empty list of them. MariaDB keeps the list over statements without a table.
    fn clears_warnings(&self, statement: &Statement) -> bool {
        let template = &statement.query.template;
        let has_table = template.names_relations() || is_dml(first_word(&statement.query.text));
        has_table || !self.server.about.version.is_mariadb && !template.reads_diagnostics()
    }

    /// A statement that may change settings was answered: notes what is known of that without a query. `unread`: the code of a statement that is not
    /// known.
    fn follow_settings(&mut self, statement: Option<&Arc<Statement>>, unread: Option<&Code>, status: Option<Status>) {
        let Some(statement) = statement else {
            self.server.settings.schemas.clear();
            self.server.settings.reading = Reading::default();
            if unread.is_some() {
                self.server.settings.ran(unread);
            }
            return;
        };
        let (query, template) = (&statement.query.text, &statement.query.template);
        let word = first_word(query).to_ascii_lowercase();
        let says = |word: &str| statement.query.code().words().any(|other| other == word);
        let text = statement.text();
        if template.refusal() == Some(&Reason::SeveralStatements) {
            self.server.settings.changed_by(text, None);
            self.server.settings.ran_several(statement.query.code());
            return;
        }
        match word.as_str() {
            "set" => self.server.settings.changed_by(text, status),
            // It may run a SET.
            "execute" => {
                let code = self.server.settings.temporaries.named.run().cloned();
                self.server.settings.ran(code.as_deref());
            }
            "use" if status.is_some() => {
                let name = used_database(text);
                self.server.settings.use_database(name.as_deref());
            }
            "lock" => self.server.settings.locked = true,
            "flush" => {
                let query = query.to_ascii_lowercase();
                self.server.settings.locked |= query.contains("lock") || query.contains("export");
            }
            // Not UNLOCK INSTANCE, nor START REPLICA.
            "unlock" if says("tables") || says("table") => self.server.settings.locked = false,
            "begin" | "start" if matches!(template.bracket(), Some(Bracket::Begin(_))) => {
                self.server.settings.locked = false;
            }
            "drop" if says("database") || says("schema") => self.server.settings.schemas.clear(),
            // The code may choose another database, or drop it; comments with code may set anything.
            _ if template.effect() == Effect::Forgets => {
                self.server.settings.changed_by(text, None);
                self.server.settings.ran(Some(statement.query.code()));
                self.server.settings.schemas.clear();
            }
            _ => {}
        }
    }

    /// The client has read data of unknown age.
    pub(crate) fn raise_watermark(&mut self, now: Nanos) {
        self.watermark.raise(now);
    }

    /// The OK of the login is in the client's output.
    pub(crate) fn logged_in(&mut self) {
        let payload = std::mem::take(&mut self.server.about.ok);
        if let Ok(ok) = OkPacket::parse(&payload, self.server.about.upstream()) {
            self.note_status(ok.status.without(OF_ONE_STATEMENT));
            let done = Done { status: Some(ok.status), ..Done::default() };
            self.server.settings.told(&payload, &done, self.server.about.upstream());
        }
        self.transaction.reset(self.autocommits(), self.server.settings.era);
    }

    /// COM_CHANGE_USER: another login on the same connection; false if the session ends.
    pub(crate) async fn change_user(&mut self, command: Command) -> Result<bool, SessionError> {
        let packet = self.client.input.bytes().get(..command.header.packet_bytes()).unwrap_or_default().to_vec();
        self.client.input.consume(packet.len());
        let payload = packet.get(HEADER_BYTES..).unwrap_or_default();
        let shared = self.shared.clone();
        let mut client = Leg { peer: &mut self.client, sequence: 1 };
        let Some((socket, about)) = self.server.login() else { return Ok(false) };
        let mut upstream = Leg { peer: socket, sequence: 0 };
        let outcome = if let Some(users) = &shared.access.users {
            change_user(&mut client, &mut upstream, users, payload, about.capabilities).await
        } else {
            upstream.put(payload);
            let change = ChangeUser::parse(payload, about.capabilities).ok();
            if let Some(plugin) = change.and_then(|change| change.plugin) {
                about.plugin.name = plugin.to_vec();
            }
            let plugin = &mut about.plugin;
            let mut exchange = Exchange { client, upstream, plugin, key: &shared.access.key };
            let outcome = exchange.run().await;
            client = exchange.client;
            outcome
        };
        match outcome {
            Ok(ok) => {
                let mut sequence = client.sequence;
                let shown = login_ok(&ok, self.server.about.tracks, self.server.about.capabilities);
                packet::put(self.client.output.buffer(), &mut sequence, &shown);
                self.changed_user(payload, ok);
                Ok(true)
            }
            Err(Refusal::Gone) => Ok(false),
            Err(refusal) => {
                refusal.count(client.peer.socket().peer_ip(), &shared);
                refusal.put(&mut client);
                // In any case the server has ended the previous session; its answer says whether the connection continues.
                self.begin_anew();
                self.stop_sharing();
                self.server.settings.schemas.clear();
                Ok(matches!(refusal, Refusal::Relay(..)) && shared.access.users.is_none())
            }
        }
    }

    /// The connection is another user's now, or nobody's.
    fn stop_sharing(&mut self) {
        self.note_pin(Some(Pin::Unknown.name()));
        if let Some(pooling) = &mut self.server.pooling {
            pooling.stop_sharing();
        }
    }

    fn changed_user(&mut self, payload: &[u8], ok: Vec<u8>) {
        self.begin_anew();
        self.stop_sharing();
        if let Ok(change) = ChangeUser::parse(payload, self.server.about.capabilities) {
            self.server.about.user = String::from_utf8_lossy(change.user).into_owned();
            self.server.settings.use_database(std::str::from_utf8(change.database).ok());
        }
        self.server.about.ok = ok;
        self.logged_in();
    }
}

/// The database in `USE name`; None if the statement has another form.
fn used_database(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let (word, name) = text.split_at_checked(3)?;
    let name = name.trim().trim_end_matches(';').trim_end();
    let name = match name.strip_prefix('`') {
        Some(quoted) => quoted.strip_suffix('`')?,
        None => name,
    };
    let plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'));
    (word.eq_ignore_ascii_case("use") && plain).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_database_is_read_where_it_is_plain() {
        for (text, name) in [
            ("use shop", Some("shop")),
            (" USE `my-shop` ; ", Some("my-shop")),
            ("use `a``b`", None),
            ("use", None),
            ("use a; use b", None),
            ("user x", None),
        ] {
            assert_eq!(used_database(text.as_bytes()).as_deref(), name, "{text}");
        }
    }
}
