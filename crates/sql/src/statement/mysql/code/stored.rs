//! The code of all routines, triggers and views together.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use freshet_types::{StoredCode, Temporaries};

use super::{Code, PLACEHOLDER, is_plain};
use crate::lex::mysql::is_placeholder;

/// What each name may create, from the code of all routines, triggers and views, by the names that run it. None: the code is not known. `variables`: the
/// names of the server's settings.
pub fn stored_code<'a>(
    sources: impl IntoIterator<Item = (&'a str, Option<&'a Code>)>,
    variables: &HashSet<Box<str>, impl BuildHasher>,
    is_complete: bool,
) -> StoredCode {
    let mut codes: HashMap<Box<str>, Vec<&Code>> = HashMap::new();
    let mut odd_codes = Vec::new();
    let mut stored = StoredCode { is_complete, ..StoredCode::default() };
    for (name, code) in sources {
        let name = if is_placeholder(name) { PLACEHOLDER.into() } else { name.to_lowercase() };
        match (code, is_plain(&name)) {
            (None, true) => drop(stored.by_name.insert(name.into(), Temporaries::Any)),
            (None, false) => stored.odd = Temporaries::Any,
            (Some(code), true) => codes.entry(name.into()).or_default().push(code),
            (Some(code), false) => odd_codes.push(code),
        }
    }
    loop {
        let before = (stored.odd.clone(), stored.by_name.clone());
        for (name, codes) in &codes {
            let made = union(codes, variables, &stored);
            if made != Temporaries::None {
                stored.by_name.entry(name.clone()).or_default().add(&made);
            }
        }
        let made = union(&odd_codes, variables, &stored);
        stored.odd.add(&made);
        if before == (stored.odd.clone(), stored.by_name.clone()) {
            return stored;
        }
    }
}

fn union(codes: &[&Code], variables: &HashSet<Box<str>, impl BuildHasher>, stored: &StoredCode) -> Temporaries {
    let mut all = Temporaries::None;
    for code in codes {
        all.add(&code.own);
        if code.leaves_state || code.sets_any(variables) {
            all.name(Temporaries::STATE);
        }
        code.add_named(stored, &mut all);
    }
    all
}
