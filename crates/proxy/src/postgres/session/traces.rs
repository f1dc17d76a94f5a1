//! What a session may have left on its server connection, as far as that is known.
//!
//! Statements of which it is known that they leave nothing are few: reads, the brackets of transactions, and writes that run only the server's own
//! code. Behind any other the server is asked, once the session is at rest ([`crate::postgres::pooling::rest_question`]). What it finds keeps the
//! connection with the session, until it is asked again behind a later statement. What it cannot be asked for keeps it for ever.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use freshet_sql::Effect;

use crate::postgres::pooling::rest_question::Lives;
use crate::statement::registry::Statement;

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
    /// This.
    Kept(&'static str),
}

/// What a session may have left.
#[derive(Debug, Default)]
pub(super) struct Traces {
    known: Known,
    /// A statement behind which the server was not asked yet may have run code that is not the server's own.
    runs_code: bool,
    /// What keeps the connection to the session's end.
    lasting: Option<&'static str>,
    /// It may have taken numbers from sequences.
    sequences: bool,
    /// The same, and it has given its connection back since.
    sequences_left: bool,
}

impl Traces {
    /// A statement with this effect is sent. `keeps_settings`: it runs only the server's own code.
    pub(super) fn note(&mut self, effect: Effect, keeps_settings: bool) {
        match effect {
            Effect::Pure | Effect::TransactionControl => return,
            Effect::Write if keeps_settings => {}
            Effect::Settings | Effect::Signal => self.known = Known::Unsettled,
            Effect::Write | Effect::Definition | Effect::Forgets => {
                self.known = Known::Unsettled;
                self.runs_code = true;
            }
        }
        self.sequences = true;
    }

    /// The text of a statement that is sent. `reads_sequences`: any session has read the state of sequences.
    pub(super) fn note_names(&mut self, statement: Option<&Statement>, reads_sequences: &AtomicBool) {
        let Some(name) = statement.and_then(Statement::unaskable) else { return };
        self.lasting.get_or_insert(name);
        if matches!(name, "currval" | "lastval") {
            reads_sequences.store(true, Relaxed);
        }
    }

    /// A named statement is prepared or closed.
    pub(super) fn note_prepared(&mut self) {
        self.known = Known::Unsettled;
    }

    /// What was sent is no message that a server knows.
    pub(super) fn note_garbage(&mut self) {
        self.lasting = Some("garbage");
    }

    /// Whether a read of the state of sequences would find that of another connection.
    pub(super) fn has_lost_sequences(&self) -> bool {
        self.sequences_left && matches!(self.lasting, Some("currval" | "lastval"))
    }

    pub(super) fn must_ask(&self) -> bool {
        self.known == Known::Unsettled && self.lasting.is_none()
    }

    pub(super) fn asked(&mut self) {
        self.known = Known::Asked;
    }

    /// The server has answered; None: the question has failed. `origin`: what lived there right after the login.
    pub(super) fn answered(&mut self, lives: Option<&Lives>, origin: &Lives) {
        if self.known != Known::Asked {
            return; // something was sent since
        }
        self.known = match lives {
            None => Known::Kept("unknown"),
            Some(lives) if !lives.settings.is_empty() => Known::Kept("settings"),
            Some(lives) if lives.users != origin.users => Known::Kept("role"),
            Some(lives) => OBJECTS.into_iter().find(|object| lives.has(object)).map_or(Known::Clean, Known::Kept),
        };
        if std::mem::take(&mut self.runs_code) && lives.is_none_or(|lives| lives.has("code")) {
            self.lasting.get_or_insert("code");
        }
    }

    /// What keeps the connection, as far as is known.
    pub(super) fn pin(&self, reads_sequences: &AtomicBool) -> Option<&'static str> {
        if self.lasting.is_some() {
            return self.lasting;
        }
        match self.known {
            Known::Clean if self.sequences && reads_sequences.load(Relaxed) => Some("sequence"),
            Known::Clean => None,
            Known::Unsettled | Known::Asked => Some("unknown"),
            Known::Kept(what) => Some(what),
        }
    }

    /// Whether nothing lives there.
    pub(super) fn is_clean(&self, reads_sequences: &AtomicBool) -> bool {
        self.pin(reads_sequences).is_none()
    }

    /// The connection is given back.
    pub(super) fn left(&mut self) {
        self.sequences_left |= self.sequences;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(objects: &str, settings: &[&str]) -> Lives {
        Lives {
            settings: settings.iter().map(|setting| (*setting).into()).collect(),
            base: String::new(),
            users: "u u".to_owned(),
            objects: objects.to_owned(),
        }
    }

    #[test]
    fn statements_that_may_leave_something_are_asked_for() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Pure, false);
        traces.note(Effect::TransactionControl, false);
        traces.note(Effect::Write, true);
        assert!(traces.is_clean(&nobody) && !traces.must_ask());
        traces.note(Effect::Signal, false);
        assert!(!traces.is_clean(&nobody) && traces.must_ask());
        traces.asked();
        traces.answered(Some(&lives("listen", &[])), &origin);
        assert_eq!((traces.pin(&nobody), traces.must_ask()), (Some("listen"), false));
        traces.note(Effect::Signal, false);
        traces.asked();
        traces.answered(Some(&lives("code", &[])), &origin);
        assert!(traces.is_clean(&nobody), "no code was run");
    }

    #[test]
    fn an_answer_to_an_earlier_question_tells_nothing() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Settings, false);
        traces.asked();
        traces.note(Effect::Settings, false);
        traces.answered(Some(&origin), &origin);
        assert!(traces.must_ask() && !traces.is_clean(&nobody));
        traces.asked();
        traces.answered(None, &origin);
        assert_eq!(traces.pin(&nobody), Some("unknown"));
        traces.note(Effect::Settings, false);
        traces.asked();
        traces.answered(Some(&lives("", &["TimeZone=UTC"])), &origin);
        assert_eq!(traces.pin(&nobody), Some("settings"));
    }

    #[test]
    fn code_that_may_keep_something_keeps_the_connection_for_ever() {
        let (nobody, origin) = (AtomicBool::new(false), lives("", &[]));
        let mut traces = Traces::default();
        traces.note(Effect::Write, false);
        traces.asked();
        traces.answered(Some(&lives("code", &[])), &origin);
        traces.note(Effect::Write, false);
        assert_eq!((traces.pin(&nobody), traces.must_ask()), (Some("code"), false));
    }

    #[test]
    fn sequences_keep_it_once_anybody_reads_them() {
        let reads = AtomicBool::new(false);
        let mut traces = Traces::default();
        traces.note(Effect::Write, true);
        assert!(traces.is_clean(&reads));
        reads.store(true, Relaxed);
        assert_eq!(traces.pin(&reads), Some("sequence"));
    }
}
