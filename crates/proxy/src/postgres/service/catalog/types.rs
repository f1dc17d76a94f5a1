//! Types with effects: their values run user-defined code, or print names of other objects.
//!
//! - **Casts** that are user-defined run wherever the server looks up a cast: where the text has one, in comparisons, arguments and lists with
//!   different types, and in functions that return JSON. They count unless they only do what a cast in the text does with built-in code: `WITH INOUT`
//!   between built-in types and enums whose input functions read neither the catalogue nor the clock. The input functions of dates read the clock; a
//!   cast to a date in the text is checked there. A built-in cast counts if its row was altered. A cached text does not cast to a user-defined type,
//!   unless it is an enum without a cast by a function; otherwise only functions and operators created for the type need its values.
//! - **Checks** of domains run where a value is converted to the domain, and so do casts by functions to a user-defined type. They count if they call
//!   a user-defined function, or one that changes settings or runs a text, since it may write, or read any table. A range compares its bounds by such
//!   functions, if its operator class has them. They run only for a text that names such a type, or one that contains it, and for a parameter
//!   declared with it.
//! - **Operator classes** that are a type's default sort, group and compare its values without any operator in the text, and those of composite types
//!   that contain the type.
//! - **Names** are printed by `regclass` and similar types and by `aclitem`. Renaming or hiding an object changes the printed values. `regconfig` and
//!   `regdictionary` do not count: each change of text search empties the cache.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use freshet_net::postgres::Rows;
use freshet_types::{Reason, TypeEffect};

use super::rows::{table_id, texts};
use crate::postgres::service::connection::ServiceError;

/// Effects by name (`` is that of names), with the objects of each. Rows that initdb wrote have its first transaction's number
/// (`BootstrapTransactionId`), or that of frozen ones.
pub(super) const TYPE_EFFECTS: &str = ",
printing(oid) AS (SELECT oid FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND oid < 16384
  AND (typname ~ '^reg' AND typname NOT IN ('regconfig', 'regdictionary') OR typname = 'aclitem')),
usual(oid, is_date) AS (SELECT oid, typcategory IN ('D', 'T') FROM pg_type WHERE typtype = 'e'
  OR typtype = 'b' AND oid < 16384 AND typcategory <> 'A' AND typname !~ '^reg' AND oid NOT IN (SELECT oid FROM printing)),
effects(id, what, explicit, source) AS (
  SELECT '', '', false, oid FROM printing
  UNION ALL
  SELECT 'cast ' || c.oid, 'the cast from ' || format_type(castsource, NULL) || ' to ' || format_type(casttarget, NULL),
   castcontext <> 'i', castsource
  FROM pg_cast c JOIN pg_type made ON made.oid = casttarget
  LEFT JOIN usual s ON s.oid = castsource LEFT JOIN usual t ON t.oid = casttarget
  WHERE (c.oid >= 16384 OR c.xmin::text NOT IN ('1', '2'))
   AND (made.oid < 16384 OR castcontext = 'i' AND made.typtype NOT IN ('b', 'r', 'm'))
   AND c.oid NOT IN (SELECT objid FROM members WHERE classid = 'pg_cast'::regclass)
   AND ((castmethod = 'i' OR castmethod = 'f' AND c.oid < 16384 AND castfunc < 16384) AND s.oid IS NOT NULL
    AND t.oid IS NOT NULL AND (castcontext <> 'i' OR NOT t.is_date)) IS NOT TRUE
  UNION ALL
  SELECT 'class ' || c.oid, 'operator class ' || opcname, false, opcintype
  FROM pg_opclass c JOIN pg_am m ON m.oid = opcmethod
  WHERE opcdefault AND c.oid >= 16384 AND amname IN ('btree', 'hash')
   AND c.oid NOT IN (SELECT objid FROM members WHERE classid = 'pg_opclass'::regclass)),
inside(oid, of) AS (
  SELECT oid, typelem FROM pg_type WHERE typcategory = 'A' AND typelem <> 0
  UNION ALL SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
  UNION ALL SELECT reltype, atttypid FROM pg_class c JOIN pg_attribute ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
   WHERE relkind = 'c'
  UNION ALL SELECT rngtypid, rngsubtype FROM pg_range
  UNION ALL SELECT oidin(textout(to_jsonb(r) ->> 'rngmultitypid')), rngtypid FROM pg_range r WHERE to_jsonb(r) ? 'rngmultitypid'),
holds(id, oid) AS (
  SELECT id, source FROM effects UNION SELECT holds.id, inside.oid FROM holds JOIN inside ON inside.of = holds.oid),
calling(oid, class, of) AS (
  SELECT c.contypid, d.refclassid, d.refobjid FROM pg_constraint c
   JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = c.oid WHERE c.contypid <> 0 AND d.refobjid >= 16384),
checking(oid) AS (
  SELECT calling.oid FROM calling JOIN stored ON stored.oid = of AND class = 'pg_proc'::regclass WHERE NOT harmless
  UNION SELECT calling.oid FROM calling JOIN pg_operator o ON o.oid = of AND class = 'pg_operator'::regclass
   JOIN other ON other.oid IN (oprcode, oprrest, oprjoin)
  UNION SELECT contypid FROM pg_constraint WHERE contypid <> 0
   AND conbin::text ~ (SELECT ':funcid (' || string_agg(oid::text, '|') || ') ' FROM at_will)),
within(oid, of) AS (
  SELECT oid, of FROM inside UNION ALL SELECT oid, of FROM calling WHERE class = 'pg_type'::regclass
  UNION ALL SELECT reltype, atttypid FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
   WHERE atttypid >= 16384 AND attnum > 0 AND NOT attisdropped AND reltype <> 0),
named(oid, checked) AS (
  SELECT oid, true FROM checking
  UNION SELECT casttarget, false FROM pg_cast c JOIN other ON other.oid = castfunc
   WHERE casttarget >= 16384 AND c.oid NOT IN (SELECT objid FROM members WHERE classid = 'pg_cast'::regclass)
  UNION SELECT rngtypid, false FROM pg_range JOIN other ON other.oid = rngcanonical
  UNION SELECT rngtypid, false FROM pg_range JOIN pg_opclass c ON c.oid = rngsubopc JOIN pg_amproc ON amprocfamily = opcfamily
   JOIN other ON other.oid = amproc
  UNION SELECT within.oid, checked FROM named JOIN within ON within.of = named.oid),
relations(oid, reltype) AS (SELECT oid, reltype FROM pg_class
  WHERE oid >= 16384 AND relkind IN ('r', 'p', 'v', 'm') AND relpersistence <> 't')
SELECT id, CASE WHEN explicit THEN 'explicit' ELSE 'implicit' END, what, '' FROM effects
UNION SELECT id, 'type', oid::text, '' FROM holds
UNION SELECT id, 'column', attrelid::text, attname::text FROM holds JOIN pg_attribute ON atttypid = holds.oid
 JOIN relations ON relations.oid = attrelid WHERE attnum > 0 AND NOT attisdropped
UNION SELECT id, 'row', relations.oid::text, '' FROM holds JOIN relations ON reltype = holds.oid
UNION SELECT id, 'maker', proname::text, '' FROM holds JOIN pg_proc ON prorettype = holds.oid OR holds.oid = ANY (proallargtypes)
 WHERE id <> '' AND pronamespace = 'pg_catalog'::regnamespace
UNION SELECT id, 'maker', oprname::text, '' FROM holds JOIN pg_operator ON oprresult = holds.oid WHERE id <> ''
UNION SELECT 'named', 'implicit', 'a domain or a cast that calls a function', '' FROM named
UNION SELECT 'named', 'type', oid::text, '' FROM named
UNION SELECT 'named', 'name', typname::text, '' FROM named JOIN pg_type USING (oid)
UNION SELECT 'named', 'column', attrelid::text, attname::text FROM named JOIN pg_attribute ON atttypid = named.oid
 JOIN relations ON relations.oid = attrelid WHERE checked AND attnum > 0 AND NOT attisdropped
UNION SELECT 'named', 'row', relations.oid::text, '' FROM named JOIN relations ON reltype = named.oid WHERE checked";

/// The effects.
pub(super) fn type_effects(rows: Rows) -> Result<Vec<Arc<TypeEffect>>, ServiceError> {
    let mut effects: BTreeMap<String, TypeEffect> = BTreeMap::new();
    for row in rows {
        let [id, kind, of, name] = texts(row, "types")?;
        let runs_code = !id.is_empty();
        note(effects.entry(id).or_insert_with(|| empty(runs_code)), (&kind, of, &name))?;
    }
    Ok(effects.into_values().map(Arc::new).collect())
}

fn note(effect: &mut TypeEffect, (kind, of, name): (&str, String, &str)) -> Result<(), ServiceError> {
    match kind {
        "type" => drop(effect.types.insert(of.parse().map_err(|_| ServiceError::UnexpectedAnswer("types"))?)),
        "column" => effect.columns.entry(table_id(&of)?).or_default().push(name.into()),
        "row" => drop(effect.rows.insert(table_id(&of)?)),
        "name" => drop(effect.names.insert(of.to_lowercase().into())),
        "maker" => drop(effect.makers.insert(of.into())),
        kind => {
            effect.explicit = kind == "explicit";
            if effect.runs_code {
                effect.reason = Reason::UserDefined(of.into());
            }
        }
    }
    Ok(())
}

fn empty(runs_code: bool) -> TypeEffect {
    TypeEffect {
        reason: Reason::Construct("a value that prints the name of another object (regclass and its kin)"),
        runs_code,
        explicit: false,
        names: HashSet::new(),
        types: HashSet::new(),
        makers: HashSet::new(),
        columns: HashMap::new(),
        rows: HashSet::new(),
    }
}
