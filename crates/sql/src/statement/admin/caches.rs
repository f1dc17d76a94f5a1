//! CREATE CACHE, DROP CACHE and DROP ALL CACHES, in ReadySet's words.

use crate::lex::postgres::{Kind, Token};
use crate::lex::tokens::Tokens;
use crate::statement::admin::{Admin, whole};
use crate::statement::named_table::identifier;

const CREATE: &str = "syntax: CREATE CACHE [name] [TTL '10s'] FROM <query or digest>";
const DROP: &str = "syntax: DROP CACHE <name or digest>";

/// `CREATE CACHE [name] [TTL '10s'] FROM <query or digest>`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateCache {
    /// Its name.
    pub name: Option<String>,
    /// How long results are served that changes do not invalidate, as it is written.
    pub ttl: Option<String>,
    /// The query, or its digest.
    pub from: String,
}

/// The statement behind CREATE (`creates`) or DROP; None: it is the database's.
pub(super) fn statement(creates: bool, mut tokens: Tokens<'_>) -> Option<Result<Admin, String>> {
    let is =
        |token: Option<Token<'_>>, wanted: &str| token.is_some_and(|token| token.text.eq_ignore_ascii_case(wanted));
    let object = tokens.next();
    if is(object, "cache") {
        return Some(
            if creates { create(&mut tokens).ok_or(CREATE) } else { drop(tokens.rest()).ok_or(DROP) }
                .map_err(str::to_owned),
        );
    }
    if creates || !is(object, "all") || !is(tokens.next(), "caches") {
        return None;
    }
    Some(whole(tokens, Admin::DropAllCaches, "DROP ALL CACHES"))
}

fn create(tokens: &mut Tokens<'_>) -> Option<Admin> {
    let is = |token: &Token<'_>, wanted: &str| token.kind == Kind::Word && token.text.eq_ignore_ascii_case(wanted);
    let mut before = Vec::new();
    loop {
        match tokens.next()? {
            token if is(&token, "from") => break,
            token if before.len() < 3 => before.push(token),
            _ => return None,
        }
    }
    let (name, ttl) = match before.as_slice() {
        [] => (None, None),
        [name] => (Some(name_of(name)?), None),
        [ttl, span] if is(ttl, "ttl") => (None, Some(constant(span)?)),
        [name, ttl, span] if is(ttl, "ttl") => (Some(name_of(name)?), Some(constant(span)?)),
        _ => return None,
    };
    let query = without_end(tokens.rest());
    let digest = query.trim_matches(['\'', '"', '`']);
    let is_digest = digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    let from = if is_digest { digest } else { query }.to_owned();
    (!from.is_empty()).then(|| Admin::CreateCache(Box::new(CreateCache { name, ttl, from })))
}

/// A digest may look like a number, a word, or both.
fn drop(rest: &str) -> Option<Admin> {
    let rest = without_end(rest);
    let is_plain =
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
    let quoted = |quote: char| {
        Some(rest.strip_prefix(quote)?.strip_suffix(quote)?.replace(&format!("{quote}{quote}"), &quote.to_string()))
    };
    let name = ['"', '`', '\''].into_iter().find_map(quoted).filter(|name| !name.is_empty());
    let name = name.or_else(|| is_plain.then(|| rest.to_ascii_lowercase()))?;
    Some(Admin::DropCache(name))
}

fn without_end(text: &str) -> &str {
    text.trim_ascii().trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace())
}

/// A name that is not in quotes is folded to small letters, as PostgreSQL does.
fn name_of(token: &Token<'_>) -> Option<String> {
    let name = identifier(token)?.into_owned();
    Some(if token.kind == Kind::Word { name.to_ascii_lowercase() } else { name })
}

fn constant(token: &Token<'_>) -> Option<String> {
    let text = token.text.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])?;
    (token.kind == Kind::Text).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use freshet_types::Dialect;

    use super::*;
    use crate::statement::admin::admin;

    #[expect(clippy::unnecessary_wraps, reason = "what `admin` returns")]
    fn created(name: Option<&str>, ttl: Option<&str>, from: &str) -> Option<Result<Admin, String>> {
        let create = CreateCache { name: name.map(str::to_owned), ttl: ttl.map(str::to_owned), from: from.to_owned() };
        Some(Ok(Admin::CreateCache(Box::new(create))))
    }

    #[test]
    fn caches_are_created_from_queries_and_digests() {
        for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::MariaDb] {
            let admin = |text: &str| admin(dialect, text);
            assert_eq!(admin("create cache from select 1;"), created(None, None, "select 1"));
            assert_eq!(
                admin("CREATE CACHE Front FROM 8c5e2f1ab0d94e37"),
                created(Some("front"), None, "8c5e2f1ab0d94e37")
            );
            assert_eq!(admin("create cache from '0123456789012345' ;"), created(None, None, "0123456789012345"));
            assert_eq!(admin("create cache from 'a'"), created(None, None, "'a'"));
            let front = created(Some("front"), Some("10s"), "select 'a'");
            assert_eq!(admin("/* a */ create cache front ttl '10s' from select 'a'"), front);
            assert_eq!(admin("create cache ttl '10s' from select 1"), created(None, Some("10s"), "select 1"));
            assert_eq!(admin("create cache ttl from select 1"), created(Some("ttl"), None, "select 1"));
            assert_eq!(admin("create cache ttl ttl '1s' from select 1"), created(Some("ttl"), Some("1s"), "select 1"));
            for wrong in [
                "create cache",
                "create cache from",
                "create cache a b from select 1",
                "create cache a ttl 10 from select 1",
                "create cache ttl '1s' a from select 1",
            ] {
                assert_eq!(admin(wrong), Some(Err(CREATE.to_owned())), "{wrong}");
            }
            for other in
                ["create table cache (id int)", "create index cache on t (id)", "drop table cache", "drop all", "drop"]
            {
                assert_eq!(admin(other), None, "{other}");
            }
        }
        assert_eq!(
            admin(Dialect::Postgres, "create cache \"Front\" from select 1"),
            created(Some("Front"), None, "select 1")
        );
        assert_eq!(
            admin(Dialect::MariaDb, "create cache `Front` from select 1"),
            created(Some("Front"), None, "select 1")
        );
    }

    #[test]
    fn caches_are_dropped_by_name_or_digest() {
        let admin = |text: &str| admin(Dialect::Postgres, text);
        let dropped = |name: &str| Some(Ok(Admin::DropCache(name.to_owned())));
        assert_eq!(admin("drop cache Front;"), dropped("front"));
        assert_eq!(admin("DROP CACHE 0c5e2f1ab0d94e37"), dropped("0c5e2f1ab0d94e37"));
        assert_eq!(admin("drop cache \"Front \"\"page\"\"\""), dropped("Front \"page\""));
        assert_eq!(admin("drop all caches ;"), Some(Ok(Admin::DropAllCaches)));
        for wrong in ["drop cache", "drop cache a b", "drop cache ''"] {
            assert_eq!(admin(wrong), Some(Err(DROP.to_owned())), "{wrong}");
        }
        assert!(admin("drop all caches now").is_some_and(|admin| admin.is_err()));
    }
}
