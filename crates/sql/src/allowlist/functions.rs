//! The functions that a cached statement may use.
//!
//! The lists contain functions whose results depend on their arguments alone, or on settings that are part of the cache key (time zone, date style
//! …). A statement with any other function passes; a function that is on no list may even write.

use freshet_types::Dialect;
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

use crate::allowlist::names::built_in_name;
use crate::allowlist::{FunctionClass, mysql_functions};
use crate::predicate::syntax::parameter;

/// Immutable built-in functions, stable ones that read neither the clock nor settings outside the key, and window functions. No overload of these
/// names reads them either, except of `age` (see [`DATE_TIME`]).
#[rustfmt::skip]
const CACHEABLE: &[&str] = &[
    // conditions and rows
    "coalesce", "nullif", "greatest", "least", "row", "grouping", "num_nulls", "num_nonnulls",
    // numbers
    "abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "sqrt", "cbrt", "power", "pow", "exp", "ln", "log",
    "log10", "mod", "div", "gcd", "lcm", "factorial", "pi", "degrees", "radians", "sin", "cos", "tan", "cot", "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sind", "cosd", "tand", "cotd",
    "asind", "acosd", "atand", "atan2d", "width_bucket", "scale", "min_scale", "trim_scale", "int4", "int8", "int2",
    "float8", "float4", "numeric",
    // text
    "lower", "upper", "initcap", "length", "char_length", "character_length", "octet_length", "bit_length", "substr",
    "substring", "left", "right", "lpad", "rpad", "ltrim", "rtrim", "btrim", "trim", "replace", "translate",
    "reverse", "repeat", "concat", "concat_ws", "split_part", "strpos", "position", "overlay", "ascii", "chr", "md5",
    "sha224", "sha256", "sha384", "sha512", "encode", "decode", "format", "quote_ident", "quote_literal",
    "quote_nullable", "starts_with", "to_hex", "regexp_replace", "regexp_match", "regexp_matches", "regexp_count",
    "regexp_instr", "regexp_like", "regexp_substr", "regexp_split_to_array", "regexp_split_to_table",
    "string_to_array", "string_to_table", "normalize", "convert_from", "convert_to", "to_number", "text", "unistr",
    "like", "notlike", "casefold", "crc32", "get_bit", "get_byte", "set_bit", "set_byte", "bit_count",
    "similar_to_escape",
    // pg_trgm; the catalogue distinguishes its functions and operators from others of the same names
    "similarity", "word_similarity", "strict_word_similarity", "show_trgm",
    // arrays and ranges
    "array", "array_append", "array_cat", "array_dims", "array_fill", "array_length", "array_lower", "array_ndims",
    "array_position", "array_positions", "array_prepend", "array_remove", "array_replace", "array_to_string",
    "array_upper", "cardinality", "trim_array", "unnest", "generate_subscripts", "array_reverse", "array_sort",
    "isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf", "range_merge", "int4range", "int8range",
    "numrange", "multirange",
    // enums, whose labels the catalogue watches
    "enum_first", "enum_last", "enum_range",
    // json
    "to_json", "to_jsonb", "row_to_json", "array_to_json", "json_build_array", "json_build_object",
    "jsonb_build_array", "jsonb_build_object", "json_object", "jsonb_object", "json_array_length",
    "jsonb_array_length", "json_extract_path", "json_extract_path_text", "jsonb_extract_path",
    "jsonb_extract_path_text", "json_typeof", "jsonb_typeof", "json_strip_nulls", "jsonb_strip_nulls", "jsonb_set",
    "jsonb_set_lax", "jsonb_insert", "jsonb_pretty", "jsonb_path_exists", "jsonb_path_match", "jsonb_path_query",
    "jsonb_path_query_array", "jsonb_path_query_first", "json_array_elements", "jsonb_array_elements",
    "json_array_elements_text", "jsonb_array_elements_text", "json_each", "jsonb_each", "json_each_text",
    "jsonb_each_text", "json_to_record", "jsonb_to_record", "json_to_recordset", "jsonb_to_recordset", "json_object_keys", "jsonb_object_keys", "jsonb_exists", "jsonb_contains",
    // date and time: see DATE_TIME
    // sets
    "generate_series",
    // text search: `default_text_search_config` is in the key, and the catalogue watches configurations and dictionaries
    "to_tsvector", "to_tsquery", "plainto_tsquery", "phraseto_tsquery", "websearch_to_tsquery", "tsquery_phrase", "ts_rank",
    "ts_rank_cd", "ts_headline", "ts_delete", "ts_filter", "setweight", "strip", "numnode", "querytree",
    "array_to_tsvector", "tsvector_to_array",
    // network addresses
    "host", "hostmask", "masklen", "netmask", "network", "set_masklen", "inet_same_family", "inet_merge", "family",
    "abbrev", "broadcast",
    // window functions
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "first_value",
    "last_value", "nth_value",
];

/// Aggregates, which also meet this rule.
#[rustfmt::skip]
const AGGREGATES: &[&str] = &[
    "count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "string_agg",
    "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "stddev", "stddev_pop",
    "stddev_samp", "variance", "var_pop", "var_samp", "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "percentile_cont",
    "percentile_disc", "mode", "range_agg", "range_intersect_agg", "any_value",
];

/// Cacheable functions that take or return dates and times. In a statement with one of them, PostgreSQL may fold a literal such as `today` to a clock
/// reading. `age` with one argument reads the clock.
#[rustfmt::skip]
const DATE_TIME: &[&str] = &[
    "age", "date_bin", "date_part", "date_trunc", "date_add", "date_subtract", "extract", "isfinite", "justify_days",
    "justify_hours", "justify_interval", "make_date", "make_interval", "make_time", "make_timestamp",
    "make_timestamptz", "timezone", "to_char", "to_date", "to_timestamp", "overlaps", "generate_series", "tsrange",
    "tstzrange", "daterange",
];

/// Functions without arguments that return parts of the cache key: the server's version, the database, users and schemas.
#[rustfmt::skip]
const OF_CONTEXT: &[&str] = &[
    "current_catalog", "current_database", "current_role", "current_schema", "current_user", "session_user", "user",
    "version",
];

/// Functions that only read, but also read something other than their arguments and the tables of the statement.
#[rustfmt::skip]
const PURE: &[&str] = &[
    "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "current_date",
    "current_time", "current_timestamp", "localtime", "localtimestamp", "random", "random_normal", "gen_random_uuid",
    "uuidv4", "uuidv7", "system_user", "current_schemas", "current_query", "current_setting", "pg_backend_pid", "pg_my_temp_schema", "pg_is_in_recovery", "pg_last_wal_replay_lsn", "pg_current_wal_lsn",
    "pg_current_wal_insert_lsn", "pg_current_snapshot", "txid_current_if_assigned", "txid_current_snapshot",
    "pg_current_xact_id_if_assigned", "pg_postmaster_start_time", "pg_conf_load_time", "inet_client_addr",
    "inet_client_port", "inet_server_addr", "inet_server_port", "pg_typeof", "pg_get_userbyid", "pg_get_expr",
    "pg_get_indexdef", "pg_get_constraintdef", "pg_get_viewdef", "pg_get_functiondef", "pg_get_triggerdef",
    "pg_get_ruledef", "pg_get_serial_sequence", "pg_get_partkeydef", "pg_get_function_result",
    "pg_get_function_arguments", "pg_get_function_identity_arguments", "pg_table_is_visible", "pg_type_is_visible",
    "pg_function_is_visible", "format_type", "obj_description", "col_description", "shobj_description",
    "has_table_privilege", "has_schema_privilege", "has_database_privilege", "has_column_privilege",
    "has_any_column_privilege", "has_function_privilege", "has_sequence_privilege", "has_type_privilege",
    "pg_has_role", "to_regclass", "to_regtype", "to_regproc", "to_regnamespace", "to_regrole", "pg_relation_size",
    "pg_total_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size", "pg_size_pretty", "pg_sleep",
    "currval", "lastval", "pg_blocking_pids", "pg_encoding_to_char", "pg_client_encoding", "pg_relation_is_updatable",
    "pg_column_is_updatable", "pg_tablespace_location", "pg_char_to_encoding", "pg_get_keywords",
    "pg_options_to_table", "pg_stat_get_activity", "pg_show_all_settings", "pg_lock_status", "aclexplode",
    "_pg_expandarray", "information_schema._pg_expandarray",
];

/// Those of [`PURE`] whose results, from some moments ago, any session with the same settings and rights may be given (rules with `ttl`). Not among
/// them: what belongs to one session or transaction (`pg_backend_pid`, `currval`), must be unique (`gen_random_uuid`), or waits (`pg_sleep`).
#[rustfmt::skip]
const LASTING: &[&str] = &[
    "now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday", "current_date", "current_time",
    "current_timestamp", "localtime", "localtimestamp", "random", "random_normal", "current_schemas", "pg_is_in_recovery",
    "pg_last_wal_replay_lsn", "pg_current_wal_lsn", "pg_current_wal_insert_lsn", "pg_postmaster_start_time", "pg_conf_load_time",
    "pg_typeof", "pg_get_userbyid", "pg_get_expr", "pg_get_indexdef", "pg_get_constraintdef", "pg_get_viewdef", "pg_get_functiondef",
    "pg_get_triggerdef", "pg_get_ruledef", "pg_get_serial_sequence", "pg_get_partkeydef", "pg_get_function_result",
    "pg_get_function_arguments", "pg_get_function_identity_arguments", "format_type", "obj_description", "col_description",
    "shobj_description", "has_table_privilege", "has_schema_privilege", "has_database_privilege", "has_column_privilege",
    "has_any_column_privilege", "has_function_privilege", "has_sequence_privilege", "has_type_privilege", "pg_has_role",
    "pg_relation_size", "pg_total_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size", "pg_size_pretty",
    "pg_encoding_to_char", "pg_char_to_encoding", "pg_relation_is_updatable", "pg_column_is_updatable", "pg_tablespace_location",
    "pg_get_keywords", "pg_options_to_table", "pg_stat_get_activity", "aclexplode", "_pg_expandarray",
];

/// Functions that change no row, definition or setting, but that other sessions may notice. They do not reveal to the session what others have
/// committed.
const SIGNALS: &[&str] = &["pg_notify", "txid_current", "pg_current_xact_id", "nextval", "setval"];

/// The same, but they wait for other sessions or reveal what others do.
#[rustfmt::skip]
const SIGNALS_THAT_TELL: &[&str] = &[
    "pg_advisory_lock", "pg_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared", "pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared", "pg_cancel_backend",
    "pg_terminate_backend",
];

/// Functions that return one value for a row or a group. Other functions may return any number of rows for one.
#[rustfmt::skip]
const OF_ONE_ROW: &[&str] = &[
    "coalesce", "nullif", "greatest", "least", "abs", "round", "floor", "ceil", "lower", "upper", "length", "substr", "substring",
    "left", "right", "concat", "concat_ws", "trim", "replace", "md5", "json_build_object", "jsonb_build_object", "row_to_json", "to_json",
    "to_jsonb", "date_part", "date_trunc", "extract", "to_char",
];

/// Whether a function keeps the number of rows (GROUP BY apart).
pub(crate) fn keeps_rows(name: &str) -> bool {
    OF_ONE_ROW.contains(&name) || AGGREGATES.contains(&name)
}

pub(crate) fn function_class(name: &str) -> FunctionClass {
    if DATE_TIME.contains(&name) {
        FunctionClass::Cacheable { date_time: true }
    } else if [CACHEABLE, AGGREGATES, OF_CONTEXT].iter().any(|list| list.contains(&name)) {
        FunctionClass::Cacheable { date_time: false }
    } else if PURE.contains(&name) {
        FunctionClass::Pure
    } else if SIGNALS.contains(&name) || SIGNALS_THAT_TELL.contains(&name) {
        FunctionClass::Signal { reveals_commits: !SIGNALS.contains(&name) }
    } else if name == "set_config" {
        FunctionClass::Settings
    } else {
        FunctionClass::Unknown
    }
}

/// Whether a call returns one value for several rows, on any of the databases.
pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name) || mysql_functions::is_aggregate(name)
}

/// The number of the parameter that names the setting in a call of `current_setting`.
pub(crate) fn setting_read(function: &Function) -> Option<u32> {
    let Function { name, args: FunctionArguments::List(list), filter: None, over: None, .. } = function else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(setting)), rest @ ..] = list.args.as_slice() else { return None };
    let may_be_missing = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(_))));
    let plain = built_in_name(Dialect::Postgres, name) == Some("current_setting") && list.clauses.is_empty();
    parameter(setting).filter(|_| plain && rest.len() < 2 && rest.iter().all(may_be_missing))
}

/// Whether the function returns a part of the cache key, with or without parentheses.
pub(crate) fn is_of_context(name: &str) -> bool {
    OF_CONTEXT.contains(&name)
}

/// Words that are function calls without parentheses.
pub(crate) fn is_bare_function(word: &str) -> bool {
    matches!(
        word,
        "current_catalog"
            | "current_date"
            | "current_role"
            | "current_schema"
            | "current_time"
            | "current_timestamp"
            | "current_user"
            | "localtime"
            | "localtimestamp"
            | "session_user"
            | "system_user"
            | "user"
    )
}

/// System columns: every table has them, and the change stream does not carry them.
pub(crate) fn is_system_column(name: &str) -> bool {
    matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid")
}

/// Whether a result with this function may be served for a while, if a rule says so.
pub(crate) fn is_lasting(dialect: Dialect, name: &str) -> bool {
    if dialect.is_mysql_family() { mysql_functions::is_lasting(name) } else { LASTING.contains(&name) }
}

/// The class of a built-in function, by its name.
pub(crate) fn class_of(dialect: Dialect, name: &str) -> FunctionClass {
    if dialect.is_mysql_family() { mysql_functions::function_class(name) } else { function_class(name) }
}
