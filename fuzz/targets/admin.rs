//! The grammar of the statements that Freshet answers itself: whatever else is not one, however it is written.

#![no_main]

use freshet_fuzz::bounded;
use freshet_sql::{Admin, admin, lex};
use freshet_types::Dialect;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let found = bounded(text.len() * 2 + 512, || admin(Dialect::Postgres, text));
    let normalized = lex(Dialect::Postgres, text).normalized;
    match &found {
        None => {}
        Some(_) if !(normalized.starts_with("show") || normalized.starts_with("explain")) => {
            panic!("{normalized} is taken for ours")
        }
        Some(Ok(Admin::ExplainCache(query))) => {
            assert!(!query.is_empty() && text.contains(query.as_str()));
            assert_eq!(query.trim_ascii(), query);
        }
        Some(Ok(_)) => {
            // Nothing but the words counts.
            assert!(
                ["show caches", "show proxied queries", "show freshet status"].contains(&normalized.as_str()),
                "{normalized}"
            );
            assert_eq!(admin(Dialect::Postgres, &normalized), found);
            assert_eq!(admin(Dialect::Postgres, &format!("-- x\n/* y */ {normalized} ;;")), found);
        }
        Some(Err(usage)) => assert!(usage.starts_with("syntax: ")),
    }
});
