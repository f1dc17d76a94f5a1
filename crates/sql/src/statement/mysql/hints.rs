//! Optimizer hints, `/*+ … */`, that do not change the answer.
//!
//! Most hints choose an access path, and thus at most change which rows are returned where the statement does not determine them. `SET_VAR` changes a
//! setting for the statement. A hint is part of the normalized query, so the setting must not change what the analysis says of it. MariaDB takes
//! unknown hints for comments.

/// Hints that choose an execution strategy; each also exists with the prefix `NO_`.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "bka", "bnl", "derived_condition_pushdown", "group_index", "hash_join", "icp", "index", "index_merge",
    "join_fixed_order", "join_index", "join_order", "join_prefix", "join_suffix", "max_execution_time", "merge", "mrr",
    "order_index", "qb_name", "range_optimization", "resource_group", "rowid_filter", "semijoin", "skip_scan",
    "split_materialized", "subquery",
];

/// Variables of `SET_VAR` that choose an execution strategy, or change values in a way that the text determines.
#[rustfmt::skip]
const VARIABLES: &[&str] = &[
    "big_tables", "cte_max_recursion_depth", "div_precision_increment", "eq_range_index_dive_limit", "group_concat_max_len",
    "internal_tmp_mem_storage_engine", "join_buffer_size", "max_error_count", "max_execution_time", "max_heap_table_size",
    "max_length_for_sort_data", "max_points_in_geometry", "max_seeks_for_key", "optimizer_prune_level",
    "optimizer_search_depth", "optimizer_switch", "range_alloc_block_size", "range_optimizer_max_mem_size",
    "read_buffer_size", "read_rnd_buffer_size", "sort_buffer_size", "sql_buffer_result", "tmp_table_size",
];

/// Whether this is `name = value` for one of these.
fn sets_harmless(arguments: &str) -> bool {
    let Some((name, _)) = arguments.split_once('=') else { return false };
    VARIABLES.contains(&name.trim().to_ascii_lowercase().as_str())
}

/// Whether a hint, with its delimiters, contains only these.
pub(crate) fn is_harmless(hint: &str) -> bool {
    let inner = hint.strip_prefix("/*+").and_then(|rest| rest.strip_suffix("*/"));
    let Some(mut rest) = inner.map(str::trim_start) else { return false };
    while !rest.is_empty() {
        let name = rest.get(..rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count());
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let known = name.strip_prefix("no_").unwrap_or(&name);
        let sets = name == "set_var";
        if !sets && !HARMLESS.contains(&known) {
            return false;
        }
        rest = rest.get(name.len()..).unwrap_or_default().trim_start();
        if let Some(arguments) = rest.strip_prefix('(') {
            let Some((arguments, behind)) = arguments.split_once(')') else { return false };
            if arguments.contains('(') || sets && !sets_harmless(arguments) {
                return false;
            }
            rest = behind.trim_start();
        } else if sets {
            return false;
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
            "/*+ SET_VAR(sort_buffer_size = 16M) BKA(t) */",
            "/*+ set_var( Optimizer_Switch='mrr_cost_based=off,batched_key_access=on') */",
            "/*+*/",
        ] {
            assert!(is_harmless(hint), "{hint}");
        }
        for hint in [
            "/*+ SET_VAR(sql_mode = ANSI) */",
            "/*+ SET_VAR(big_tables) */",
            "/*+ SET_VAR */",
            "/*+ SET_VAR('big_tables' = 8) */",
            "/*+ SET_VAR(max_sort_length = 8) */",
            "/*+ SET_VAR(sql_mode = 'big_tables=8') */",
            "/*+ SET_VAR(optimizer_switch = ')') SET_VAR(sql_mode='') */",
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
