//! The texts of views that MySQL does not show in `information_schema`: those of other definers, unless the account has nearly all privileges. SHOW
//! CREATE VIEW shows them to an account with SELECT and SHOW VIEW.

use freshet_net::mysql::quote_name;

use crate::mysql::service::catalog::rows::Name;
use crate::mysql::service::connection::{Connection, ServiceError};

/// Limit of views that are read at a time: each takes a round trip.
const VIEWS_MAX: usize = 1000;

/// SHOW CREATE VIEW waits for an exclusive lock on a table of the view, by default up to a year.
const LOCK_WAIT: &str = "SET SESSION lock_wait_timeout = 1";
/// The limit is for these statements alone: if MariaDB waits for a table's lock without success, it omits the table from `information_schema`, with
/// its foreign keys and triggers.
const LOCK_WAIT_AS_BEFORE: &str = "SET SESSION lock_wait_timeout = DEFAULT";

/// The texts of views, as far as the server shows them.
pub(super) async fn shown(connection: &mut Connection, views: &[Name]) -> Result<Vec<(Name, String)>, ServiceError> {
    if views.is_empty() {
        return Ok(Vec::new());
    }
    // If the view's database is the default database, the server omits its name.
    connection.query("USE information_schema").await?;
    connection.query(LOCK_WAIT).await?;
    let texts = read(connection, views).await;
    connection.query(LOCK_WAIT_AS_BEFORE).await?;
    texts
}

async fn read(connection: &mut Connection, views: &[Name]) -> Result<Vec<(Name, String)>, ServiceError> {
    let mut texts = Vec::new();
    for view in asked_for(views) {
        match definition(connection, view).await {
            Ok(text) => texts.extend(text.map(|text| (view.clone(), text))),
            // One wait is enough: nothing is served while the catalogue is late. The other texts stay unknown until the next reading.
            Err(error) if error.is_timeout() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(texts)
}

/// The views that are read: the same ones each time.
fn asked_for(views: &[Name]) -> Vec<&Name> {
    let mut sorted: Vec<&Name> = views.iter().collect();
    sorted.sort_unstable();
    sorted.truncate(VIEWS_MAX);
    sorted
}

/// The text of a view; None if the server does not show it.
async fn definition(connection: &mut Connection, (schema, name): &Name) -> Result<Option<String>, ServiceError> {
    let question = format!("SHOW CREATE VIEW {}.{}", quote_name(schema), quote_name(name));
    match connection.query(&question).await {
        Ok(rows) => {
            let statement = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten();
            Ok(statement.and_then(|statement| query_of(&statement).map(str::to_owned)))
        }
        // It may have been dropped, or be invalid; DDL will cause another reading. An error that passes says nothing about the view.
        Err(error) if error.is_lasting_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The query in `CREATE … VIEW name [(columns)] AS query [WITH … CHECK OPTION]`; None if names lack their database, as they do if it is the default
/// one.
fn query_of(statement: &str) -> Option<&str> {
    let mut rest = statement;
    loop {
        if let Some(behind) = rest.strip_prefix(" VIEW ") {
            rest = behind;
            break;
        }
        rest = behind_one(rest)?;
    }
    rest = behind_one(rest.strip_prefix('`').map(|_| rest)?)?;
    rest = behind_one(rest.strip_prefix('.')?)?;
    if let Some(columns) = rest.strip_prefix(" (") {
        rest = columns;
        while !rest.starts_with(')') {
            rest = behind_one(rest)?;
        }
        rest = rest.strip_prefix(')')?;
    }
    let query = rest.strip_prefix(" AS ")?;
    let options = [" WITH CASCADED CHECK OPTION", " WITH LOCAL CHECK OPTION"];
    Some(options.iter().find_map(|option| query.strip_suffix(option)).unwrap_or(query))
}

/// The text behind a name in backquotes, or behind one character.
fn behind_one(text: &str) -> Option<&str> {
    let Some(mut rest) = text.strip_prefix('`') else {
        let mut characters = text.chars();
        characters.next()?;
        return Some(characters.as_str());
    };
    loop {
        rest = rest.split_once('`')?.1;
        match rest.strip_prefix('`') {
            Some(more) => rest = more,
            None => return Some(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{VIEWS_MAX, asked_for, query_of};

    #[test]
    fn the_same_views_are_asked_for_each_time() {
        let named = |number: usize| ("a".to_owned(), format!("v{number:05}"));
        let mut views: Vec<_> = (0..VIEWS_MAX + 10).map(named).collect();
        let before: Vec<_> = asked_for(&views).into_iter().cloned().collect();
        views.reverse();
        assert_eq!(asked_for(&views), before.iter().collect::<Vec<_>>());
        assert_eq!(before.last(), Some(&named(VIEWS_MAX - 1)));
    }

    #[test]
    fn queries_are_found_behind_any_name() {
        let head = "CREATE ALGORITHM=UNDEFINED DEFINER=` VIEW ``x`@`%` SQL SECURITY DEFINER VIEW ";
        let of = |rest: &str| query_of(&format!("{head}{rest}")).map(str::to_owned);
        assert_eq!(of("`a`.`b ``(` AS select 1").as_deref(), Some("select 1"));
        assert_eq!(of("`a`.`b` (`) AS x`,`y`) AS select 1 WITH LOCAL CHECK OPTION").as_deref(), Some("select 1"));
        assert_eq!(of("`b` AS select 1"), None);
        assert_eq!((of("`a`.`b"), of("")), (None, None));
    }
}
