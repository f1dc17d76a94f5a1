//! CREATE CACHE, DROP CACHE and DROP ALL CACHES: rules that an operator sets by SQL.

use std::sync::Arc;

use freshet_sql::{Admin, CreateCache};
use freshet_types::Reason;

use crate::admin::{Asker, Table, columns, statement, table_of_pairs};
use crate::rules::is_digest;
use crate::server::console::{AdminError, Console, NewCache};
use crate::shared::Shared;
use crate::statement::registry::NormalizedQuery;

/// Makes a rule for a statement.
pub(super) fn create(shared: &Shared, asker: &Asker<'_>, create: &CreateCache) -> Result<Table, AdminError> {
    let CreateCache { name, ttl, from } = create;
    let query = query(shared, asker, from)?;
    if let Some(reason) = obstacle(shared, asker, &query, create) {
        return Err(AdminError {
            sqlstate: "0A000",
            message: not_cached(shared, asker, &query, (reason, ttl.is_some())),
        });
    }
    let new = NewCache { name: name.clone(), digest: query.digest_text(), ttl: ttl.clone() };
    let kept = console(shared)?.create_cache(asker.who.user, new)?;
    let mut pairs = vec![("digest", query.digest_text()), ("query", query.text.to_string())];
    pairs.extend(name.clone().map(|name| ("name", name)));
    pairs.extend(ttl.clone().map(|ttl| ("ttl", ttl)));
    pairs.push(("kept", kept));
    Ok(table_of_pairs(pairs))
}

/// Ends the rule with a name or for a digest, or all that SQL has made.
pub(super) fn drop(shared: &Shared, asker: &Asker<'_>, called: Option<&str>) -> Result<Table, AdminError> {
    let dropped = console(shared)?.drop_caches(asker.who.user, called)?;
    let row = |(digest, name): (String, Option<String>)| vec![digest, name.unwrap_or_default()];
    Ok(Table { columns: columns(&Admin::DropAllCaches), rows: dropped.into_iter().map(row).collect() })
}

fn console(shared: &Shared) -> Result<&Arc<dyn Console>, AdminError> {
    let missing = || AdminError { sqlstate: "55000", message: "there is no configuration yet".to_owned() };
    shared.console.get().ok_or_else(missing)
}

/// The statement with a digest or of a text.
fn query(shared: &Shared, asker: &Asker<'_>, from: &str) -> Result<Arc<NormalizedQuery>, AdminError> {
    if !is_digest(from) {
        let invalid = |reason| AdminError { sqlstate: "42601", message: format!("CREATE CACHE: {reason}") };
        return statement(shared, asker, from).map(|statement| statement.query.clone()).map_err(invalid);
    }
    let digest = u64::from_str_radix(from, 16).ok();
    let unknown = || {
        let message =
            format!("no statement with the digest {from} is known: SHOW CACHES and SHOW PROXIED QUERIES list them");
        AdminError { sqlstate: "42704", message }
    };
    digest.and_then(|digest| shared.registry.with_digest(digest)).ok_or_else(unknown)
}

/// Why the statement cannot be cached, by changes or by its `ttl`.
fn obstacle(shared: &Shared, asker: &Asker<'_>, query: &NormalizedQuery, create: &CreateCache) -> Option<Reason> {
    let refusal = query.template.refusal().cloned();
    let catalog = shared.catalog.load();
    let reason = match asker.context {
        Some(context) => query.resolve(&catalog, context).read_set.err(),
        None => refusal,
    };
    match reason? {
        reason if create.ttl.is_some() && reason.yields_to_ttl() => query.tags_by_ttl(&catalog, asker.context?).err(),
        // The sessions that send it may have other schemas than this one.
        Reason::UnknownTable(_) if is_digest(&create.from) => None,
        reason => Some(reason),
    }
}

fn not_cached(
    shared: &Shared,
    asker: &Asker<'_>,
    query: &NormalizedQuery,
    (reason, has_ttl): (Reason, bool),
) -> String {
    let yields = || {
        let context = asker.context?;
        query.tags_by_ttl(&shared.catalog.load(), context).ok()
    };
    let by_ttl = (!has_ttl && reason.yields_to_ttl() && yields().is_some())
        .then(|| "With TTL '10s' its results are served for that time, even if they change".to_owned());
    let remedy = by_ttl.or_else(|| reason.remedy()).map(|remedy| format!(". {remedy}")).unwrap_or_default();
    format!("the statement cannot be cached: {reason}{remedy}")
}
