//! Which functions may change the catalogue, and which relations run one of them.
//!
//! Asked only where the change stream does not tell of DDL: a statement that names one of these is acknowledged once the catalogue has been
//! looked at, as DDL is. Everything else cannot define anything by what it calls.
//!
//! The source of a routine is read once, until its row in the catalogue is another; what it says ([`Routine`]) stays. If no routine defines
//! anything, nothing else is asked. Else whatever names such a routine or depends on it may run it, and whatever names or depends on that.

use std::collections::{HashMap, HashSet};

use freshet_net::pg::Rows;
use freshet_sql::{Language, Routine, name_hash, name_of, names_of_text_runners};
use freshet_types::TableId;

use crate::pg::service::catalog::definitions::View;
use crate::pg::service::catalog::load::{table_id, texts};
use crate::pg::service::connection::{Connection, ServiceError};

/// Sources asked for at once, and the length beyond which one is not read.
const BATCH: usize = 100;
const SOURCE_MAX: usize = 262_144;
/// Names that are held in memory, with the routines; those beyond that may name any.
const NAMES_MAX: usize = 1 << 22;

/// Built-in code cannot define anything. Code in C (language 13) can, unless an extension brings it, or it is volatile for no reason but that
/// the server alone calls it: handlers and validators. Nor do event triggers count: they run with DDL.
const ROUTINES: &str = "
SELECT oid::text, xmin::text FROM pg_proc p
WHERE oid >= 16384 AND prolang <> 12 AND prorettype <> 'event_trigger'::regtype AND (prolang <> 13 OR provolatile = 'v'
 AND 'internal'::regtype <> ALL (proargtypes || prorettype) AND prorettype::regtype::text !~ '_handler$' AND proname !~ '_validator$'
 AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'))";

/// `row.f` may call a function of one argument. Texts of a database without an encoding may be no UTF-8.
const SOURCES: &str = "
SELECT p.oid::text, p.proname::text, l.lanname::text, (p.provolatile = 'v')::text,
 (p.pronargs - p.pronargdefaults < 2 AND coalesce(t.typtype, '') IN ('c', 'd', 'p'))::text,
 CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN encode(convert_to(s.source, 'SQL_ASCII'), 'escape') ELSE s.source END
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang LEFT JOIN pg_type t ON t.oid = p.proargtypes[0],
 LATERAL (SELECT left(p.prosrc, 262145)) AS s(source)
WHERE p.oid = ANY ('{";

/// What runs what, but for views and children: routines (p) and relations (r). What operators, casts, types and operator classes (*) run is
/// named nowhere. TRUNCATE reaches all that refers to a table.
const RUNS: &str = "
SELECT 'r', tgrelid::text, 'p', tgfoid::text FROM pg_trigger WHERE tgfoid >= 16384
UNION SELECT CASE WHEN d.classid = 'pg_proc'::regclass THEN 'p' WHEN coalesce(k.conrelid, 1) = 0 THEN '*'
  WHEN d.classid IN ('pg_operator'::regclass, 'pg_cast'::regclass, 'pg_amproc'::regclass, 'pg_type'::regclass) THEN '*' ELSE 'r' END,
  coalesce(w.ev_class, a.adrelid, k.conrelid, y.polrelid, i.indrelid, d.objid)::text,
  CASE d.refclassid WHEN 'pg_proc'::regclass THEN 'p' ELSE 'r' END, d.refobjid::text
 FROM pg_depend d
 LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
 LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
 LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
 LEFT JOIN pg_policy y ON d.classid = 'pg_policy'::regclass AND y.oid = d.objid
 LEFT JOIN pg_index i ON d.classid = 'pg_class'::regclass AND i.indexrelid = d.objid
 WHERE d.refobjid >= 16384 AND (d.refclassid = 'pg_proc'::regclass
  OR d.refclassid = 'pg_class'::regclass AND (d.classid = 'pg_proc'::regclass OR w.ev_type <> '1'))
UNION SELECT 'r', confrelid::text, 'r', conrelid::text FROM pg_constraint
 WHERE contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd')
  OR conrelid IN (SELECT tgrelid FROM pg_trigger WHERE tgtype & 32 <> 0 AND NOT tgisinternal))";

/// The routines that were read last.
#[derive(Default)]
pub(super) struct Routines {
    /// The [`freshet_types::Catalog::surroundings`] that they are of.
    surroundings: Box<str>,
    known: HashMap<u32, Known>,
    /// Hashes of names, each with a routine whose source has it, in their order.
    named_in: Vec<(u32, u32)>,
}

struct Known {
    /// The transaction that wrote its row.
    version: Box<str>,
    /// What a statement that calls it has in it.
    name: Box<str>,
    defines: bool,
    /// Not only what [`Routines::named_in`] says.
    names_any: bool,
}

/// What the catalogue holds beside routines.
pub(super) struct Relations<'a> {
    pub(super) surroundings: &'a str,
    /// Each with its number first and its name third.
    pub(super) tables: &'a Rows,
    pub(super) views: &'a [View],
    pub(super) children: &'a HashMap<String, Vec<TableId>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Node {
    Routine(u32),
    Relation(u32),
    Unnamed,
}

impl Routines {
    /// See [`freshet_types::Catalog::defining`]. On a connection whose transaction has one snapshot.
    pub(super) async fn read(
        &mut self,
        connection: &mut Connection,
        relations: Relations<'_>,
    ) -> Result<HashSet<Box<str>>, ServiceError> {
        if *self.surroundings != *relations.surroundings {
            self.surroundings = Box::default();
            self.refresh(connection).await?;
            self.surroundings = relations.surroundings.into();
        }
        let defining = self.known.iter().filter(|(_, known)| known.defines);
        let defining: Vec<Node> = defining.map(|(id, _)| Node::Routine(*id)).collect();
        if defining.is_empty() {
            return Ok(HashSet::new());
        }
        let mut names = self.reached(defining, &relations, &run_by(connection.query(RUNS).await?, &relations)?);
        names.extend(names_of_text_runners());
        Ok(names)
    }

    async fn refresh(&mut self, connection: &mut Connection) -> Result<(), ServiceError> {
        let mut versions = HashMap::new();
        for row in connection.query(ROUTINES).await? {
            let [id, version] = texts(row, "routines")?;
            versions.insert(number(&id)?, version);
        }
        self.known.retain(|id, known| versions.get(id).is_some_and(|version| **version == *known.version));
        self.named_in.retain(|(_, id)| self.known.contains_key(id));
        let new: Vec<String> = versions.keys().filter(|id| !self.known.contains_key(id)).map(u32::to_string).collect();
        for batch in new.chunks(BATCH) {
            for row in connection.query(&[SOURCES, &batch.join(","), "}')"].concat()).await? {
                let [id, name, language, volatile, bare, source] = texts(row, "sources")?;
                let (id, volatile) = (number(&id)?, volatile == "true");
                let language = match &*language {
                    "sql" => Language::Sql,
                    "plpgsql" => Language::PlPgSql,
                    _ => Language::Other,
                };
                let may_be_read = source.len() <= SOURCE_MAX && self.named_in.len() < NAMES_MAX;
                let routine =
                    if may_be_read { Routine::read(&source, language, volatile) } else { Routine::unknown(volatile) };
                let known = Known {
                    version: versions.remove(&id).unwrap_or_default().into(),
                    name: name_of(&name, bare != "true"),
                    defines: routine.defines,
                    names_any: routine.names.is_none(),
                };
                self.named_in.extend(routine.names.into_iter().flatten().map(|name| (name, id)));
                self.known.insert(id, known);
                tokio::task::yield_now().await; // others run on this thread
            }
        }
        self.named_in.sort_unstable();
        Ok(())
    }

    /// The names of all that runs one of these.
    fn reached(
        &self,
        mut next: Vec<Node>,
        relations: &Relations<'_>,
        run_by: &HashMap<Node, Vec<Node>>,
    ) -> HashSet<Box<str>> {
        let named = relations.tables.iter().filter_map(|row| Some((row.first()?.as_deref()?, row.get(2)?.as_deref()?)));
        let tables: HashMap<u32, &str> = named.filter_map(|(id, name)| Some((id.parse().ok()?, name))).collect();
        let any = self.known.iter().filter(|(_, known)| known.names_any);
        next.extend(any.map(|(id, _)| Node::Routine(*id)));
        let (mut reached, mut names) = (HashSet::new(), HashSet::new());
        while let Some(node) = next.pop() {
            if !reached.insert(node) {
                continue;
            }
            next.extend(run_by.get(&node).into_iter().flatten());
            let name = match node {
                Node::Routine(id) => self.known.get(&id).map(|known| known.name.clone()),
                Node::Relation(id) => tables.get(&id).map(|name| name_of(name, false)),
                Node::Unnamed => Some("".into()),
            };
            let Some(name) = name else { continue };
            let hash = name_hash(&name);
            if names.insert(name) {
                let from = self.named_in.partition_point(|(name, _)| *name < hash);
                let same = self.named_in.iter().skip(from).take_while(|(name, _)| *name == hash);
                next.extend(same.map(|(_, id)| Node::Routine(*id)));
            }
        }
        names
    }
}

fn number(id: &str) -> Result<u32, ServiceError> {
    Ok(table_id(id)?.0)
}

/// What runs each node.
fn run_by(runs: Rows, relations: &Relations<'_>) -> Result<HashMap<Node, Vec<Node>>, ServiceError> {
    let mut run_by: HashMap<Node, Vec<Node>> = HashMap::new();
    let mut add = |by: Node, what: Node| run_by.entry(what).or_default().push(by);
    for row in runs {
        let [kind, id, of, what] = texts(row, "dependencies")?;
        let (id, what) = (number(&id)?, number(&what)?);
        let what = if of == "p" { Node::Routine(what) } else { Node::Relation(what) };
        match &*kind {
            "p" => add(Node::Routine(id), what),
            "r" => add(Node::Relation(id), what),
            _ => add(Node::Unnamed, what),
        }
    }
    for (parent, children) in relations.children {
        for child in children {
            add(Node::Relation(number(parent)?), Node::Relation(child.0));
        }
    }
    for view in relations.views {
        for read in view.reads.iter().filter(|read| !read.is_empty()) {
            add(Node::Relation(number(&view.id)?), Node::Relation(number(read)?));
        }
    }
    Ok(run_by)
}
