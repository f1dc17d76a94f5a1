//! User-defined functions and aggregates that the operator trusts to be what they are declared to be: [`Catalog::trusted`](freshet_types::Catalog).
//!
//! They are immutable, and written in SQL or PL/pgSQL, so that a row of the catalogue is their whole definition. These rows are watched with the
//! other surroundings. An aggregate is as immutable as the functions that it uses. Functions are excluded for which a call runs more: defaults, which
//! may be volatile, and results of other types than built-in ones that do not print names of objects. Names of types are excluded, too: `name(x)` may
//! be a cast.

/// Their names, and whether they are aggregates.
pub(super) const TRUSTED: &str = "
WITH made(oid, name, is_aggregate, fits) AS (
  SELECT p.oid, p.proname, p.prokind = 'a',
   p.provolatile = 'i' AND p.prokind IN ('f', 'a') AND NOT p.proretset AND p.pronargdefaults = 0
   AND (p.prokind = 'a' OR l.lanname IN ('sql', 'plpgsql'))
   AND EXISTS (SELECT FROM pg_type r JOIN pg_type t
     ON t.oid = CASE WHEN r.typcategory = 'A' AND r.typelem <> 0 THEN r.typelem ELSE r.oid END
    WHERE r.oid = p.prorettype AND t.oid < 16384 AND t.typtype IN ('b', 'r', 'm') AND t.typname !~ '^reg' AND t.typname <> 'aclitem')
   AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[]) AS a(oid) JOIN pg_type t ON t.oid = a.oid OR t.typarray = a.oid
    WHERE t.typname ~ '^reg' OR t.typname = 'aclitem')
   AND NOT EXISTS (SELECT FROM pg_aggregate g, LATERAL unnest(ARRAY[aggtransfn::oid, aggfinalfn::oid, aggcombinefn::oid,
      aggserialfn::oid, aggdeserialfn::oid, aggmtransfn::oid, aggminvtransfn::oid, aggmfinalfn::oid]) AS part(oid)
     LEFT JOIN pg_proc f ON f.oid = part.oid LEFT JOIN pg_language fl ON fl.oid = f.prolang
    WHERE g.aggfnoid = p.oid AND part.oid <> 0
     AND (g.aggkind = 'n' AND f.provolatile = 'i' AND (f.oid < 16384 OR fl.lanname IN ('sql', 'plpgsql'))) IS NOT TRUE)
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid >= 16384)
SELECT name::text, bool_or(is_aggregate)::text FROM made
WHERE NOT EXISTS (SELECT FROM pg_proc b WHERE b.proname = made.name AND b.oid < 16384)
 AND NOT EXISTS (SELECT FROM pg_type t WHERE t.typname = made.name AND t.typrelid = 0)
GROUP BY name HAVING bool_and(fits) AND bool_and(is_aggregate) = bool_or(is_aggregate)";
