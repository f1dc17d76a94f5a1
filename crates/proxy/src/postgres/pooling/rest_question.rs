//! What lives on a server connection, asked of the server: settings that differ from those of the login, and objects of a session.

use std::sync::Arc;

use crate::postgres::pooling::entries::PREFIX;
use crate::postgres::question::parse_name_array;

/// Extensions whose functions keep nothing in the server process that a session could notice, but settings.
const HARMLESS_EXTENSIONS: &str = "'plpgsql','adminpack','amcheck','bloom','btree_gin','btree_gist','citext','cube','earthdistance','fuzzystrmatch',\
     'hstore','intarray','isn','lo','ltree','pageinspect','pg_buffercache','pg_freespacemap','pg_prewarm','pg_stat_statements','pg_trgm','pg_visibility',\
     'pg_walinspect','pgcrypto','pgrowlocks','pgstattuple','postgis','postgres_fdw','file_fdw','seg','sslinfo','tablefunc','tcn','tsm_system_rows',\
     'tsm_system_time','unaccent','uuid-ossp','vector'";

/// Names of what a session can notice later and the server cannot be asked for, in texts of functions.
pub(crate) const UNASKABLE: &[&str] = &[
    "setseed",
    "pg_backend_pid",
    "currval",
    "lastval",
    "dblink",
    "replication_origin_session",
    "pg_backup_start",
    "pg_start_backup",
];

/// How code sets a setting of an application, or one whose name is computed, as a pattern of PostgreSQL within `E''`, which is read alike under every
/// `standard_conforming_strings`. Such a setting is in no list, and the server process knows its name to its end.
const SETS_IN_CODE: &str = "set_config\"?\\\\s*\\\\(\\\\s*([^''\\\\s]|''[^'']*[.])|\\\\m(re)?set\\\\s+((local|session)\\\\s+)?[\"\\\\w]+\\\\s*[.]";

/// How code begins a SET whose name follows from elsewhere, where it has EXECUTE.
const SETS_COMPUTED: &str = "\\\\m(re)?set\\\\s+((local|session)\\\\s+)?(%|''|$)";

/// The settings that the role and the database give to a login, the strongest first.
const OF_LOGIN: &str = "FROM pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) c \
     WHERE (s.setdatabase OPERATOR(pg_catalog.=) 0::pg_catalog.oid OR s.setdatabase OPERATOR(pg_catalog.=) \
     (SELECT oid FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())) \
     AND (s.setrole OPERATOR(pg_catalog.=) 0::pg_catalog.oid OR s.setrole OPERATOR(pg_catalog.=) \
     pg_catalog.quote_ident(session_user)::pg_catalog.regrole::pg_catalog.oid)";
const STRONGEST: &str = "ORDER BY s.setrole OPERATOR(pg_catalog.<>) 0::pg_catalog.oid DESC, \
     s.setdatabase OPERATOR(pg_catalog.<>) 0::pg_catalog.oid DESC";

/// The number of columns in the answer.
const COLUMNS: usize = 5;

/// The query; its parameter is the array of names of [`super::application_settings`]. All names in it are qualified.
///
/// Another text ends sessions at an upgrade that would otherwise go on: what they have set is compared with answers to it.
pub(crate) fn question() -> String {
    let unaskable = UNASKABLE.join("|");
    format!(
        "WITH s AS MATERIALIZED (SELECT name, setting, source FROM pg_catalog.pg_settings) SELECT \
         ARRAY(SELECT name OPERATOR(pg_catalog.||) '=' OPERATOR(pg_catalog.||) pg_catalog.current_setting(name) FROM s \
         WHERE source OPERATOR(pg_catalog.=) 'session' ORDER BY name)::pg_catalog.text, \
         pg_catalog.concat((SELECT pg_catalog.md5(pg_catalog.string_agg(c, ',' {STRONGEST}, c)) {OF_LOGIN}), \
         (SELECT pg_catalog.md5(pg_catalog.string_agg(name OPERATOR(pg_catalog.||) '=' OPERATOR(pg_catalog.||) setting, ',' ORDER BY name)) FROM s \
         WHERE source OPERATOR(pg_catalog.=) ANY (ARRAY['client','database','user','database user','global']) \
         AND name OPERATOR(pg_catalog.<>) 'application_name')), \
         pg_catalog.concat_ws(' ', session_user, current_user), \
         pg_catalog.concat_ws(' ', \
         CASE WHEN pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid THEN 'temporary_table' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) THEN 'cursor' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' \
         AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) THEN 'advisory_lock' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) THEN 'listen' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE NOT pg_catalog.starts_with(name, '_freshet_')) \
         THEN 'prepared_statement' END, \
         (SELECT 'entries=' OPERATOR(pg_catalog.||) pg_catalog.count(*)::pg_catalog.text FROM pg_catalog.pg_prepared_statements \
         WHERE pg_catalog.starts_with(name, '{PREFIX}')), \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE temporary \
         AND active_pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) THEN 'replication_slot' END, \
         CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY[{HARMLESS_EXTENSIONS}])) \
         OR EXISTS (SELECT FROM pg_catalog.pg_language WHERE lanname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL (ARRAY['internal','c','sql','plpgsql'])) \
         OR EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid OPERATOR(pg_catalog.>=) 16384::pg_catalog.oid \
         AND (p.prosrc OPERATOR(pg_catalog.~*) E'({unaskable}|{SETS_IN_CODE})' \
         OR (p.prosrc OPERATOR(pg_catalog.~*) E'\\\\mexecute\\\\M' AND p.prosrc OPERATOR(pg_catalog.~*) E'{SETS_COMPUTED}') OR p.proconfig::pg_catalog.text OPERATOR(pg_catalog.~) '[.].*=' OR (p.prolang OPERATOR(pg_catalog.=) 13::pg_catalog.oid AND NOT EXISTS (\
         SELECT FROM pg_catalog.pg_depend d WHERE d.classid OPERATOR(pg_catalog.=) 1255::pg_catalog.oid \
         AND d.objid OPERATOR(pg_catalog.=) p.oid AND d.deptype OPERATOR(pg_catalog.=) 'e')))) THEN 'code' END), \
         (SELECT pg_catalog.string_agg(CASE WHEN n.has IS NULL THEN 'u' WHEN n.has OPERATOR(pg_catalog.=) n.by_login THEN 'l' \
         WHEN n.has OPERATOR(pg_catalog.=) '' AND n.by_login IS NULL THEN 'e' ELSE 'v' END, '' ORDER BY n.at) \
         FROM (SELECT n.at, pg_catalog.current_setting(n.name, true) AS has, \
         (SELECT pg_catalog.substr(c, pg_catalog.length(n.name) OPERATOR(pg_catalog.+) 2) {OF_LOGIN} \
         AND pg_catalog.starts_with(pg_catalog.lower(c), n.name OPERATOR(pg_catalog.||) '=') {STRONGEST} LIMIT 1) AS by_login \
         FROM pg_catalog.unnest($1::pg_catalog.text[]) WITH ORDINALITY n (name, at)) n)"
    )
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lives {
    /// `name=value` of each setting that was set since the login, the value as SHOW has it.
    pub(crate) settings: Vec<Arc<str>>,
    /// Changes with the settings of the login, those of applications too, but not of the server's configuration.
    pub(crate) base: String,
    /// Session user and current user.
    pub(crate) users: String,
    /// Names of what lives there.
    pub(crate) objects: String,
    /// See [`super::application_settings::SettingNames::told`].
    pub(crate) names: String,
}

/// The settings that a login gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoginSettings {
    /// [`Lives::base`]
    pub(crate) base: String,
    /// What code that runs at the login has set.
    pub(crate) set: Vec<Arc<str>>,
}

impl Lives {
    /// Reads the row; None if it cannot be read.
    pub(crate) fn read(row: &[Option<&[u8]>]) -> Option<Self> {
        if row.len() != COLUMNS {
            return None;
        }
        let text = |at: usize| std::str::from_utf8(row.get(at).copied().flatten().unwrap_or_default()).ok();
        Some(Self {
            settings: parse_name_array(text(0)?)?,
            base: text(1)?.to_owned(),
            users: text(2)?.to_owned(),
            objects: text(3)?.to_owned(),
            names: text(4)?.to_owned(),
        })
    }

    /// The settings of the login, if this is what lived there right after it.
    pub(crate) fn login_settings(&self) -> LoginSettings {
        LoginSettings { base: self.base.clone(), set: self.settings.clone() }
    }

    /// How many shared prepared statements live there.
    pub(crate) fn entries(&self) -> Option<usize> {
        self.objects.split(' ').find_map(|object| object.strip_prefix("entries=")?.parse().ok())
    }

    /// Whether it lives there; see [`question`] for the names.
    pub(crate) fn has(&self, object: &str) -> bool {
        self.objects.split(' ').any(|other| other == object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let row =
            [&b"{a.b=1,\"search_path=\\\"x\\\", y\"}"[..], b"0f", b"u u", b"listen entries=7 code", b"ue"].map(Some);
        let lives = Lives::read(&row).unwrap();
        assert_eq!(lives.settings, ["a.b=1".into(), "search_path=\"x\", y".into()] as [Arc<str>; 2]);
        assert!(lives.has("listen") && lives.has("code") && !lives.has("cursor"));
        assert_eq!((lives.entries(), &*lives.names), (Some(7), "ue"));
        assert!(Lives::read(&row[1..]).is_none());
    }
}
