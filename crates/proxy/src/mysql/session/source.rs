//! The text of a statement that is prepared or executed from a variable (`PREPARE name FROM @text`), if that text was computed.
//!
//! What EXECUTE runs must be known: unknown code may make temporary tables, lock tables, or set anything. So the server is asked for the variable
//! before the statement, in the same network packet. The answer is the text that the statement reads.
//!
//! The client must not see the question. PREPARE resets ROW_COUNT(), and the warnings where SELECT does (MySQL), and FOUND_ROWS() is found again
//! ([`super::diagnostics`]). But MariaDB's `EXECUTE IMMEDIATE @text` may run code that reads all of them. Directly behind a SET the question is asked
//! with VALUES, which keeps FOUND_ROWS() and the warnings, and DO, which leaves ROW_COUNT() as SET does.

use crate::mysql::session::{Session, SessionError};
use crate::statement::registry::{Statement, TEXT_BYTES_MAX};

/// Character sets in which ASCII characters have their own bytes.
const PLAIN: [&str; 6] = ["utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary"];

/// A variable with the text of another statement.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its name, with `@`.
    pub(crate) variable: Box<str>,
    /// The text is executed at once.
    pub(crate) is_executed: bool,
}

impl Session {
    /// A statement is about to be sent: if it reads another one from a variable with an unknown text, asks for that text before it.
    pub(crate) fn ask_source(&mut self, statement: &Statement) {
        let settings = &self.server.settings;
        // The client would see the question, or nothing is cached anyway.
        if settings.watched.is_some() || self.shared.cache.epoch().is_none() {
            return;
        }
        let Some(source) = settings.temporaries.named.source_of(statement) else { return };
        if source.is_executed && self.replay.last_hit().is_some() {
            return; // it has left something since the SET
        }
        let variable = &source.variable;
        let text = format!("IF(LENGTH({variable}) <= {TEXT_BYTES_MAX}, HEX({variable}), NULL)");
        let columns = format!("CHARSET({variable}), @@character_set_client, {text}");
        if source.is_executed {
            self.server.put_query(format!("VALUES ({columns})").as_bytes());
            self.server.put_query(b"DO 0");
        } else {
            self.server.put_query(format!("SELECT {columns}, FOUND_ROWS()").as_bytes());
        }
        self.at_hand.source_asked = Some(source);
    }

    /// Takes the answer, if one is due.
    pub(crate) async fn settle_source(&mut self) -> Result<(), SessionError> {
        let Some(source) = self.at_hand.source_asked.take() else { return Ok(()) };
        let said = self.hear().await?;
        if source.is_executed {
            self.hear().await?; // that of DO
        }
        let Some(said) = said else { return Ok(()) };
        let [charset, client, hex, found_rows @ ..] = said.row.as_slice() else { return Ok(()) };
        if let Some(found_rows) = found_rows.first() {
            self.replay.displaced = found_rows.as_deref().and_then(|rows| rows.parse().ok());
        }
        let text = hex.as_deref().and_then(bytes);
        let text = text.filter(|text| is_sent_alike(text, charset.as_deref(), client.as_deref()));
        self.at_hand.source = text.map(|text| self.unread(&text));
        Ok(())
    }
}

/// Whether the server parses these bytes of a variable as they are: it converts them to the client's character set.
fn is_sent_alike(text: &[u8], charset: Option<&str>, client: Option<&str>) -> bool {
    let (Some(charset), Some(client)) = (charset, client) else { return false };
    let is_wider = client == "utf8mb4" && charset.starts_with("utf8");
    if text.is_ascii() { PLAIN.contains(&charset) } else { charset == client || charset == "binary" || is_wider }
}

/// The bytes in HEX().
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks(2).map(digits).collect()
}
