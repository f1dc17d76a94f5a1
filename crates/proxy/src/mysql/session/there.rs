//! The prepared statements on one server connection that no session uses at present: see [`super::own_statements`].

use std::collections::HashMap;
use std::sync::Arc;

use freshet_wire::mysql::command;
use freshet_wire::mysql::packet;
use rapidhash::quality::RandomState;

/// What a statement is, whichever session has prepared it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The default database, and the settings on which the meaning of a text may depend: [`super::label::Label::meaning`].
    pub(super) meaning: Arc<[u8]>,
    /// The number of its text: [`crate::statement::registry::Statement::id`].
    pub(super) statement: u64,
    /// The types of parameters with which it was executed, always these; None: it was never executed. A server may keep what it has derived from them.
    pub(super) types: Option<Arc<[u8]>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct PreparedThere {
    /// The server's number, and the number of the use that was the last one.
    by_key: HashMap<Key, (u32, u64), RandomState>,
    uses: u64,
}

impl PreparedThere {
    /// A session takes one, and has it alone. Returns the server's number, and the types that the server has received.
    pub(super) fn take(&mut self, key: &Key) -> Option<(u32, Option<Arc<[u8]>>)> {
        if let Some((number, _)) = self.by_key.remove(key) {
            return Some((number, key.types.clone()));
        }
        let (number, _) = self.by_key.remove(&Key { types: None, ..key.clone() })?;
        Some((number, None))
    }

    /// A session has no more use for one. Returns the number of the one that is to be closed in its place, the same or the one used longest ago, so that
    /// no more than `most` are left.
    pub(super) fn put(&mut self, key: Key, number: u32, most: usize) -> Option<u32> {
        self.uses += 1;
        let same = self.by_key.insert(key, (number, self.uses)).map(|(number, _)| number);
        same.or_else(|| (self.by_key.len() > most).then(|| self.take_oldest()).flatten())
    }

    fn take_oldest(&mut self) -> Option<u32> {
        let oldest = self.by_key.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())?;
        self.by_key.remove(&oldest).map(|(number, _)| number)
    }

    /// Whether one has this number.
    pub(super) fn has_number(&self, number: u32) -> bool {
        self.by_key.values().any(|(there, _)| *there == number)
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Vec<u32> {
        self.by_key.drain().map(|(_, (number, _))| number).collect()
    }
}

/// Appends a COM_STMT_CLOSE.
pub(super) fn put_close(out: &mut Vec<u8>, number: u32) {
    packet::put_with(out, &mut 0, |out| {
        out.push(command::STMT_CLOSE);
        out.extend_from_slice(&number.to_le_bytes());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(statement: u64, types: Option<&[u8]>) -> Key {
        Key { meaning: Arc::default(), statement, types: types.map(Arc::from) }
    }

    #[test]
    fn the_one_used_longest_ago_is_closed() {
        let mut all = PreparedThere::default();
        assert_eq!([all.put(key(1, None), 1, 2), all.put(key(2, None), 2, 2)], [None; 2]);
        assert_eq!(all.put(key(1, None), 3, 2), Some(1), "the same");
        assert_eq!(all.put(key(3, None), 4, 2), Some(2));
        assert_eq!((all.take(&key(2, None)), all.take(&key(1, None))), (None, Some((3, None))));
        let elsewhere = Key { meaning: [1].as_slice().into(), ..key(3, None) };
        assert_eq!((all.take(&elsewhere), all.put(elsewhere.clone(), 5, 2)), (None, None));
        let mut rest = all.take_all();
        rest.sort_unstable();
        assert_eq!((rest, all.take(&key(3, None))), (vec![4, 5], None));
    }

    #[test]
    fn a_statement_is_executed_with_the_same_types_only() {
        let mut all = PreparedThere::default();
        all.put(key(1, Some(&[8, 0])), 1, 9);
        assert_eq!((all.take(&key(1, Some(&[253, 0]))), all.take(&key(1, None))), (None, None));
        all.put(key(1, None), 2, 9);
        assert_eq!(all.take(&key(1, Some(&[253, 0]))), Some((2, None)), "never executed");
        assert_eq!(all.take(&key(1, Some(&[8, 0]))), Some((1, Some([8, 0].as_slice().into()))));
    }
}
