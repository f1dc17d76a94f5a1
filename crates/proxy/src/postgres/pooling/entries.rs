//! Prepared statements that sessions share: one entry for each text with its declared types and the settings under which it is prepared
//! ([`super::labels::of_preparing`]), whatever names the clients give it.
//!
//! On a server connection a statement has the name of its entry. So two sessions with one name for two texts never meet, and many sessions with one
//! text need one statement for each connection. An entry lasts as long as a session or a connection has it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rapidhash::quality::RandomState;

use crate::postgres::pooling::labels::Label;

/// What the names on server connections begin with.
pub(crate) const PREFIX: &str = "_freshet_s";

/// A text with its declared types.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// Its name on server connections.
    pub(crate) name: Box<[u8]>,
    /// A `Parse` behind the name.
    pub(crate) definition: Arc<[u8]>,
    /// Settings in force when it is prepared may decide what its constants mean.
    pub(crate) reads_settings: bool,
    /// Under which it is prepared.
    pub(crate) settings: Label,
    entries: Weak<Entries>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(entries) = self.entries.upgrade() {
            entries.forget(self);
        }
    }
}

type Definitions = HashMap<Arc<[u8]>, Weak<Entry>, RandomState>;

/// All entries of one database.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    by_settings: Mutex<HashMap<Label, Definitions, RandomState>>,
    last: AtomicU64,
    /// Counts the messages that prepare a statement.
    time: AtomicU64,
}

impl Entries {
    fn all(&self) -> MutexGuard<'_, HashMap<Label, Definitions, RandomState>> {
        self.by_settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a `Parse`, of which this is what follows the name.
    pub(crate) fn intern(self: &Arc<Self>, definition: &[u8], reads_settings: bool, settings: &Label) -> Arc<Entry> {
        let mut all = self.all();
        let of_settings = all.entry(settings.clone()).or_default();
        if let Some(entry) = of_settings.get(definition).and_then(Weak::upgrade) {
            return entry;
        }
        let number = self.last.fetch_add(1, Relaxed);
        let definition: Arc<[u8]> = definition.into();
        let entry = Arc::new(Entry {
            number,
            name: format!("{PREFIX}{number}").into_bytes().into(),
            definition: definition.clone(),
            reads_settings,
            settings: settings.clone(),
            entries: Arc::downgrade(self),
        });
        of_settings.insert(definition, Arc::downgrade(&entry));
        entry
    }

    /// The next moment: later than all before it.
    pub(crate) fn tick(&self) -> u64 {
        self.time.fetch_add(1, Relaxed) + 1
    }

    /// An entry has ended, unless another one has taken its place.
    fn forget(&self, Entry { definition, settings, .. }: &Entry) {
        let mut all = self.all();
        let Some(of_settings) = all.get_mut(settings) else { return };
        if of_settings.get(definition).is_some_and(|entry| entry.strong_count() == 0) {
            of_settings.remove(definition);
        }
        if of_settings.is_empty() {
            all.remove(settings);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lasts_as_long_as_somebody_has_it() {
        let entries = Arc::new(Entries::default());
        let intern = |definition: &[u8], settings: &[&str]| {
            let settings: Vec<Arc<str>> = settings.iter().map(|setting| (*setting).into()).collect();
            entries.intern(definition, false, &settings.into())
        };
        let one = intern(b"select 1\0\0\0", &[]);
        let same = intern(b"select 1\0\0\0", &[]);
        let typed = intern(b"select 1\0\0\x01\0\0\0\x17", &[]);
        let elsewhere = intern(b"select 1\0\0\0", &["TimeZone=UTC"]);
        assert!(Arc::ptr_eq(&one, &same) && one.name != typed.name && one.name != elsewhere.name);
        assert_eq!(entries.all().len(), 2);
        drop((one, typed, elsewhere));
        assert_eq!(entries.all().len(), 1);
        let name = same.name.clone();
        drop(same);
        assert!(entries.all().is_empty());
        assert_ne!(intern(b"select 1\0\0\0", &[]).name, name);
    }
}
