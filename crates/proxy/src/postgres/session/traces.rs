//! What a session may have left on its server connection, as far as that is known.
//!
//! Statements of which it is known that they leave nothing are few: reads, the brackets of transactions, and writes that run only the server's own
//! code. Behind any other the server is asked, once the session is at rest ([`crate::postgres::pooling::rest_question`]). What it finds keeps the
//! connection with the session, until it is asked again behind a later statement. What it cannot be asked for keeps it for ever.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use freshet_sql::Effect;

use crate::postgres::pooling::application_settings::SettingNames;
use crate::postgres::pooling::labels::{Label, OF_PREPARING, SetThere, label_of, of_preparing};
use crate::postgres::pooling::rest_question::Lives;
use crate::statement::registry::{Statement, reads_sequence};

/// What the server can be asked for, by the names of the question.
const OBJECTS: [&str; 6] =
    ["temporary_table", "cursor", "advisory_lock", "listen", "prepared_statement", "replication_slot"];

/// What is known of what lives on the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing.
    #[default]
    Clean,
    /// A statement may have left something.
    Unsettled,
    /// The server has been asked behind it.
    Asked,
    /// The question has failed: perhaps a function has dropped all prepared statements, Freshet's too.
    Failed,
    /// The server has been asked again.
    AskedAgain,
    /// This.
    Kept(&'static str),
}

/// What may be in force on the connection, beside what others see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Amid {
    /// Nothing: the settings are those of the session's label.
    #[default]
    Label,
    /// Settings that code may have changed, or such that no constant depends on them.
    Others,
    /// Definitions that may be rolled back.
    Definitions,
    /// Settings on which the meaning of constants or names depends, or plans.
    Constants,
}

/// What a session may have left.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what it may have done, each by itself")]
pub(super) struct Traces {
    known: Known,
    amid: Amid,
    /// The same, of statements behind the question, of which the answer says nothing.
    amid_since_asked: Amid,
    /// A statement behind which the server was not asked yet may have run code that is not the server's own.
    runs_code: bool,
    /// What keeps the connection to the session's end.
    lasting: Option<&'static str>,
    /// A text of it may read the state of sequences.
    reads_sequences: bool,
    /// It may have taken numbers from sequences.
    sequences: bool,
    /// The same, and it has given its connection back since.
    sequences_left: bool,
    names: SettingNames,
    /// What it has set, when the server was asked last.
    label: Label,
    /// The part on which prepared statements depend.
    of_preparing: Label,
    label_changes: u64,
    /// As of this number of changes of the label, no prepared statement was made under other settings.
    pub(super) fits_since: u64,
    /// As of this number of them, the context was asked for.
    pub(super) asked_since: u64,
}

impl Traces {
    /// A statement with this effect is sent. `keeps_settings`: it runs only the server's own code. `sets`: see [`set_by`].
    /// `is_local`: it changes settings for its transaction alone.
    pub(super) fn note(&mut self, effect: Effect, keeps_settings: bool, sets: Amid, is_local: bool) {
        if matches!(effect, Effect::Pure | Effect::TransactionControl) {
            return;
        }
        self.sequences = true;
        if unsettles(effect, keeps_settings) {
            if !(is_local && effect == Effect::Settings) {
                self.known = Known::Unsettled;
                self.runs_code |= !matches!(effect, Effect::Settings | Effect::Signal);
            }
            let amid = match effect {
                _ if sets == Amid::Constants => sets,
                Effect::Definition | Effect::Forgets => Amid::Definitions,
                Effect::Settings => sets,
                _ => Amid::Others,
            };
            self.amid = self.amid.max(amid);
            self.amid_since_asked = self.amid_since_asked.max(amid);
        }
    }

    /// Amid what its statements are prepared now.
    pub(super) fn amid(&self) -> Amid {
        self.amid
    }

    /// The text of a statement that is sent. `may_set`: it does not only run what changes no setting; else names are nothing but words of it.
    /// `reads_sequences`: any session has read the state of sequences.
    pub(super) fn note_names(&mut self, statement: &Statement, may_set: bool, reads_sequences: &AtomicBool) {
        if may_set {
            match statement.application_settings().and_then(|names| self.names.note(names)) {
                Some(true) => {}
                Some(false) => self.known = Known::Unsettled,
                None => self.note_unread_setting(),
            }
        }
        if let Some(name) = statement.unaskable() {
            self.note_unaskable(name, reads_sequences);
        }
    }

    /// A text names what the server cannot be asked for.
    pub(super) fn note_unaskable(&mut self, name: &'static str, reads_sequences: &AtomicBool) {
        self.lasting.get_or_insert(name);
        if reads_sequence(name) {
            self.reads_sequences = true;
            reads_sequences.store(true, Relaxed);
        }
    }

    /// A setting of an application may have been set whose name is not known.
    pub(super) fn note_unread_setting(&mut self) {
        self.lasting.get_or_insert("application_setting");
    }

    /// What a connection must have for the session.
    pub(super) fn set_there(&self) -> SetThere {
        SetThere { names: self.names.known().clone(), label: self.label.clone() }
    }

    /// The settings under which its statements are prepared.
    pub(super) fn of_preparing(&self) -> &Label {
        &self.of_preparing
    }

    pub(super) fn label_changes(&self) -> u64 {
        self.label_changes
    }

    /// Whether it has changed no setting.
    pub(super) fn has_no_label(&self) -> bool {
        self.label.is_empty()
    }

    /// Whether it has left nothing, and has set nothing but what can be carried.
    pub(super) fn has_label_only(&self) -> bool {
        self.known == Known::Clean && self.lasting.is_none() && self.amid == Amid::Label && self.names.is_empty()
    }

    /// Whether it may have taken numbers from sequences.
    pub(super) fn has_sequences(&self) -> bool {
        self.sequences
    }

    /// A session of another process begins here.
    pub(super) fn begin_carried(&mut self, label: &Label, has_sequences: bool) {
        (self.label, self.of_preparing) = (label.clone(), of_preparing(label));
        (self.sequences, self.sequences_left) = (has_sequences, has_sequences);
    }

    /// Whether the server's answer will tell the settings that its statements have changed.
    pub(super) fn awaits_settings(&self) -> bool {
        self.amid != Amid::Label && matches!(self.known, Known::Asked | Known::AskedAgain)
    }

    /// The names to ask for: see [`SettingNames::to_ask`].
    pub(super) fn names_to_ask(&self) -> String {
        self.names.to_ask()
    }

    /// At rest: settings that statements had for their transactions alone are as before.
    pub(super) fn rest(&mut self) {
        let is_known = match self.known {
            Known::Clean => true,
            Known::Kept(what) => !matches!(what, "settings" | "role" | "unknown"),
            _ => false,
        };
        if is_known {
            (self.amid, self.amid_since_asked) = (Amid::Label, Amid::Label);
        }
    }

    /// A named statement is prepared or closed.
    pub(super) fn note_prepared(&mut self) {
        self.known = Known::Unsettled;
    }

    /// Channels are handed over, or taken back.
    pub(super) fn channels_changed(&mut self) {
        self.known = Known::Unsettled;
    }

    /// What was sent is no message that a server knows.
    pub(super) fn note_garbage(&mut self) {
        self.lasting = Some("invalid_message");
    }

    /// Whether a read of the state of sequences would find that of another connection.
    pub(super) fn has_lost_sequences(&self) -> bool {
        self.sequences_left && self.reads_sequences
    }

    pub(super) fn must_ask(&self) -> bool {
        matches!(self.known, Known::Unsettled | Known::Failed) && self.lasting.is_none()
    }

    pub(super) fn asked(&mut self) {
        self.known = if self.known == Known::Failed { Known::AskedAgain } else { Known::Asked };
        self.amid_since_asked = Amid::Label;
    }

    /// The server has answered; None: the question has failed. `origin`: what lived there right after the login. False: something was sent since that
    /// may have changed it.
    pub(super) fn answered(&mut self, lives: Option<&Lives>, origin: &Lives) -> bool {
        match (self.known, lives) {
            (Known::Asked, None) => {
                self.known = Known::Failed;
                return true;
            }
            (Known::Asked | Known::AskedAgain, _) => {}
            _ => return false,
        }
        let label = lives.and_then(|lives| match &*origin.settings {
            [] => label_of(&lives.settings),
            // The login itself has set them, and RESET does not lead back to it.
            by_login => (*lives.settings == *by_login).then(Label::default),
        });
        let is_known = label.is_some() && lives.is_some_and(|lives| lives.users == origin.users);
        self.amid = if is_known { self.amid_since_asked } else { Amid::Constants };
        if let Some(label) = &label
            && self.label != *label
        {
            (self.label, self.of_preparing) = (label.clone(), of_preparing(label));
            self.label_changes += 1;
        }
        let has_value = lives.is_some_and(|lives| self.names.told(&lives.names, lives.base == origin.base));
        self.known = match lives {
            None => Known::Kept("unknown"),
            Some(_) if label.is_none() => Known::Kept("settings"),
            Some(lives) if lives.users != origin.users => Known::Kept("role"),
            Some(_) if has_value => Known::Kept("application_setting"),
            Some(lives) => OBJECTS.into_iter().find(|object| lives.has(object)).map_or(Known::Clean, Known::Kept),
        };
        if std::mem::take(&mut self.runs_code) && lives.is_none_or(|lives| lives.has("code")) {
            self.lasting.get_or_insert("code");
        }
        true
    }

    /// What keeps the connection, as far as is known.
    pub(super) fn pin(&self, reads_sequences: &AtomicBool) -> Option<&'static str> {
        if self.lasting.is_some() {
            return self.lasting;
        }
        match self.known {
            Known::Clean if self.sequences && reads_sequences.load(Relaxed) => Some("sequence"),
            Known::Clean => None,
            Known::Unsettled | Known::Asked | Known::Failed | Known::AskedAgain => Some("unknown"),
            Known::Kept(what) => Some(what),
        }
    }

    /// The connection is given back.
    pub(super) fn left(&mut self) {
        self.sequences_left |= self.sequences;
    }
}

/// Amid what statements are prepared behind this text; Label: it sets nothing but settings of applications, on which it does not depend what the server
/// makes of a statement when it prepares or plans it. What functions change, unseen, is not looked for.
pub(super) fn set_by(text: &[u8]) -> Amid {
    // Beside the names of the settings.
    const WORDS: [&str; 8] = ["schema", "role", "authorization", "time zone", "encoding", "names", "xml", "lc_"];
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let amid = |statement: &str| {
        if let Some(amid) = set_by_applications(statement) {
            return amid;
        }
        // The name may be computed.
        let is_computed = statement.split("set_config").skip(1).any(|call| !call.starts_with("('"));
        let is_all = statement.contains("reset") && statement.contains("all");
        let is_found = is_computed || is_all || OF_PREPARING.iter().chain(&WORDS).any(|name| statement.contains(name));
        if is_found { Amid::Constants } else { Amid::Others }
    };
    // A constant with a semicolon makes pieces that are read as statements, which only finds more.
    text.split(';').filter(|statement| !statement.trim_ascii().is_empty()).map(amid).max().unwrap_or(Amid::Others)
}

/// The same for a SET, or a query with set_config, that names settings of applications and no others, whatever their values say; None: it is no such
/// statement. `text` is in small letters.
fn set_by_applications(text: &str) -> Option<Amid> {
    let is_applications = |name: &str| {
        name.contains('.') && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.'))
    };
    let mut words = text.split_ascii_whitespace();
    match words.next()? {
        "set" => {
            let name = words.find(|word| !matches!(*word, "local" | "session"))?;
            is_applications(name.split('=').next()?).then_some(Amid::Label)
        }
        "select" => {
            let calls: Vec<&str> = text.split("set_config").skip(1).collect();
            let is_named = |call: &&str| {
                call.strip_prefix("('").and_then(|name| name.split('\'').next()).is_some_and(is_applications)
            };
            let may_run_code = text.matches('(').count() > calls.len() || words.any(|word| word == "from");
            let amid = if may_run_code { Amid::Others } else { Amid::Label };
            (!calls.is_empty() && calls.iter().all(is_named)).then_some(amid)
        }
        _ => None,
    }
}

/// Whether a statement may leave something. `keeps_settings`: it runs only the server's own code.
pub(super) fn unsettles(effect: Effect, keeps_settings: bool) -> bool {
    match effect {
        Effect::Pure | Effect::TransactionControl => false,
        Effect::Write => !keeps_settings,
        Effect::Settings | Effect::Signal | Effect::Definition | Effect::Forgets => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn lives(objects: &str, settings: &[&str]) -> Lives {
        Lives {
            settings: settings.iter().map(|setting| (*setting).into()).collect(),
            base: String::new(),
            users: "u u".to_owned(),
            objects: objects.to_owned(),
            names: String::new(),
        }
    }

    #[test]
    fn statements_that_may_leave_something_are_asked_for() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Pure, false, Amid::Others, false);
        traces.note(Effect::TransactionControl, false, Amid::Others, false);
        traces.note(Effect::Write, true, Amid::Others, false);
        assert!(traces.pin(&nobody).is_none() && !traces.must_ask());
        traces.note(Effect::Signal, false, Amid::Others, false);
        assert!(traces.pin(&nobody).is_some() && traces.must_ask() && traces.amid() == Amid::Others);
        traces.asked();
        traces.answered(Some(&lives("listen", &[])), &origin);
        assert_eq!(traces.amid(), Amid::Label, "its settings are known");
        assert_eq!((traces.pin(&nobody), traces.must_ask()), (Some("listen"), false));
        traces.note(Effect::Signal, false, Amid::Others, false);
        traces.asked();
        traces.answered(Some(&lives("code", &[])), &origin);
        assert!(traces.pin(&nobody).is_none(), "no code was run");
    }

    #[test]
    fn an_answer_to_an_earlier_question_tells_nothing() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Settings, false, Amid::Others, false);
        traces.asked();
        traces.note(Effect::Settings, false, Amid::Others, false);
        traces.answered(Some(&origin), &origin);
        assert!(traces.must_ask() && traces.pin(&nobody).is_some());
        traces.asked();
        traces.answered(None, &origin);
        assert!(traces.must_ask(), "once more");
        traces.asked();
        traces.answered(None, &origin);
        assert_eq!((traces.pin(&nobody), traces.must_ask()), (Some("unknown"), false));
        traces.note(Effect::Settings, false, Amid::Others, false);
        traces.asked();
        traces.answered(Some(&lives("", &["temp_buffers=1MB"])), &origin);
        assert_eq!((traces.pin(&nobody), traces.amid()), (Some("settings"), Amid::Constants));
        traces.note(Effect::Settings, false, Amid::Constants, false);
        traces.asked();
        assert!(traces.awaits_settings());
        traces.answered(Some(&lives("", &["TimeZone=UTC", "jit=off"])), &origin);
        assert_eq!((traces.pin(&nobody), traces.amid(), traces.set_there().label.len()), (None, Amid::Label, 2));
        assert_eq!(**traces.of_preparing(), ["TimeZone=UTC".into()] as [Arc<str>; 1]);
    }

    #[test]
    fn what_is_set_for_a_transaction_behind_the_question_is_not_in_the_answer() {
        let origin = lives("", &[]);
        let mut traces = Traces::default();
        traces.note(Effect::Settings, false, Amid::Constants, false);
        traces.asked();
        traces.note(Effect::Settings, false, Amid::Constants, true);
        traces.answered(Some(&lives("", &["TimeZone=UTC"])), &origin);
        assert_eq!((traces.amid(), traces.awaits_settings(), traces.must_ask()), (Amid::Constants, false, false));
        traces.rest();
        assert_eq!(traces.amid(), Amid::Label, "the transaction has ended");
    }

    #[test]
    fn settings_of_the_login_itself_are_no_label_and_not_to_be_reset() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &["TimeZone=UTC"]));
        let mut traces = Traces::default();
        for (settings, pin) in [
            (&["TimeZone=UTC"][..], None),
            (&[], Some("settings")),
            (&["TimeZone=UTC", "jit=off"], Some("settings")),
            (&["TimeZone=UTC"], None),
        ] {
            traces.note(Effect::Settings, false, Amid::Others, false);
            traces.asked();
            traces.answered(Some(&lives("", settings)), &origin);
            assert_eq!((traces.pin(&nobody), traces.has_no_label()), (pin, true), "{settings:?}");
        }
    }

    #[test]
    fn code_that_may_keep_something_keeps_the_connection_for_ever() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Write, false, Amid::Others, false);
        traces.asked();
        traces.answered(Some(&lives("code", &[])), &origin);
        traces.note(Effect::Write, false, Amid::Others, false);
        assert_eq!((traces.pin(&nobody), traces.must_ask()), (Some("code"), false));
    }

    #[test]
    fn settings_that_constants_depend_on_are_found() {
        for text in [
            "SET DateStyle = german",
            "set local time zone 'UTC'",
            "set names 'latin1'",
            "select set_config($1, '', true)",
            "select set_config('role', 'anon', true)",
            "set search_path = a",
            "RESET  ALL",
            "set app.tenant = '1'; set role x",
            "select set_config('app.tenant', ';', true), set_config('timezone', 'UTC', true)",
            "set /*.*/ role = x",
            "select set_config('app.tenant', set_config('timezone', 'UTC', true), true)",
            "select set_config('app.tenant', '1', true), set_config($1, '', true)",
        ] {
            assert_eq!(set_by(text.as_bytes()), Amid::Constants, "{text}");
        }
        for name in OF_PREPARING {
            assert_eq!(set_by(format!("set {name} = default").as_bytes()), Amid::Constants, "{name}");
        }
        for text in [
            "set local app.tenant = '1'",
            "SET LOCAL app.user_role='names';",
            "select set_config('request.jwt.claims', '{\"role\": \"anon\"}', true), set_config('app.schema', $1, true)",
        ] {
            assert_eq!(set_by(text.as_bytes()), Amid::Label, "{text}");
        }
        for text in [
            "set work_mem = '1MB'",
            "select set_config('app.tenant', f(), true)",
            "begin; set local app.role = 'names'",
        ] {
            assert_eq!(set_by(text.as_bytes()), Amid::Others, "{text}");
        }
        let mut traces = Traces::default();
        traces.note(Effect::Settings, false, Amid::Constants, false);
        traces.note(Effect::Definition, false, Amid::Others, false);
        assert_eq!(traces.amid(), Amid::Constants);
    }

    #[test]
    fn sequences_keep_it_once_anybody_reads_them() {
        let reads = AtomicBool::new(false);
        let mut traces = Traces::default();
        traces.note(Effect::Write, true, Amid::Others, false);
        assert!(traces.pin(&reads).is_none());
        reads.store(true, Relaxed);
        assert_eq!(traces.pin(&reads), Some("sequence"));
    }

    #[test]
    fn sequences_that_were_left_are_lost_whatever_keeps_the_connection() {
        let reads = AtomicBool::new(false);
        let mut traces = Traces::default();
        traces.note(Effect::Write, true, Amid::Others, false);
        traces.left();
        traces.note_unaskable("setseed", &reads);
        assert!(!traces.has_lost_sequences());
        traces.note_unaskable("currval", &reads);
        assert!(traces.has_lost_sequences() && traces.pin(&reads) == Some("setseed"));
    }

    #[test]
    fn values_of_later_logins_are_not_those_of_the_sessions_own() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.names.note(&["app.x".into()]);
        for (base, pin) in [("", None), ("other", Some("application_setting"))] {
            traces.note(Effect::Settings, false, Amid::Others, false);
            traces.asked();
            traces.answered(Some(&Lives { base: base.to_owned(), names: "l".to_owned(), ..origin.clone() }), &origin);
            assert_eq!(traces.pin(&nobody), pin);
        }
    }
}
