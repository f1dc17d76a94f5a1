//! Composite types whose values may be in cached results: their output, comparison and fields run the server's own code alone.
//!
//! A field may have any type that a column may have, or such a composite type. It may not have a domain with a check: the check would run where a constant
//! takes the composite type of its neighbour (`coalesce(address, '(…)')`). Nor may it have an array of composite values, or `timetz`, whose comparison
//! with a time depends on the date.
//!
//! `(column).field` is a call of a function if the type has no such field, so the fields are part of the catalogue. `ALTER TYPE` changes how the values
//! of all rows are printed, without a change of a row: it empties the cache, as a change of an enum does.

use std::collections::HashMap;

use freshet_net::postgres::Rows;
use freshet_types::Composite;

use super::rows::texts;
use crate::postgres::service::connection::ServiceError;

/// Type, field, the field's type, and whether the type is dated; behind [`super::code::KNOWN`].
pub(super) const COMPOSITES: &str = "
parts(whole, part) AS (
  SELECT t.oid, a.atttypid FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid AND c.relkind = 'c' AND c.relpersistence <> 't'
   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE t.oid >= 16384
  UNION SELECT whole, coalesce(a.atttypid, t.typbasetype) FROM parts JOIN pg_type t ON t.oid = part
   LEFT JOIN pg_attribute a ON t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  WHERE t.typtype = 'd' OR a.atttypid IS NOT NULL),
composites(oid, dated) AS (
  SELECT whole, bool_or(t.oid IN (1082, 1083, 1114, 1184, 1182, 1183, 1115, 1185, 3908, 3909, 3910, 3911, 3912, 3913))
  FROM parts JOIN pg_type t ON t.oid = part LEFT JOIN pg_class c ON c.oid = t.typrelid
   LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
  GROUP BY whole
  HAVING bool_and(CASE t.typtype
   WHEN 'c' THEN t.oid >= 16384 AND c.relkind = 'c'
   WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c')
   WHEN 'e' THEN true
   WHEN 'p' THEN false
   ELSE t.oid < 16384 AND t.typnamespace = 'pg_catalog'::regnamespace AND t.oid NOT IN (1266, 1270)
    AND coalesce(e.typtype, 'b') NOT IN ('c', 'p') OR t.oid IN (SELECT oid FROM known)
    OR t.oid >= 16384 AND e.typtype = 'e' END))
SELECT m.oid::text, a.attname::text, a.atttypid::text, m.dated::text
FROM composites m JOIN pg_type t ON t.oid = m.oid JOIN pg_attribute a ON a.attrelid = t.typrelid
WHERE a.attnum > 0 AND NOT a.attisdropped";

/// The types, by their object ids.
pub(super) fn read(rows: Rows) -> Result<HashMap<u32, Composite>, ServiceError> {
    let number = |text: &str| text.parse().map_err(|_| ServiceError::UnexpectedAnswer("composite types"));
    let mut composites: HashMap<u32, Composite> = HashMap::new();
    for row in rows {
        let [whole, name, of, dated] = texts(row, "composite types")?;
        let composite = composites.entry(number(&whole)?).or_default();
        composite.dated = dated == "true";
        composite.fields.insert(name.into(), number(&of)?);
    }
    Ok(composites)
}
