//! Bytes that the registry counts, and the first words of texts.

use super::says::lists_prepared;
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

#[test]
fn texts_that_name_prepared_statements_are_found() {
    for text in ["execute s", "EXPLAIN (analyze) Execute s(1)", "deallocate all", "/* x */prepare p as select 1"] {
        assert_eq!(OfPrepared::of(text), OfPrepared::Names, "{text}");
    }
    assert_eq!(OfPrepared::of("execute s; select * from pg_prepared_statements"), OfPrepared::Lists);
    assert_eq!(OfPrepared::of("select prepared from executes"), OfPrepared::Nothing);
}

/// Fills that have not been answered yet say nothing of how long answers take.
#[test]
fn averages_are_those_of_answers() {
    let figures = StatementFigures::default();
    (0..3).for_each(|_| figures.fill_begins());
    figures.fill_took(10_000_000, 0);
    assert_eq!((figures.fill_answers.mean(), figures.join_wait()), (10_000_000, 40_000_000));
}

/// The memory for normalized queries is bounded, and the heaviest stay with their figures.
#[test]
fn heavy_queries_outlast_any_number_of_others() {
    const OTHERS: u64 = 2_000;
    let memory = 16 << 20;
    let registry = Registry::new(memory, Dialect::Postgres);
    let statement = |text: &str| registry.statement(text.as_bytes(), b"").unwrap();
    let heavy = statement("select name from heavy where id = 1").query.clone();
    heavy.figures.fill_answers.note(1_000_000_000.into());
    let mut most = 0;
    for other in 0..OTHERS {
        // Two texts: a query that is found again displaces those that are not.
        for id in 0..2 {
            statement(&format!("select name from light{other} where id = {id}"))
                .query
                .figures
                .fill_answers
                .note(1_000.into());
        }
        most = most.max(registry.bytes());
    }
    // An eighth is the limit for texts, and for normalized queries. But a text keeps its normalized query in memory when that is evicted.
    assert!(most <= memory, "{most} bytes");
    let known = registry.each_query().count() as u64;
    assert_eq!(registry.queries_evicted(), OTHERS + 1 - known);
    assert!(known < OTHERS / 4, "{known} queries are known");
    assert!(Arc::ptr_eq(&heavy, &statement("select name from heavy where id = 2").query), "it was evicted");
}
