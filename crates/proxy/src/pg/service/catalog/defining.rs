//! Which functions may change the catalogue, and which relations run one of them.
//!
//! Asked only where the change stream does not tell of DDL: a statement that names one of these is acknowledged once the catalogue has been
//! looked at, as DDL is. Everything else cannot define anything by what it calls.

use std::collections::HashSet;

use crate::pg::service::catalog::load::names;
use crate::pg::service::connection::{Connection, ServiceError};

/// What may define by itself: code with a word of DDL, or with text that is run; code in other languages. The server refuses DDL in code
/// that is not volatile. DDL on temporary tables is no definition, and in PL/pgSQL INTO makes no table. C code that only the server calls, or that
/// extensions bring for triggers, is left out, and so are event triggers: they run with DDL.
///
/// What reaches such code: routines whose text has its name, or that of a relation that runs it, as a word; what depends on it; parents of
/// tables; tables whose foreign keys change others. What operators, casts, types and operator classes (`*`) run is named nowhere. Procedures run by CALL alone, which counts by itself.
const DEFINING: &str = r"
WITH RECURSIVE routine(oid, name, called, text, seed) AS MATERIALIZED (
  SELECT p.oid, lower(p.proname::text), p.prokind <> 'p', lower(p.prosrc),
   CASE WHEN p.provolatile = 'i' OR p.prorettype = 'event_trigger'::regtype THEN false
    WHEN l.lanname IN ('sql', 'plpgsql') THEN p.prosrc ~* '\mexecute\M' OR p.provolatile = 'v'
     AND regexp_replace(p.prosrc, '\mcreate\s+((local|global)\s+)?temp(orary)?\M|\minsert\s+into\M', '', 'gi')
      ~* ('\m(create|alter|drop|grant|revoke|reassign|refresh|import' || CASE l.lanname WHEN 'sql' THEN '|into' ELSE '' END || ')\M')
    WHEN l.lanname = 'internal' THEN false
    WHEN l.lanname = 'c' THEN p.provolatile = 'v' AND p.probin NOT IN ('$libdir/uuid-ossp', '$libdir/pgcrypto')
     AND 'internal'::regtype <> ALL (p.proargtypes || p.prorettype) AND p.prorettype::regtype::text !~ '_handler$'
     AND NOT (p.prorettype = 'trigger'::regtype AND EXISTS (SELECT FROM pg_depend d
      WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))
    ELSE true END
  FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid >= 16384),
node(class, oid, name, called) AS MATERIALIZED (
  SELECT 'p'::text, oid, name, called FROM routine
  UNION ALL SELECT 'r', oid, lower(relname::text), true FROM pg_class
   WHERE oid >= 16384 AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relpersistence <> 't'),
edge(class, oid, refclass, refoid) AS MATERIALIZED (
  SELECT 'p'::text, r.oid, n.class, n.oid
   FROM routine r, LATERAL (SELECT DISTINCT w FROM regexp_split_to_table(r.text, '[^[:alnum:]_$]+') AS w) AS words(w)
   JOIN node n ON n.name = w
  UNION ALL SELECT 'p', r.oid, n.class, n.oid FROM node n JOIN routine r ON strpos(r.text, n.name) > 0 WHERE n.name ~ '[^[:alnum:]_$]'
  UNION ALL SELECT CASE WHEN d.classid = 'pg_proc'::regclass THEN 'p' WHEN coalesce(k.conrelid, 1) = 0 THEN '*'
    WHEN d.classid IN ('pg_operator'::regclass, 'pg_cast'::regclass, 'pg_amproc'::regclass, 'pg_type'::regclass) THEN '*' ELSE 'r' END,
    coalesce(t.tgrelid, w.ev_class, a.adrelid, k.conrelid, y.polrelid, i.indrelid, d.objid),
    CASE d.refclassid WHEN 'pg_proc'::regclass THEN 'p' ELSE 'r' END, d.refobjid
   FROM pg_depend d
   LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
   LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
   LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
   LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
   LEFT JOIN pg_policy y ON d.classid = 'pg_policy'::regclass AND y.oid = d.objid
   LEFT JOIN pg_index i ON d.classid = 'pg_class'::regclass AND i.indexrelid = d.objid
   WHERE d.refobjid >= 16384 AND (d.refclassid = 'pg_proc'::regclass
    OR d.refclassid = 'pg_class'::regclass AND d.classid IN ('pg_proc'::regclass, 'pg_rewrite'::regclass))
  UNION ALL SELECT 'r', inhparent, 'r', inhrelid FROM pg_inherits
  UNION ALL SELECT 'r', confrelid, 'r', conrelid FROM pg_constraint
   WHERE contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))),
reached(class, oid) AS (
  SELECT 'p'::text, oid FROM routine WHERE seed
  UNION SELECT e.class, e.oid FROM reached r JOIN edge e ON e.refclass = r.class AND e.refoid = r.oid)
SELECT n.name FROM reached r JOIN node n ON n.class = r.class AND n.oid = r.oid WHERE n.called
UNION SELECT '' FROM reached WHERE class = '*'";

/// What runs a text that it is given, or a statement of another name.
const AT_WILL: [&str; 5] = ["execute", "query_to_xml", "query_to_xml_and_xmlschema", "ts_rewrite", "ts_stat"];

/// See [`freshet_model::Catalog::defining`].
pub(super) async fn read(connection: &mut Connection) -> Result<HashSet<Box<str>>, ServiceError> {
    let named = names(connection.query(DEFINING).await?);
    let more = AT_WILL.into_iter().filter(|_| !named.is_empty()).map(Box::from);
    // Which bytes other letters are in a session depends on its encoding.
    let name = |name: Box<str>| if name.is_ascii() { name } else { "".into() };
    Ok(named.iter().cloned().map(name).chain(more).collect())
}
