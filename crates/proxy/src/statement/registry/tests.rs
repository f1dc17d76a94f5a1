//! Bytes that the registry counts, and the first words of texts.

use super::*;

#[test]
fn what_is_held_is_counted_once() {
    let registry = Registry::new(64 << 20, Dialect::Postgres);
    let held = |statements: &[Arc<Statement>]| -> u64 {
        let mut queries: Vec<&Arc<NormalizedQuery>> = statements.iter().map(|statement| &statement.query).collect();
        queries.sort_by_key(|query| Arc::as_ptr(query));
        queries.dedup_by_key(|query| Arc::as_ptr(query));
        let own: usize = statements.iter().map(|statement| statement.charge.bytes).sum();
        (own + queries.iter().map(|query| query.bytes()).sum::<usize>()) as u64
    };
    let text = |table: usize, id: usize| format!("select name from t{table} where id = {id} and name = 'x{id}'");
    let mut known = Vec::new();
    for (table, id) in (0..30).flat_map(|table| (0..3).map(move |id| (table, id))) {
        known.push(registry.statement(text(table, id).as_bytes(), b"").unwrap());
        assert_eq!(registry.bytes(), held(&known));
    }
    // A statement is counted as long as a session refers to it, and not afterwards.
    let last = known.pop().unwrap();
    drop(known);
    registry.texts.clear();
    registry.queries.clear();
    assert_eq!(registry.bytes(), held(std::slice::from_ref(&last)));
    drop(last);
    assert_eq!(registry.bytes(), 0);
}

#[test]
fn first_words() {
    assert_eq!((first_word(" lock tables t read"), first_word("(select 1)"), first_word("")), ("lock", "", ""));
}

#[test]
fn the_list_of_prepared_statements_is_found_in_any_place() {
    for text in ["SELECT * FROM pg_prepared_statements", "pg_prepared_statement", "_pg_PG_Prepared_STATEMENT()"] {
        assert!(lists_prepared(text), "{text}");
    }
    for text in
        ["", "_", "g_prepared_statement", "pg_prepared_statemen", "é_prepared_statement", "pg prepared_statement"]
    {
        assert!(!lists_prepared(text), "{text}");
    }
}
