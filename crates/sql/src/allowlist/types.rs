//! The types that a cached statement may cast to, and their OIDs.

use sqlparser::ast::{ArrayElemTypeDef, DataType, ExactNumberInfo, ObjectNamePart, TimezoneInfo};

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
    /// The pseudo-type of all enums; here it stands for any enum.
    pub(crate) const ANYENUM: u32 = 3500;
    /// Not a type: it stands for functions of MySQL and MariaDB that return the bytes of a text.
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

/// None: the type is not known to be built in, or its input function reads the catalogue (`regclass`) or the clock (`timetz`). What `regconfig` reads
/// of the catalogue is watched.
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

/// The schema, if the text names one, and the name of a type that may be an enum.
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

pub(crate) fn custom_type(parts: &[ObjectNamePart]) -> Option<TypeClass> {
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

/// The OID of a type whose values have a normal form.
pub(crate) fn comparable_type(data_type: &DataType) -> Option<u32> {
    match type_class(data_type)? {
        TypeClass::Tagged(oid) => Some(oid),
        TypeClass::DateTime => date_type(data_type),
        TypeClass::Plain => match data_type {
            DataType::Real | DataType::Float4 => Some(oid::FLOAT4),
            DataType::Float8 | DataType::DoublePrecision => Some(oid::FLOAT8),
            _ => None,
        },
    }
}

pub(crate) fn date_type(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Date => Some(oid::DATE),
        DataType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Some(oid::TIMESTAMP),
        DataType::Timestamp(None, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => Some(oid::TIMESTAMPTZ),
        _ => None,
    }
}
