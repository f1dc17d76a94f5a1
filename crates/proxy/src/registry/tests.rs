//! What the registry counts as held, and the first words of texts.

use super::*;

#[test]
fn what_is_held_is_counted_once() {
    let registry = Registry::new(64 << 20, Dialect::Postgres);
    let held = |statements: &[Arc<Statement>]| -> u64 {
        let mut shapes: Vec<&Arc<Shape>> = statements.iter().map(|statement| &statement.shape).collect();
        shapes.sort_by_key(|shape| Arc::as_ptr(shape));
        shapes.dedup_by_key(|shape| Arc::as_ptr(shape));
        let own: usize = statements.iter().map(|statement| statement.charge.bytes).sum();
        (own + shapes.iter().map(|shape| shape.bytes()).sum::<usize>()) as u64
    };
    let text = |table: usize, id: usize| format!("select name from t{table} where id = {id} and name = 'x{id}'");
    let mut known = Vec::new();
    for (table, id) in (0..30).flat_map(|table| (0..3).map(move |id| (table, id))) {
        known.push(registry.statement(text(table, id).as_bytes(), b"").unwrap());
        assert_eq!(registry.bytes(), held(&known));
    }
    // What nobody knows any more is not counted, and what a session still holds is.
    let last = known.pop().unwrap();
    drop(known);
    registry.texts.clear();
    registry.shapes.clear();
    assert_eq!(registry.bytes(), held(std::slice::from_ref(&last)));
    drop(last);
    assert_eq!(registry.bytes(), 0);
}

#[test]
fn first_words() {
    assert_eq!((first_word(" lock tables t read"), first_word("(select 1)"), first_word("")), ("lock", "", ""));
}
