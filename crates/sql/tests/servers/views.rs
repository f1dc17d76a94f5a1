//! Random views over the tables and over each other, with the columns of a table.

use anyhow::Result;
use freshet_types::{Catalog, Column, RelationKind, ReplicaIdentity, Table, TableId, ValueType};

use crate::queries::{COLUMNS, Queries, TABLES};
use crate::{DATABASE, PUBLIC, Random, Upstream};

pub(crate) const VIEWS: [&str; 4] = ["va", "vb", "vc", "vd"];

/// Creates the views again, each over those before. A query that cannot be a view is skipped.
pub(crate) fn create(
    upstream: Upstream<'_>,
    random: &mut Random,
    catalog: &Catalog,
) -> Result<(Catalog, Vec<&'static str>)> {
    let postgres = matches!(upstream, Upstream::Postgres(_));
    let mut made = Vec::new();
    let mut tables = Vec::new();
    for (name, id) in VIEWS.into_iter().zip(100..) {
        let mut queries = Queries { random, postgres, shape: [""; 2], views: made.clone() };
        let block = match queries.random.below(3) {
            // With constants alone.
            0 => {
                let condition = queries.condition(&["w"], 1);
                format!(
                    "(SELECT {} FROM {{ta}} w WHERE {condition})",
                    COLUMNS.map(|name| format!("w.{name}")).join(", ")
                )
            }
            _ => queries.block(1),
        };
        let mut columns = COLUMNS;
        if queries.random.below(3) == 0 {
            columns.swap(1, 2);
        }
        let block = TABLES.iter().fold(block, |text, name| text.replace(&format!("{{{name}}}"), name));
        if upstream.sql(&format!("CREATE VIEW {name} ({}) AS {block};", columns.join(", "))).is_err() {
            continue;
        }
        made.push(name);
        tables.push(Table {
            id: TableId(id),
            schema: if postgres { PUBLIC } else { DATABASE }.into(),
            name: name.into(),
            kind: RelationKind::View,
            key: Vec::new(),
            identity: ReplicaIdentity::Missing,
            row_security: false,
            user_types: false,
            datetime: true,
            columns: described(upstream, name)?,
            version: "".into(),
            definition: Some(definition(upstream, name)?.into()),
            children: Vec::new(),
            runs_code: false,
            capacities: Vec::new(),
        });
    }
    let numbers = tables.iter().map(|view| view.id).collect();
    Ok((catalog.with_anew(catalog.version, &numbers, tables), made))
}

pub(crate) fn drop(upstream: Upstream<'_>) -> Result<()> {
    let views: Vec<&str> = VIEWS.into_iter().rev().collect();
    views.iter().try_for_each(|view| upstream.sql(&format!("DROP VIEW IF EXISTS {view};")).map(|_| ()))
}

/// The text of a view as the catalogue has it.
fn definition(upstream: Upstream<'_>, name: &str) -> Result<String> {
    let question = match upstream {
        Upstream::Postgres(_) => {
            format!("SET search_path = ''; SELECT replace(pg_get_viewdef('{PUBLIC}.{name}'::regclass), chr(10), ' ');")
        }
        Upstream::Mysql(_) => format!(
            "SELECT view_definition FROM information_schema.views WHERE table_schema = '{DATABASE}' AND table_name = '{name}';"
        ),
    };
    Ok(upstream.sql(&question)?.lines().last().unwrap_or_default().to_owned())
}

fn described(upstream: Upstream<'_>, name: &str) -> Result<Vec<Column>> {
    let question = match upstream {
        Upstream::Postgres(_) => format!(
            "SELECT concat_ws(',', attname, format_type(atttypid, NULL), '', collname) FROM pg_attribute \
             LEFT JOIN pg_collation c ON c.oid = attcollation \
             WHERE attrelid = '{name}'::regclass AND attnum > 0 ORDER BY attnum;"
        ),
        Upstream::Mysql(_) => format!(
            "SELECT CONCAT_WS(',', column_name, data_type, REPLACE(column_type, ',', ';'), IFNULL(collation_name, '')) \
             FROM information_schema.columns WHERE table_schema = '{DATABASE}' AND table_name = '{name}' \
             ORDER BY ordinal_position;"
        ),
    };
    let answer = upstream.sql(&question)?;
    let column = |line: &str| {
        let [name, data_type, column_type, collation] =
            std::array::from_fn(|at| line.split(',').nth(at).unwrap_or_default());
        let value_type = match upstream {
            Upstream::Postgres(_) => of_postgres(data_type, collation),
            Upstream::Mysql(_) => ValueType::of_mysql_column(
                data_type,
                &column_type.replace(';', ","),
                Some(collation).filter(|name| !name.is_empty()),
            ),
        };
        Column { name: name.into(), value_type, generated: false, composite: None }
    };
    Ok(answer.lines().filter(|line| line.contains(',')).map(column).collect())
}

fn of_postgres(data_type: &str, collation: &str) -> ValueType {
    match data_type {
        "smallint" | "integer" | "bigint" => ValueType::Int,
        "numeric" => ValueType::Numeric,
        "text" | "character varying" if collation == "C" => ValueType::OrderedText,
        "text" | "character varying" => ValueType::Text,
        "date" => ValueType::Date,
        "timestamp without time zone" => ValueType::Timestamp,
        "timestamp with time zone" => ValueType::TimestampTz,
        "real" => ValueType::Float4,
        "double precision" => ValueType::Float8,
        _ => ValueType::Other,
    }
}
