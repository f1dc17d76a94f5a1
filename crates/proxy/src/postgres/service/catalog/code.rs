//! Parts of queries that distinguish user-defined types and functions from built-in ones.

/// Types of extensions whose input, output, operators and functions with built-in names depend on their arguments alone, and arrays of these types.
/// Results that contain their values can be cached, though no tag compares them. User-defined casts of them do not count as known. The list also has
/// what pg_trgm defines for texts: it depends on the texts and on a setting in the key.
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

/// Functions that are not built in, or that change settings or run the text of a query.
///
/// Functions that extensions define in C (language 13), by another name (12) or as immutable count as built in where operators, casts, types and
/// operator classes call them. Where expressions call them, they do so if they are immutable, or create keys like `uuid_generate_v4()`
/// (docs/decisions/2026-11-24-session-context.md).
pub(super) const CODE: &str = "
at_will(oid, prosrc) AS (
  SELECT oid, prosrc FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
   AND (proname IN ('set_config', 'ts_stat', 'ts_rewrite') OR strpos(proname::text, '_to_xml') > 0)),
stored(oid, native, harmless) AS (
  SELECT oid, native, native AND (provolatile = 'i' OR probin IN ('$libdir/uuid-ossp', '$libdir/pgcrypto')) FROM pg_proc,
   LATERAL (SELECT prolang = 13 OR prolang = 12 AND prosrc NOT IN (SELECT prosrc FROM at_will) OR provolatile = 'i'
     AND oid IN (SELECT objid FROM pg_depend WHERE classid = 'pg_proc'::regclass AND deptype = 'e')) AS n(native)
  WHERE oid >= 16384),
other(oid) AS (SELECT oid FROM stored WHERE NOT native UNION ALL SELECT oid FROM at_will)";
