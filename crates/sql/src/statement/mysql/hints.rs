//! Optimizer hints, `/*+ … */`, that do not change the answer.
//!
//! Most hints choose an access path, and thus at most change which rows are returned where the statement does not determine them. `SET_VAR` changes a
//! setting for the statement, which is not in the cache key. MariaDB takes unknown hints for comments.

/// Hints that choose an execution strategy; each also exists with the prefix `NO_`.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "bka", "bnl", "derived_condition_pushdown", "group_index", "hash_join", "icp", "index", "index_merge",
    "join_fixed_order", "join_index", "join_order", "join_prefix", "join_suffix", "max_execution_time", "merge", "mrr",
    "order_index", "qb_name", "range_optimization", "resource_group", "rowid_filter", "semijoin", "skip_scan",
    "split_materialized", "subquery",
];

/// Whether a hint, with its delimiters, contains only these.
pub(crate) fn is_harmless(hint: &str) -> bool {
    let inner = hint.strip_prefix("/*+").and_then(|rest| rest.strip_suffix("*/"));
    let Some(mut rest) = inner.map(str::trim_start) else { return false };
    while !rest.is_empty() {
        let name = rest.get(..rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count());
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let known = name.strip_prefix("no_").unwrap_or(&name);
        if !HARMLESS.contains(&known) {
            return false;
        }
        rest = rest.get(name.len()..).unwrap_or_default().trim_start();
        if let Some(arguments) = rest.strip_prefix('(') {
            let Some((arguments, behind)) = arguments.split_once(')') else { return false };
            if arguments.contains('(') {
                return false;
            }
            rest = behind.trim_start();
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_harmless;

    #[test]
    fn only_known_hints_are_harmless() {
        for hint in [
            "/*+ MAX_EXECUTION_TIME(1000) */",
            "/*+ NO_INDEX_MERGE(t1 f4_idx, f2) BKA(@qb1 t2) qb_name ( a ) */",
            "/*+ JOIN_FIXED_ORDER() */",
            "/*+*/",
        ] {
            assert!(is_harmless(hint), "{hint}");
        }
        for hint in [
            "/*+ SET_VAR(sql_mode = ANSI) */",
            "/*+ BKA(t) SET_VAR(time_zone = SYSTEM) */",
            "/*+ BKA(t), MRR(t) */",
            "/*+ BKA(t */",
            "/*+ NEW_HINT() */",
            "/*+ BKA(a(b)) */",
            "/*+ - */",
        ] {
            assert!(!is_harmless(hint), "{hint}");
        }
    }
}
