//! Whether code with an unknown text has made temporary tables, by the server's own counters.
//!
//! Both servers count for each session how often it has executed each kind of statement, in prepared statements and in stored code too: MariaDB's
//! `Com_create_temporary_table`; MySQL's `Com_create_table`, which includes permanent tables. If such a counter has risen by no more than the
//! statements that the session is known to have sent, then the unknown code has made no table, whatever else it has done. While there are temporary
//! tables, such code may also rename one (`Com_alter_table`, `Com_rename_table`). And it may lock tables (`Com_lock_tables`, `Com_flush`), or set
//! anything (`Com_set_option`).
//!
//! FLUSH STATUS sets all of them to 0, also within such code. Then `Bytes_sent` begins at 0 as well, and is smaller than what has come from the server
//! since the counters were last read. A reset of the session (COM_RESET_CONNECTION, COM_CHANGE_USER) sets them to 0, and drops the temporary tables.
//!
//! The server is asked before a read that the code would otherwise keep from the cache, in one network packet with the question for the context. The
//! question resets the warnings, so that read must do so as well: it must read a table. It must also replace FOUND_ROWS(), or it is found again. The
//! question ends no transaction, and leaves a level that was set for the next one.

use crate::mysql::session::counted::Counts;
use crate::mysql::session::known::Allowed;
use crate::mysql::session::settings::Said;
use crate::mysql::session::{Session, SessionError};
use crate::statement::registry::Statement;

/// The question, after one for the number of rows found that it replaces.
const FOUND_ROWS: &str = "SELECT FOUND_ROWS()";
const QUESTION: &str = "SHOW SESSION STATUS WHERE Variable_name IN ('Com_create_table', 'Com_create_temporary_table', \
     'Com_alter_table', 'Com_rename_table', 'Com_lock_tables', 'Com_flush', 'Com_set_option', 'Bytes_sent')";

/// The counters in the names and values of an answer; None if some are missing.
fn read(said: &Said, mariadb: bool) -> Option<Counts> {
    let of = |name: &str| {
        let row = said.rows().find(|row| row.first().and_then(Option::as_deref) == Some(name))?;
        row.get(1)?.as_deref()?.parse::<u64>().ok()
    };
    let sum = |one, other| of(one)?.checked_add(of(other)?);
    let created = of(if mariadb { "Com_create_temporary_table" } else { "Com_create_table" })?;
    Some(Counts {
        created,
        renamed: sum("Com_alter_table", "Com_rename_table")?,
        locked: sum("Com_lock_tables", "Com_flush")?,
        set: of("Com_set_option")?,
        sent: of("Bytes_sent")?,
    })
}

impl Session {
    /// Whether the counters may show that this read need not pass.
    pub(crate) fn decide_to_count(&mut self, statement: &Statement) -> bool {
        self.server.settings.temporaries.are_unsure()
            && statement.query.template.names_relations()
            && !matches!(self.allowed_if_known(), Allowed::Pass(_))
    }

    /// Asks for the session's context before this read, and for the counters if they matter.
    pub(crate) async fn ask_before(&mut self, statement: &Statement) -> Result<(), SessionError> {
        if !self.decide_to_count(statement) {
            return self.ask_context().await;
        }
        self.server.put_query(FOUND_ROWS.as_bytes());
        self.server.put_query(QUESTION.as_bytes());
        self.put_question();
        let found = self.hear().await?;
        let received = self.server.consumed();
        // Without an answer the question is asked again before the next read.
        if let Some(said) = self.hear().await? {
            let counts = read(&said, self.server.about.version.is_mariadb);
            self.server.settings.counted(counts, received);
        }
        self.settle_question().await?;
        self.replay.displaced = found.and_then(|found| found.row.first()?.as_deref()?.parse().ok());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_read() {
        let row = |name: &str| vec![Some(name.to_owned()), Some("7".to_owned())];
        let said = |first: &str, more: &[&str]| Said {
            row: row(first),
            more: more.iter().map(|name| row(name)).collect(),
            collation: None,
        };
        let all = [
            "Com_alter_table",
            "Com_create_table",
            "Com_rename_table",
            "Com_lock_tables",
            "Com_set_option",
            "Com_flush",
        ];
        let some = said("Bytes_sent", &all[..5]);
        let all = said("Bytes_sent", &all);
        assert_eq!(read(&all, false), Some(Counts { created: 7, renamed: 14, locked: 14, set: 7, sent: 7 }));
        assert_eq!(read(&all, true), None);
        assert_eq!(read(&some, false), None);
    }
}
