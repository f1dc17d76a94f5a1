//! The figures, and the choices made by keys.

use anyhow::Result;
use ratatui::crossterm::event::KeyCode;
use serde_json::Value;

/// The orders of queries: a name, and the path in an object of `queries`.
pub(super) const ORDERS: [(&str, &str); 5] = [
    ("time at database", "/database_seconds"),
    ("time saved", "/saved_seconds"),
    ("hits", "/hits"),
    ("hit ratio", "/hit_ratio"),
    ("passed", "/passed"),
];

/// The figures and the choices.
#[derive(Debug)]
pub(super) struct View {
    pub(super) status: Value,
    /// Why the latest figures could not be read.
    pub(super) lost: Option<String>,
    /// The chosen database. None: all.
    pub(super) database: Option<String>,
    order: usize,
    pub(super) search: String,
    /// Whether the search is being typed.
    pub(super) is_typing: bool,
    pub(super) selected: usize,
}

impl View {
    pub(super) fn of(status: Value) -> Self {
        Self { status, lost: None, database: None, order: 0, search: String::new(), is_typing: false, selected: 0 }
    }

    /// Takes new figures. If they could not be read, the old ones stay.
    pub(super) fn take(&mut self, status: Result<Value>) {
        match status {
            Ok(status) => (self.status, self.lost) = (status, None),
            Err(error) => self.lost = Some(format!("{error:#}")),
        }
    }

    /// Handles a key. True if the program ends.
    pub(super) fn press(&mut self, key: KeyCode) -> bool {
        if self.is_typing {
            match key {
                KeyCode::Char(letter) if self.search.len() < 100 => self.search.push(letter),
                KeyCode::Backspace => _ = self.search.pop(),
                KeyCode::Enter => self.is_typing = false,
                KeyCode::Esc => (self.is_typing, self.search) = (false, String::new()),
                _ => {}
            }
            self.selected = 0;
            return false;
        }
        match key {
            KeyCode::Char('q') => return true,
            KeyCode::Char('s') => self.order = (self.order + 1) % ORDERS.len(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('d') => self.choose_next_database(),
            KeyCode::Esc => self.search.clear(),
            KeyCode::Down => self.selected = self.selected.saturating_add(1),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Home => self.selected = 0,
            _ => {}
        }
        false
    }

    /// Chooses the next database: first all together, then each.
    fn choose_next_database(&mut self) {
        let names: Vec<&str> = self.list("/databases").iter().filter_map(Value::as_str).collect();
        let next = match &self.database {
            None => names.first(),
            Some(name) => names.iter().skip_while(|other| *other != name).nth(1),
        };
        self.database = next.map(|name| (*name).to_owned()).filter(|_| names.len() > 1);
        self.selected = 0;
    }

    /// The name of the current order.
    pub(super) fn order(&self) -> &'static str {
        ORDERS.get(self.order).map_or("", |(name, _)| name)
    }

    /// A number of the status.
    pub(super) fn number(&self, pointer: &str) -> Option<f64> {
        number(&self.status, pointer)
    }

    /// A text of the status.
    pub(super) fn text(&self, pointer: &str) -> &str {
        text(&self.status, pointer)
    }

    /// A list of the status.
    pub(super) fn list(&self, pointer: &str) -> &[Value] {
        self.status.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The queries that match the search, in order.
    pub(super) fn queries(&self) -> Vec<&Value> {
        let sought = self.search.to_lowercase();
        let matches = |query: &&Value| text(query, "/query").to_lowercase().contains(&sought);
        let mut found: Vec<&Value> = self.list("/queries").iter().filter(matches).collect();
        let pointer = ORDERS.get(self.order).map_or("", |(_, pointer)| pointer);
        let by = |query: &Value| number(query, pointer).unwrap_or_default();
        found.sort_by(|a, b| by(b).total_cmp(&by(a)));
        found
    }

    /// Why a query passes, as far as known, and the remedy.
    pub(super) fn remedy(&self, query: &Value) -> Option<String> {
        let digest = text(query, "/digest");
        let advice = self.list("/advice").iter().find(|advice| text(advice, "/digest") == digest)?;
        Some(format!("Not cached: {}. {}", text(advice, "/detail"), text(advice, "/remedy")))
    }
}

/// A number in a value.
pub(super) fn number(value: &Value, pointer: &str) -> Option<f64> {
    value.pointer(pointer)?.as_f64()
}

/// A text in a value.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let query = |text: &str, hits, seconds| json!({ "query": text, "hits": hits, "database_seconds": seconds });
        View::of(
            json!({ "queries": [query("SELECT a", 1, 3.0), query("SELECT b", 2, 1.0), query("SELECT ab", 3, 2.0)] }),
        )
    }

    fn shown(view: &View) -> Vec<&str> {
        view.queries().into_iter().map(|query| text(query, "/query")).collect()
    }

    #[test]
    fn keys_sort_and_search() {
        let mut view = view();
        assert_eq!(shown(&view), ["SELECT a", "SELECT ab", "SELECT b"]);
        view.press(KeyCode::Char('s'));
        view.press(KeyCode::Char('s'));
        assert_eq!((view.order(), shown(&view)), ("hits", vec!["SELECT ab", "SELECT b", "SELECT a"]));
        for key in ['/', 'B', 'q'] {
            assert!(!view.press(KeyCode::Char(key)), "{key} ends the program");
        }
        view.press(KeyCode::Backspace);
        view.press(KeyCode::Enter);
        assert_eq!(shown(&view), ["SELECT ab", "SELECT b"]);
        view.press(KeyCode::Esc);
        assert_eq!(shown(&view).len(), 3);
        assert!(view.press(KeyCode::Char('q')));
    }

    #[test]
    fn a_key_chooses_the_database() {
        let mut view = View::of(json!({ "databases": ["shop", "other"] }));
        let chosen = [(); 4].map(|()| {
            view.press(KeyCode::Char('d'));
            view.database.clone()
        });
        assert_eq!(chosen.each_ref().map(Option::as_deref), [Some("shop"), Some("other"), None, Some("shop")]);
        let mut alone = View::of(json!({ "databases": ["shop"] }));
        alone.press(KeyCode::Char('d'));
        assert_eq!(alone.database, None);
    }

    #[test]
    fn what_is_not_there_is_not_shown() {
        let mut view = View::of(json!(null));
        view.press(KeyCode::Down);
        assert!(view.queries().is_empty() && view.number("/now/hits").is_none());
        view.take(Err(anyhow::anyhow!("gone")));
        assert_eq!(view.lost.as_deref(), Some("gone"));
    }
}
