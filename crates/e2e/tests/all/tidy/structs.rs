//! Structs with so many fields or flags that nobody can say which combinations make sense, and predicates that act.

use super::{report, sources};

const FIELDS_MAX: usize = 15;
const BOOLS_MAX: usize = 4;

/// What the names of predicates begin with.
const PREDICATES: [&str; 7] = ["is_", "has_", "may_", "can_", "must_", "wants_", "needs_"];

#[test]
fn structs_have_few_fields_and_flags() {
    let mut offences = Vec::new();
    for source in sources() {
        for found in source.structs() {
            let at = format!("{}:{}: struct {}", source.path, found.line, found.name);
            if found.fields > FIELDS_MAX {
                offences.push(format!("{at} has {} fields (limit {FIELDS_MAX})", found.fields));
            }
            if found.bools > BOOLS_MAX {
                offences.push(format!("{at} has {} booleans (limit {BOOLS_MAX})", found.bools));
            }
        }
    }
    report("struct size", &offences);
}

#[test]
fn predicates_do_not_act() {
    let mut offences = Vec::new();
    for source in sources() {
        for function in source.functions() {
            if function.changes_self && PREDICATES.iter().any(|prefix| function.name.starts_with(prefix)) {
                let at = format!("{}:{}: fn {}", source.path, function.line, function.name);
                offences.push(format!("{at} takes &mut self: name it for what it does"));
            }
        }
    }
    report("predicates", &offences);
}
