//! The functions, operators and types of MySQL and MariaDB that a cached statement may use.
//!
//! The catalogue has the names of stored and loadable functions, and a call of one of these names is not taken for the native function. So the lists
//! need not say which server version has a function, nor how `count (x)` with a blank is parsed. A function that is on no list is a stored function,
//! which may do anything.

use sqlparser::ast::{BinaryOperator, DataType, UnaryOperator};

use crate::allowlist::FunctionClass;

/// Functions whose results depend on their arguments and on settings in the cache key; aggregates and window functions.
#[rustfmt::skip]
const CACHEABLE: &[&str] = &[
    // conditions
    "coalesce", "greatest", "if", "ifnull", "isnull", "least", "nullif", "nvl", "nvl2",
    // numbers
    "abs", "acos", "asin", "atan", "atan2", "bin", "bit_count", "ceil", "ceiling", "conv", "cos", "cot", "crc32",
    "degrees", "exp", "floor", "format", "hex", "ln", "log", "log10", "log2", "mod", "oct", "pi", "pow", "power",
    "radians", "round", "sign", "sin", "sqrt", "tan", "truncate", "unhex",
    // text
    "aes_decrypt", "aes_encrypt", "ascii", "bit_length", "char", "char_length", "character_length", "charset", "chr",
    "coercibility", "collation", "compress", "concat", "concat_ws", "elt", "export_set", "extractvalue", "field",
    "find_in_set", "from_base64", "insert", "instr", "lcase", "left", "length", "lengthb", "locate", "lower", "lpad",
    "ltrim", "make_set", "md5", "mid", "natural_sort_key", "octet_length", "ord", "position", "quote", "regexp_instr",
    "regexp_like", "regexp_replace", "regexp_substr", "repeat", "replace", "reverse", "right", "rpad", "rtrim", "sha",
    "sha1", "sha2", "soundex", "space", "strcmp", "substr", "substring", "substring_index", "to_base64", "trim",
    "ucase", "uncompress", "uncompressed_length", "updatexml", "upper",
    // addresses and identifiers
    "bin_to_uuid", "inet6_aton", "inet6_ntoa", "inet_aton", "inet_ntoa", "is_ipv4", "is_ipv4_compat", "is_ipv4_mapped",
    "is_ipv6", "is_uuid", "uuid_to_bin",
    // JSON
    "json_array", "json_array_append", "json_array_insert", "json_compact", "json_contains", "json_contains_path",
    "json_depth", "json_detailed", "json_equals", "json_exists", "json_extract", "json_insert", "json_keys",
    "json_length", "json_loose", "json_merge", "json_merge_patch", "json_merge_preserve", "json_normalize",
    "json_object", "json_overlaps", "json_pretty", "json_query", "json_quote", "json_remove", "json_replace",
    "json_search", "json_set", "json_type", "json_unquote", "json_valid", "json_value",
    // parts of the key: the current database, the account, its role, the server's version
    "current_role", "current_user", "database", "schema", "version",
    // times of day that do not become dates
    "hour", "microsecond", "minute", "second", "time_format", "time_to_sec",
];

/// Aggregates: without GROUP BY they return a row even for no rows.
#[rustfmt::skip]
const AGGREGATES: &[&str] = &[
    "any_value", "avg", "bit_and", "bit_or", "bit_xor", "count", "group_concat", "json_arrayagg", "json_objectagg", "max",
    "median", "min", "std", "stddev", "stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance",
];

/// Window functions.
#[rustfmt::skip]
const WINDOW: &[&str] = &[
    "cume_dist", "dense_rank", "first_value", "grouping", "lag", "last_value", "lead", "nth_value", "ntile",
    "percent_rank", "rank", "row_number",
];

/// Cacheable functions that take or return dates: the current date completes a TIME among their arguments.
#[rustfmt::skip]
const DATES: &[&str] = &[
    "add_months", "adddate", "convert_tz", "date", "date_add", "date_format", "date_sub", "datediff", "day", "dayname",
    "dayofmonth", "dayofweek", "dayofyear", "extract", "from_days", "from_unixtime", "last_day", "makedate", "month", "monthname",
    "months_between", "period_add", "period_diff", "quarter", "subdate", "timestamp", "timestampadd", "timestampdiff",
    "to_char", "to_days", "to_seconds", "unix_timestamp", "week", "weekday", "weekofyear", "year", "yearweek",
];

/// Cacheable functions that return a TIME.
const TIMES: &[&str] = &["addtime", "maketime", "sec_to_time", "subtime", "time", "timediff"];

/// Functions that take a TIME as a TIME.
const OF_TIMES: &[&str] = &["hour", "microsecond", "minute", "second", "time", "time_format", "time_to_sec"];

/// Cacheable functions of geometries that both servers have.
///
/// The prefix alone proves nothing: `st_total` may be a stored function, which the catalogue may not show.
#[rustfmt::skip]
const SHAPES: &[&str] = &[
    "geometrycollection", "linestring", "multilinestring", "multipoint", "multipolygon", "point", "polygon",
    "mbrcontains", "mbrdisjoint", "mbrequals", "mbrintersects", "mbroverlaps", "mbrtouches", "mbrwithin", "st_area",
    "st_asbinary", "st_asgeojson", "st_astext", "st_aswkb", "st_aswkt", "st_buffer", "st_centroid", "st_contains",
    "st_convexhull", "st_crosses", "st_difference", "st_dimension", "st_disjoint", "st_distance", "st_distance_sphere",
    "st_endpoint", "st_envelope", "st_equals", "st_exteriorring", "st_geomcollfromtext", "st_geomcollfromwkb",
    "st_geometrycollectionfromtext", "st_geometrycollectionfromwkb", "st_geometryfromtext", "st_geometryfromwkb",
    "st_geometryn", "st_geometrytype", "st_geomfromgeojson", "st_geomfromtext", "st_geomfromwkb", "st_interiorringn",
    "st_intersection", "st_intersects", "st_isclosed", "st_isempty", "st_issimple", "st_length", "st_linefromtext",
    "st_linefromwkb", "st_linestringfromtext", "st_linestringfromwkb", "st_mlinefromtext", "st_mlinefromwkb",
    "st_mpointfromtext", "st_mpointfromwkb", "st_mpolyfromtext", "st_mpolyfromwkb", "st_multilinestringfromtext",
    "st_multilinestringfromwkb", "st_multipointfromtext", "st_multipointfromwkb", "st_multipolygonfromtext",
    "st_multipolygonfromwkb", "st_numgeometries", "st_numinteriorrings", "st_numpoints", "st_overlaps",
    "st_pointfromtext", "st_pointfromwkb", "st_pointn", "st_polyfromtext", "st_polyfromwkb", "st_polygonfromtext",
    "st_polygonfromwkb", "st_srid", "st_startpoint", "st_symdifference", "st_touches", "st_union", "st_within", "st_x",
    "st_y",
];

/// Functions of geometries that only one of the servers has, or that it has since a later version: on other servers the name may be a stored
/// function.
#[rustfmt::skip]
const SHAPES_OF_ONE: &[&str] = &[
    "geomfromtext", "mbrcoveredby", "mbrcovers", "mbrequal", "st_boundary", "st_buffer_strategy", "st_collect",
    "st_frechetdistance", "st_geohash", "st_geomcollfromtxt", "st_hausdorffdistance", "st_isring", "st_isvalid",
    "st_latfromgeohash", "st_latitude", "st_lineinterpolatepoint", "st_lineinterpolatepoints", "st_longfromgeohash",
    "st_longitude", "st_makeenvelope", "st_numinteriorring", "st_pointatdistance", "st_pointfromgeohash",
    "st_pointonsurface", "st_relate", "st_simplify", "st_swapxy", "st_transform", "st_validate",
];

/// Functions that change no data, settings or temporary tables, but whose results are not cached: they read or change something other than their
/// arguments.
#[rustfmt::skip]
const PURE: &[&str] = &[
    "benchmark", "binlog_gtid_pos", "column_add", "column_check", "column_create", "column_exists", "column_get",
    "column_json", "column_list", "connection_id", "curdate", "current_date",
    "current_time", "current_timestamp", "curtime", "decode", "default", "des_decrypt", "des_encrypt",
    "encode", "encrypt", "format_bytes", "format_pico_time", "found_rows",
    "get_lock", "gtid_subset", "gtid_subtract", "icu_version", "is_free_lock", "is_used_lock", "json_table",
    "last_insert_id", "lastval", "load_file", "localtime", "localtimestamp", "master_gtid_wait",
    "master_pos_wait", "name_const", "now", "old_password", "password",
    "ps_current_thread_id", "ps_thread_id", "rand", "random_bytes", "release_all_locks",
    "release_lock", "roles_graphml", "row_count", "session_user", "sleep", "source_pos_wait", "statement_digest",
    "statement_digest_text", "str_to_date", "sys_guid", "sysdate", "system_user", "user", "utc_date", "utc_time",
    "utc_timestamp", "uuid", "uuid_short", "validate_password_strength", "wait_for_executed_gtid_set",
    "weight_string",
];

/// Those of [`PURE`] whose results, from some moments ago, any session with the same settings and rights may be given (rules with `ttl`). Not among
/// them: what belongs to one session (`last_insert_id`, `found_rows`), must be unique (`uuid`), locks or waits.
#[rustfmt::skip]
const LASTING: &[&str] = &[
    "curdate", "current_date", "current_time", "current_timestamp", "curtime", "format_bytes", "format_pico_time", "json_table", "localtime",
    "localtimestamp", "now", "rand", "str_to_date", "sysdate", "utc_date", "utc_time", "utc_timestamp", "weight_string",
];

/// Words that are function calls without parentheses.
#[rustfmt::skip]
const BARE: &[&str] = &[
    "current_date", "current_role", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp",
    "utc_date", "utc_time", "utc_timestamp",
];

/// The class of a native function, by its name in lower case.
pub(crate) fn function_class(name: &str) -> FunctionClass {
    let on = |list: &[&str]| list.contains(&name);
    if on(DATES) {
        FunctionClass::Cacheable { date_time: true }
    } else if on(CACHEABLE) || on(AGGREGATES) || on(WINDOW) || on(TIMES) || on(SHAPES) {
        FunctionClass::Cacheable { date_time: false }
    } else if on(PURE) || on(SHAPES_OF_ONE) {
        FunctionClass::Pure
    } else {
        FunctionClass::Unknown
    }
}

/// See [`crate::allowlist::functions::is_lasting`].
pub(crate) fn is_lasting(name: &str) -> bool {
    LASTING.contains(&name) || SHAPES_OF_ONE.contains(&name)
}

pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name)
}

/// MariaDB's functions whose only effect is a write to a sequence.
pub(crate) fn counts_sequence(name: &str) -> bool {
    ["nextval", "setval"].iter().any(|sequence| name.eq_ignore_ascii_case(sequence))
}

/// It takes a TIME as its first argument and does not convert it to a date.
pub(crate) fn takes_time(name: &str) -> bool {
    OF_TIMES.contains(&name)
}

/// It returns a TIME.
pub(crate) fn makes_time(name: &str) -> bool {
    TIMES.contains(&name)
}

pub(crate) fn is_bare(word: &str) -> bool {
    BARE.contains(&word)
}

/// The operator's symbol, if a cached statement may use it. AND and OR have no symbol to check.
pub(crate) fn binary_operator(op: &BinaryOperator) -> Result<Option<String>, String> {
    use BinaryOperator as B;
    match op {
        B::And | B::Or | B::Xor => Ok(None),
        B::Plus
        | B::Minus
        | B::Multiply
        | B::Divide
        | B::MyIntegerDivide
        | B::Modulo
        | B::Gt
        | B::Lt
        | B::GtEq
        | B::LtEq
        | B::Eq
        | B::Spaceship
        | B::NotEq
        | B::BitwiseOr
        | B::BitwiseAnd
        | B::BitwiseXor
        | B::PGBitwiseShiftLeft
        | B::PGBitwiseShiftRight
        | B::Arrow
        | B::StringConcat
        | B::LongArrow => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// The same for operators with one operand.
pub(crate) fn unary_operator(op: UnaryOperator) -> Result<Option<String>, String> {
    match op {
        UnaryOperator::Not => Ok(None),
        UnaryOperator::Plus | UnaryOperator::Minus | UnaryOperator::BitwiseNot => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// The result of a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CastClass {
    Plain,
    Date,
    Time,
}

/// None: a cached statement may not cast to this type.
pub(crate) fn cast_class(data_type: &DataType) -> Option<CastClass> {
    use DataType as D;
    Some(match data_type {
        D::Date | D::Datetime(_) | D::Timestamp(..) => CastClass::Date,
        D::Time(..) => CastClass::Time,
        D::Signed
        | D::SignedInteger
        | D::Unsigned
        | D::UnsignedInteger
        | D::Int(_)
        | D::Integer(_)
        | D::Char(_)
        | D::Character(_)
        | D::Varchar(_)
        | D::Binary(_)
        | D::Varbinary(_)
        | D::Decimal(_)
        | D::Dec(_)
        | D::Numeric(_)
        | D::Float(_)
        | D::Double(_)
        | D::Real
        | D::JSON => CastClass::Plain,
        _ => return None,
    })
}
