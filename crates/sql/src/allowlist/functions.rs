//! Which functions, operators and types a cached statement may use.
//!
//! The lists name what is known to depend on its arguments alone, or on settings that are part of the cache key
//! (time zone, date style …). What is not on them passes; what is on neither list of functions may even write.

use freshet_types::Dialect;
use sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, ObjectNamePart, UnaryOperator,
};

use crate::allowlist::visitor::built_in_name;
use crate::predicate::parameter;

/// Immutable built-in functions, stable ones that read neither the clock nor settings outside the key, and
/// window functions. None of them has an overload of the same name that does, except `age` (see there).
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
    // pg_trgm, whose functions and operators of built-in names the catalogue tells from those of others
    "similarity", "word_similarity", "strict_word_similarity", "show_trgm",
    // arrays and ranges
    "array", "array_append", "array_cat", "array_dims", "array_fill", "array_length", "array_lower", "array_ndims",
    "array_position", "array_positions", "array_prepend", "array_remove", "array_replace", "array_to_string",
    "array_upper", "cardinality", "trim_array", "unnest", "generate_subscripts", "array_reverse", "array_sort",
    "isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf", "range_merge", "int4range", "int8range",
    "numrange", "multirange",
    // enums, whose labels are watched
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
    // text search: `default_text_search_config` is in the key, and configurations and dictionaries are watched
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

/// Aggregates, which are such functions as well.
#[rustfmt::skip]
const AGGREGATES: &[&str] = &[
    "count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor", "string_agg",
    "array_agg", "json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "stddev", "stddev_pop",
    "stddev_samp", "variance", "var_pop", "var_samp", "corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy",
    "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "percentile_cont",
    "percentile_disc", "mode", "range_agg", "range_intersect_agg", "any_value",
];

/// Cacheable functions that take or make dates and times: with one of them in a statement a literal such as `today`
/// may be folded to a clock reading. `age` with one argument reads the clock itself.
#[rustfmt::skip]
const DATE_TIME: &[&str] = &[
    "age", "date_bin", "date_part", "date_trunc", "date_add", "date_subtract", "extract", "isfinite", "justify_days",
    "justify_hours", "justify_interval", "make_date", "make_interval", "make_time", "make_timestamp",
    "make_timestamptz", "timezone", "to_char", "to_date", "to_timestamp", "overlaps", "generate_series", "tsrange",
    "tstzrange", "daterange",
];

/// Functions without arguments that tell of what is part of the cache key: the server's version, the database, users and
/// schemas.
#[rustfmt::skip]
const OF_CONTEXT: &[&str] = &[
    "current_catalog", "current_database", "current_role", "current_schema", "current_user", "session_user", "user",
    "version",
];

/// Functions that only read, but something else than their arguments and the tables of the statement.
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

/// Functions that change no row, definition or setting, and of which others may learn all the same. These tell the session nothing of
/// what others have committed.
const SIGNALS: &[&str] = &["pg_notify", "txid_current", "pg_current_xact_id", "nextval", "setval"];

/// Likewise, but they wait for others, or tell of them.
#[rustfmt::skip]
const SIGNALS_THAT_TELL: &[&str] = &[
    "pg_advisory_lock", "pg_advisory_lock_shared", "pg_advisory_unlock", "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared", "pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared", "pg_cancel_backend",
    "pg_terminate_backend",
];

/// Functions that make one value of a row, or of a group. Of others it is not said: some make any number of rows of one.
#[rustfmt::skip]
const OF_ONE_ROW: &[&str] = &[
    "coalesce", "nullif", "greatest", "least", "abs", "round", "floor", "ceil", "lower", "upper", "length", "substr", "substring",
    "left", "right", "concat", "concat_ws", "trim", "replace", "md5", "json_build_object", "jsonb_build_object", "row_to_json", "to_json",
    "to_jsonb", "date_part", "date_trunc", "extract", "to_char",
];

/// Whether a function keeps the number of rows, but for GROUP BY.
pub(crate) fn keeps_rows(name: &str) -> bool {
    OF_ONE_ROW.contains(&name) || AGGREGATES.contains(&name)
}

/// What is known of a built-in function by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FunctionClass {
    /// A result that uses it can be cached.
    Cacheable {
        /// It takes or makes dates or times.
        date_time: bool,
    },
    /// It writes nothing, but a result that uses it cannot be cached.
    Pure,
    /// See [`crate::Effect::Signal`].
    Signal {
        /// It tells of what others do.
        tells: bool,
    },
    /// It changes a setting.
    Settings,
    /// Not known: it may do anything.
    Unknown,
}

pub(crate) fn function_class(name: &str) -> FunctionClass {
    if DATE_TIME.contains(&name) {
        FunctionClass::Cacheable { date_time: true }
    } else if [CACHEABLE, AGGREGATES, OF_CONTEXT].iter().any(|list| list.contains(&name)) {
        FunctionClass::Cacheable { date_time: false }
    } else if PURE.contains(&name) {
        FunctionClass::Pure
    } else if SIGNALS.contains(&name) || SIGNALS_THAT_TELL.contains(&name) {
        FunctionClass::Signal { tells: !SIGNALS.contains(&name) }
    } else if name == "set_config" {
        FunctionClass::Settings
    } else {
        FunctionClass::Unknown
    }
}

/// Whether a call makes one value of those of several rows, on any of the databases.
pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name) || crate::allowlist::mysql_functions::is_aggregate(name)
}

/// The number of the parameter that names the setting, of a call of `current_setting`.
pub(crate) fn setting_read(function: &Function) -> Option<u32> {
    let Function { name, args: FunctionArguments::List(list), filter: None, over: None, .. } = function else {
        return None;
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(setting)), rest @ ..] = list.args.as_slice() else { return None };
    let may_be_missing = |arg: &FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(_))));
    let plain = built_in_name(Dialect::Postgres, name) == Some("current_setting") && list.clauses.is_empty();
    parameter(setting).filter(|_| plain && rest.len() < 2 && rest.iter().all(may_be_missing))
}

/// Whether it tells of what is part of the cache key, with or without brackets.
pub(crate) fn is_of_context(name: &str) -> bool {
    OF_CONTEXT.contains(&name)
}

/// Words that are function calls without brackets.
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

/// Columns that every table has and the change stream does not carry.
pub(crate) fn is_system_column(name: &str) -> bool {
    matches!(name, "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid")
}

/// The operator's symbol if it is a built-in one that a cached statement may use. AND and OR have none to check.
pub(crate) fn binary_operator(op: &BinaryOperator) -> Result<Option<String>, String> {
    use BinaryOperator as B;
    match op {
        // OVERLAPS calls a function: see `implicit_lookups.rs`.
        B::And | B::Or | B::Overlaps => Ok(None),
        B::Plus
        | B::Minus
        | B::Multiply
        | B::Divide
        | B::Modulo
        | B::StringConcat
        | B::Gt
        | B::Lt
        | B::GtEq
        | B::LtEq
        | B::Eq
        | B::NotEq
        | B::BitwiseOr
        | B::BitwiseAnd
        | B::PGBitwiseXor
        | B::PGBitwiseShiftLeft
        | B::PGBitwiseShiftRight
        | B::PGExp
        | B::PGOverlap
        | B::AtAt
        | B::PGRegexMatch
        | B::PGRegexIMatch
        | B::PGRegexNotMatch
        | B::PGRegexNotIMatch
        | B::PGLikeMatch
        | B::PGILikeMatch
        | B::PGNotLikeMatch
        | B::PGNotILikeMatch
        | B::PGStartsWith
        | B::Arrow
        | B::LongArrow
        | B::HashArrow
        | B::HashLongArrow
        | B::AtArrow
        | B::ArrowAt
        | B::HashMinus
        | B::AtQuestion
        | B::Question
        | B::QuestionAnd
        | B::QuestionPipe => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// The same for operators with one operand. NOT has no symbol to check.
pub(crate) fn unary_operator(op: UnaryOperator) -> Result<Option<String>, String> {
    match op {
        UnaryOperator::Not => Ok(None),
        UnaryOperator::Plus
        | UnaryOperator::Minus
        | UnaryOperator::BitwiseNot
        | UnaryOperator::PGAbs
        | UnaryOperator::PGSquareRoot
        | UnaryOperator::PGCubeRoot => Ok(Some(op.to_string())),
        other => Err(other.to_string()),
    }
}

/// A comparison: its operands may be a column and a literal of the column's type.
pub(crate) fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator as B;
    matches!(
        op,
        B::Eq
            | B::NotEq
            | B::Lt
            | B::LtEq
            | B::Gt
            | B::GtEq
            | B::PGRegexMatch
            | B::PGRegexIMatch
            | B::PGRegexNotMatch
            | B::PGRegexNotIMatch
            | B::PGLikeMatch
            | B::PGILikeMatch
            | B::PGNotLikeMatch
            | B::PGNotILikeMatch
            | B::PGStartsWith
    )
}

/// OIDs of PostgreSQL's built-in types (`pg_type.dat`).
pub(crate) mod oid {
    pub(crate) const BOOL: u32 = 16;
    pub(crate) const BYTEA: u32 = 17;
    pub(crate) const INT8: u32 = 20;
    pub(crate) const INT2: u32 = 21;
    pub(crate) const INT4: u32 = 23;
    pub(crate) const TEXT: u32 = 25;
    pub(crate) const FLOAT4: u32 = 700;
    pub(crate) const FLOAT8: u32 = 701;
    pub(crate) const UNKNOWN: u32 = 705;
    pub(crate) const BPCHAR: u32 = 1042;
    pub(crate) const VARCHAR: u32 = 1043;
    pub(crate) const DATE: u32 = 1082;
    pub(crate) const TIMESTAMP: u32 = 1114;
    pub(crate) const TIMESTAMPTZ: u32 = 1184;
    pub(crate) const NUMERIC: u32 = 1700;
    pub(crate) const UUID: u32 = 2950;
    /// The pseudo-type of all enums; here any of them.
    pub(crate) const ANYENUM: u32 = 3500;
    /// No types: functions of MySQL and MariaDB that make bytes of a text.
    pub(crate) const UNHEX: u32 = u32::MAX;
    pub(crate) const UUID_TO_BIN: u32 = u32::MAX - 1;
}

/// A type that a cached statement may cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TypeClass {
    /// A built-in type whose values a tag can compare, without a modifier.
    Tagged(u32),
    /// Another built-in type.
    Plain,
    /// A date or time type: its input may read the clock.
    DateTime,
}

/// None: not known to be built in, or its input reads the catalogue (`regclass`) or the clock (`timetz`). Of the catalogue
/// `regconfig` reads what is watched.
pub(crate) fn type_class(data_type: &DataType) -> Option<TypeClass> {
    use DataType as D;
    use TypeClass::{DateTime, Plain, Tagged};
    use sqlparser::ast::TimezoneInfo as Zone;
    Some(match data_type {
        D::SmallInt(None) | D::Int2(None) => Tagged(oid::INT2),
        D::Int(None) | D::Integer(None) | D::Int4(None) => Tagged(oid::INT4),
        D::BigInt(None) | D::Int8(None) => Tagged(oid::INT8),
        D::Numeric(ExactNumberInfo::None) | D::Decimal(ExactNumberInfo::None) | D::Dec(ExactNumberInfo::None) => {
            Tagged(oid::NUMERIC)
        }
        D::Text => Tagged(oid::TEXT),
        D::Varchar(None) | D::CharacterVarying(None) | D::CharVarying(None) => Tagged(oid::VARCHAR),
        D::Bool | D::Boolean => Tagged(oid::BOOL),
        D::Uuid => Tagged(oid::UUID),
        D::Bytea => Tagged(oid::BYTEA),
        D::Numeric(_)
        | D::Decimal(_)
        | D::Dec(_)
        | D::Varchar(_)
        | D::CharacterVarying(_)
        | D::CharVarying(_)
        | D::Char(_)
        | D::Character(_)
        | D::Real
        | D::Float4
        | D::Float8
        | D::DoublePrecision
        | D::Float(_)
        | D::JSON
        | D::JSONB
        | D::Bit(_)
        | D::BitVarying(_)
        | D::VarBit(_)
        | D::TsVector
        | D::TsQuery => Plain,
        D::Date | D::Time(_, Zone::None | Zone::WithoutTimeZone) | D::Timestamp(..) | D::Interval { .. } => DateTime,
        D::Array(ArrayElemTypeDef::SquareBracket(element, _)) => match type_class(element)? {
            DateTime => DateTime,
            Tagged(_) | Plain => Plain,
        },
        D::Custom(name, modifiers) if modifiers.is_empty() => return custom_type(&name.0),
        _ => return None,
    })
}

/// The schema, if it names one, and the name of a type that may be somebody's enum.
pub(crate) fn enum_name(data_type: &DataType) -> Option<(Option<&str>, &str)> {
    let DataType::Custom(name, modifiers) = data_type else { return None };
    let ident = |at: usize| name.0.get(at)?.as_ident().map(|ident| ident.value.as_str());
    match name.0.len() {
        _ if !modifiers.is_empty() || type_class(data_type).is_some() => None,
        1 => Some((None, ident(0)?)),
        2 => Some((Some(ident(0)?), ident(1)?)),
        _ => None,
    }
}

fn custom_type(parts: &[ObjectNamePart]) -> Option<TypeClass> {
    let mut names = parts.iter().map(|part| part.as_ident().map(|ident| ident.value.as_str()));
    let ((Some(name), None, None) | (Some("pg_catalog"), Some(Some(name)), None)) =
        (names.next()?, names.next(), names.next())
    else {
        return None;
    };
    Some(match name {
        "int2" => TypeClass::Tagged(oid::INT2),
        "int4" => TypeClass::Tagged(oid::INT4),
        "int8" => TypeClass::Tagged(oid::INT8),
        "numeric" => TypeClass::Tagged(oid::NUMERIC),
        "text" => TypeClass::Tagged(oid::TEXT),
        "varchar" => TypeClass::Tagged(oid::VARCHAR),
        "bool" => TypeClass::Tagged(oid::BOOL),
        "uuid" => TypeClass::Tagged(oid::UUID),
        "bytea" => TypeClass::Tagged(oid::BYTEA),
        "float4" | "float8" | "bpchar" | "name" | "oid" | "inet" | "cidr" | "macaddr" | "macaddr8" | "json"
        | "jsonb" | "jsonpath" | "int4range" | "int8range" | "numrange" | "point" | "box" | "tsvector" | "tsquery"
        | "regconfig" => TypeClass::Plain,
        "date" | "time" | "timestamp" | "timestamptz" | "interval" | "daterange" | "tsrange" | "tstzrange" => {
            TypeClass::DateTime
        }
        _ => return None,
    })
}
