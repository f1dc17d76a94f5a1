//! The publication: whether it sends every change of its tables, and makes no update of others fail.

use std::collections::BTreeMap;

use anyhow::Result;
use freshet_net::postgres::{quote_identifier, quote_literal};
use freshet_replication::publication_options;
use freshet_replication::triggers::{mark_publication, mark_query};

use super::Mode;
use super::database::Database;
use super::report::{LOCK_TIMEOUT, Report};
use super::tables::{Table, add_statements, names};

/// Version from which a publication can have row filters, column lists and whole schemas.
const VERSION_NUM_FILTERS: u32 = 150_000;

/// The properties of the publication.
struct Publication {
    all_tables: bool,
    sends_everything: bool,
    owned: bool,
    owner: String,
}

/// Checks the publication. True if one with this name exists and need not be replaced.
pub(super) async fn look(
    database: &mut Database,
    name: &str,
    tables: &[Table],
    mode: Mode,
    report: &mut Report,
) -> Result<bool> {
    let sql = format!(
        "SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate AND NOT pubviaroot, \
         pg_has_role(pubowner, 'USAGE'), pg_get_userbyid(pubowner) FROM pg_publication WHERE pubname = {}",
        quote_literal(name)
    );
    let Some([all_tables, sends_everything, owned, owner]) = database.rows(&sql).await?.pop() else {
        missing(database, name, tables, mode, report).await?;
        return Ok(false);
    };
    let found = Publication {
        all_tables: all_tables == "t",
        sends_everything: sends_everything == "t",
        owned: owned == "t",
        owner,
    };
    let quoted = quote_identifier(name);
    if found.all_tables {
        let mut mend = vec![format!("DROP PUBLICATION {quoted};")];
        mend.extend(create_statements(name, database, tables, mode));
        let text = format!(
            "publication {name} is FOR ALL TABLES: Freshet refuses it and caches nothing, since tables without a replica \
             identity cannot be updated while it stands"
        );
        report.problem(text, mend);
        return Ok(true);
    }
    if !found.sends_everything {
        let text = format!("publication {name} does not send every change under its own table: nothing is cached");
        let options = publication_options(database.version_num);
        let mend = format!("ALTER PUBLICATION {quoted} SET ({options}, publish_via_partition_root = false);");
        report.problem(text, vec![mend]);
    }
    if database.version_num >= VERSION_NUM_FILTERS {
        filters(database, name, report).await?;
        schemas(database, name, report).await?;
    }
    if database.column(&mark_query(name)).await?.is_empty() && !(mode == Mode::Managed && found.owned) {
        let text = format!(
            "publication {name} is not marked as Freshet's: a table that loses its replica identity stays in it, and \
             cannot be updated then"
        );
        report.problem(text, vec![mark_publication(name)]);
    }
    match mode {
        Mode::Managed => ownership(database, name, &found, report),
        Mode::Prepared => {
            report.ok(format!("publication {name} exists"));
            unpublished(name, tables, report);
        }
    }
    Ok(true)
}

async fn missing(database: &mut Database, name: &str, tables: &[Table], mode: Mode, report: &mut Report) -> Result<()> {
    let role = database.role.clone();
    let may = database.value("SELECT has_database_privilege(current_database(), 'CREATE')").await? == "t";
    match mode {
        Mode::Managed if may => report.ok(format!("publication {name} is missing, and {role} may create it")),
        Mode::Managed => {
            let text = format!("publication {name} is missing and {role} may not create it: nothing is cached");
            report.problem(text, vec![format!("GRANT CREATE ON DATABASE {} TO {role};", database.name)]);
        }
        Mode::Prepared => {
            let text = format!("publication {name} is missing: nothing is cached");
            report.problem(text, create_statements(name, database, tables, mode));
        }
    }
    Ok(())
}

/// A publication with all tables that can be published, if Freshet may not add any; otherwise an empty one, which
/// Freshet fills.
fn create_statements(name: &str, database: &Database, tables: &[Table], mode: Mode) -> Vec<String> {
    let options = publication_options(database.version_num);
    let role = &database.role;
    let mut statements =
        vec![format!("CREATE PUBLICATION {} WITH ({options});", quote_identifier(name)), mark_publication(name)];
    match mode {
        Mode::Managed => statements.push(format!("ALTER PUBLICATION {} OWNER TO {role};", quote_identifier(name))),
        Mode::Prepared if tables.iter().any(Table::publishable) => {
            statements.extend(add_statements(name, tables.iter().filter(|table| table.publishable())));
        }
        Mode::Prepared => {}
    }
    statements
}

/// A publication owned by the role.
fn create_for(name: &str, database: &Database) -> Vec<String> {
    create_statements(name, database, &[], Mode::Managed)
}

fn ownership(database: &Database, name: &str, found: &Publication, report: &mut Report) {
    let role = &database.role;
    if found.owned {
        report.ok(format!("publication {name} exists, and {role} may add tables to it"));
        return;
    }
    let owner = &found.owner;
    let text =
        format!("publication {name} belongs to {owner}, so {role} can add no table: only what is in it is cached");
    report.problem(text, vec![format!("ALTER PUBLICATION {} OWNER TO {role};", quote_identifier(name))]);
}

/// Checks whether Freshet may add the tables to its publication, whether it exists or not.
pub(super) fn owners_of_tables(
    database: &Database,
    publication: &str,
    exists: bool,
    tables: &[Table],
    report: &mut Report,
) {
    let role = &database.role;
    let others = tables.iter().filter(|table| table.publishable() && !table.published && !table.owner.ours);
    let mut owners: BTreeMap<(bool, &str), Vec<&Table>> = BTreeMap::new();
    for table in others {
        owners.entry((table.owner.superuser, &table.owner.name)).or_default().push(table);
    }
    if owners.is_empty() {
        report.ok(format!("{role} may publish every table that can be cached"));
    }
    // From version 16 on, a grant need not pass the owner's rights on.
    let inherit = if database.version_num >= 160_000 { " WITH INHERIT TRUE" } else { "" };
    for ((owner_is_superuser, owner), tables) in owners {
        let text = format!(
            "{role} may not publish what belongs to {owner}, so it is not cached: {}",
            names(tables.iter().copied())
        );
        // Membership in a superuser would make Freshet a superuser.
        let mend = if owner_is_superuser {
            let mut mend = if exists { Vec::new() } else { create_for(publication, database) };
            mend.extend(add_statements(publication, tables.iter().copied()));
            mend
        } else {
            vec![format!("GRANT {owner} TO {role}{inherit};")]
        };
        report.problem(text, mend);
    }
}

/// Checks for tables that are published in part only.
async fn filters(database: &mut Database, name: &str, report: &mut Report) -> Result<()> {
    let sql = format!(
        "SELECT r.prrelid::regclass FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid \
         WHERE p.pubname = {} AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL) ORDER BY 1",
        quote_literal(name)
    );
    let quoted = quote_identifier(name);
    let tables = database.column(&sql).await?;
    if tables.is_empty() {
        return Ok(());
    }
    let mut mend = vec![LOCK_TIMEOUT.to_owned()];
    for table in &tables {
        mend.push(format!("ALTER PUBLICATION {quoted} DROP TABLE ONLY {table};"));
        mend.push(format!("ALTER PUBLICATION {quoted} ADD TABLE ONLY {table};"));
    }
    let text = format!(
        "publication {name} has row filters or column lists: Freshet refuses it and caches nothing ({})",
        tables.join(", ")
    );
    report.problem(text, mend);
    Ok(())
}

/// Checks for published schemas: a table created there may then fail on updates.
async fn schemas(database: &mut Database, name: &str, report: &mut Report) -> Result<()> {
    let sql = format!(
        "SELECT quote_ident(n.nspname) FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid \
         JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = {} ORDER BY 1",
        quote_literal(name)
    );
    for schema in database.column(&sql).await? {
        let text = format!(
            "publication {name} takes in all tables of schema {schema}: those without a replica identity cannot be \
             updated, and Freshet counts only tables that are named one by one"
        );
        let mend = format!("ALTER PUBLICATION {} DROP TABLES IN SCHEMA {schema};", quote_identifier(name));
        report.problem(text, vec![mend]);
    }
    Ok(())
}

/// Checks for unpublished tables: in prepared mode Freshet adds none.
fn unpublished(name: &str, tables: &[Table], report: &mut Report) {
    let left: Vec<&Table> = tables.iter().filter(|table| table.publishable_if_sent() && !table.published).collect();
    if left.is_empty() {
        report.ok(format!("publication {name} has every table that can be cached"));
        return;
    }
    let text = format!("not in publication {name}, so not cached: {}", names(left.iter().copied()));
    report.problem(text, add_statements(name, left.into_iter()));
}
