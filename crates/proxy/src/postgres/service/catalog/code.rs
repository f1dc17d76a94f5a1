//! Parts of questions that tell other people's types and functions from those of the server.

/// Types of extensions whose input, output, operators and functions of built-in names depend on their arguments alone, and arrays of them:
/// results that show them can be cached, though no tag compares them. Casts of other people's are not known. And what pg_trgm makes for texts: it
/// depends on these and on a setting that is in the key.
pub(super) const KNOWN: &str = "
WITH RECURSIVE members AS (
  SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
   AND e.extname IN ('citext', 'cube', 'hstore', 'ltree', 'postgis', 'seg', 'vector')),
of_texts AS (
  SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
  WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND e.extname = 'pg_trgm'),
known(oid) AS (
  SELECT unnest(ARRAY[t.oid, t.typarray]) FROM pg_type t JOIN members ON classid = 'pg_type'::regclass AND objid = t.oid
  WHERE t.typtype = 'b' AND NOT EXISTS (SELECT FROM pg_cast c WHERE t.oid IN (c.castsource, c.casttarget)
   AND c.oid NOT IN (SELECT objid FROM pg_depend WHERE classid = 'pg_cast'::regclass AND deptype = 'e'))), ";

/// Functions that are not the server's own, or change settings or run the text of a query.
///
/// What extensions bring in C (language 13), by another name (12) or as immutable is taken for the server's own where operators, casts,
/// types and operator classes call it; where expressions do, if it is immutable, or makes keys like `uuid_generate_v4()`
/// (docs/decisions/2026-11-24-session-context.md).
pub(super) const CODE: &str = "
at_will(oid, prosrc) AS (
  SELECT oid, prosrc FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
   AND (proname IN ('set_config', 'ts_stat', 'ts_rewrite') OR proname ~ '_to_xml')),
stored(oid, native, harmless) AS (
  SELECT oid, native, native AND (provolatile = 'i' OR probin IN ('$libdir/uuid-ossp', '$libdir/pgcrypto')) FROM pg_proc,
   LATERAL (SELECT prolang = 13 OR prolang = 12 AND prosrc NOT IN (SELECT prosrc FROM at_will) OR provolatile = 'i'
     AND oid IN (SELECT objid FROM pg_depend WHERE classid = 'pg_proc'::regclass AND deptype = 'e')) AS n(native)
  WHERE oid >= 16384),
other(oid) AS (SELECT oid FROM stored WHERE NOT native UNION ALL SELECT oid FROM at_will)";
