//! Comments around a statement are no part of the key of its result: applications append one that differs each time.

use anyhow::{Context as _, Result, ensure};

use super::until_hit;
use crate::mysql::support as mysql;
use crate::support::frames::{bind_text, describe_portal, execute, parse, sync};
use crate::support::{
    Database, Metrics, PATIENCE, Pair, RawClient, Version, ensure_hits, eventually, rest, undisturbed,
};

const SCHEMA: &str = "create table film (id int primary key, title varchar(20) not null); insert into film values (1, 'one'), (2, 'two')";

/// The statement with comments of which none came before.
fn commented(sql: &str) -> [String; 5] {
    let trace = "traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01',route='%2Fpolls'";
    [
        format!("{sql} /*{trace}*/"),
        format!("{sql}/*a='1',{trace}*/;"),
        format!("/* it's \"one\" */ {sql}"),
        format!("/* two */ {sql} /* `three` */ ;"),
        sql.to_owned(),
    ]
}

/// Texts of which none came before, as those of an application whose statements are traced.
const TRACED: u32 = 500;
/// A busy machine makes no hit a pass.
const PATIENT: [&str; 2] = ["--max-staleness", "30s"];

fn traced(sql: &str, number: u32) -> String {
    format!(
        "{sql} /*route='%2Ffilms--{number}',traceparent='00-5bd66ef5095369c7b0d1f8f4{number:08x}-c532cb40{number:08x}-00'*/"
    )
}

/// However many texts come, what is known of them takes no more memory.
fn is_bounded(before: &Metrics, after: &Metrics, hits: u32) -> Result<()> {
    // While others define something on the server, a statement that was just prepared passes, and results are read again.
    let fills = |metrics: &Metrics| metrics.count("freshet_fills_total");
    let (found, filled) = (after.hits() - before.hits(), fills(after) - fills(before));
    ensure!(
        found > u64::from(hits / 2) && filled < 20,
        "{found} hits, {filled} fills, {:?}",
        after.passed_since(before)
    );
    let bytes = |metrics: &Metrics| metrics.value("freshet_statement_bytes");
    ensure!(bytes(after) <= bytes(before), "{} bytes, {} before", bytes(after), bytes(before));
    Ok(())
}

#[test]
fn each_text_is_new_on_postgres() -> Result<()> {
    let pair = Pair::over(Database::shared(Version::V18)?, SCHEMA, &PATIENT)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let (text, prepared) = ("select title from film where id = 1", "select title from film where id = $1::int");
    let unnamed =
        |sql: &str| [parse("", sql), bind_text("", "", &["1"]), describe_portal(""), execute("", 0), sync()].concat();
    // As drivers do that prepare each new text, and then run it.
    let named = |client: &mut RawClient, number: u32| {
        let name = format!("s{number}");
        client.exchange(&[parse(&name, &traced(prepared, number)), sync()].concat(), 1)?;
        client.exchange(&[bind_text("", &name, &["2"]), describe_portal(""), execute("", 0), sync()].concat(), 1)
    };
    until_hit(&pair, &mut client, &traced(text, 0))?;
    for number in [0, 1, 2] {
        client.exchange(&unnamed(&traced(prepared, number)), 1)?;
        named(&mut client, number)?;
    }
    rest();
    let before = pair.freshet.metrics()?;
    for number in 10..10 + TRACED {
        ensure!(client.value(&traced(text, number))? == "one", "{number}");
        client.exchange(&unnamed(&traced(prepared, number)), 1)?;
        named(&mut client, number)?;
    }
    is_bounded(&before, &pair.freshet.metrics()?, 3 * TRACED)
}

#[test]
fn each_text_is_new_on_mysql() -> Result<()> {
    each_text_is_new(mysql::Kind::Mysql)
}

#[test]
fn each_text_is_new_on_mariadb() -> Result<()> {
    each_text_is_new(mysql::Kind::Mariadb)
}

fn each_text_is_new(kind: mysql::Kind) -> Result<()> {
    let pair = mysql::Pair::over(mysql::Database::shared(kind)?, SCHEMA, &PATIENT)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let (text, prepared) = ("select title from film where id = 1", "select title from film where id = ?");
    let run = |client: &mut mysql::RawClient, number: u32| {
        let statement = client.prepare(&traced(prepared, number))?;
        client.execute(statement, &[mysql::packets::Value::Int(2)])
    };
    pair.until_hit(&mut client, &traced(text, 0))?;
    for number in [0, 1, 2] {
        run(&mut client, number)?;
    }
    rest();
    let before = pair.freshet.metrics()?;
    for number in 10..10 + TRACED {
        ensure!(client.value(&traced(text, number))? == "one", "{number}");
        run(&mut client, number)?;
    }
    is_bounded(&before, &pair.freshet.metrics()?, 2 * TRACED)
}

#[test]
fn on_postgres() -> Result<()> {
    let pair = Pair::new(Version::V18, SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let mut client = pair.connect()?;
    let batch = |sql: &str, id: &str| {
        [parse("", sql), bind_text("", "", &[id]), describe_portal(""), execute("", 0), sync()].concat()
    };
    let (text, prepared) =
        ("select title, 'x /* y */' from film where id = 1", "select title from film where id = $1::int");
    undisturbed(&pair.freshet, || {
        until_hit(&pair, &mut client, &format!("{text} /* first */"))?;
        eventually(PATIENCE, || {
            let first = batch(&format!("{prepared} /* first */"), "1");
            ensure_hits(&pair.freshet, 1, || client.exchange(&first, 1)).map(drop)
        })?;
        ensure_hits(&pair.freshet, 10, || {
            for sql in commented(text) {
                ensure!(client.value(&sql)? == "one", "{sql}");
            }
            commented(prepared).iter().try_for_each(|sql| client.exchange(&batch(sql, "1"), 1).map(drop))
        })
    })?;
    // What differs in more than comments is another statement.
    ensure!(client.value("select title, 'x /* z */' from film where id = 2 /* first */")? == "two");
    // PostgreSQL's comment ends behind the second `*/`: this is no SELECT.
    let nested = format!("/* a /*/ {text} -- */ */ update film set title = title || '!' where id = 2");
    (0..5).try_for_each(|_| client.run(&nested).map(drop))?;
    ensure!(client.value("select title from film where id = 2")? == "two!!!!!", "updates were answered from the cache");
    // One invalidation is enough for all of them.
    pair.database.run("update film set title = 'new' where id = 1")?;
    for sql in commented(text) {
        until_value(|sql| client.value(sql), &sql)?;
    }
    let mut direct = RawClient::login(pair.database.address(), pair.login())?;
    for sql in commented(text) {
        ensure!(format!("{:?}", direct.query(&sql)?) == format!("{:?}", client.query(&sql)?), "{sql}");
    }
    Ok(())
}

fn until_value(mut read: impl FnMut(&str) -> Result<String>, sql: &str) -> Result<()> {
    eventually(PATIENCE, || {
        let title = read(sql)?;
        ensure!(title == "new", "{sql}: {title}");
        Ok(())
    })
}

mod on_mysql_family {
    use super::of_mysql;

    crate::mysql::support::on_both!(of_mysql);
}

/// The names of columns follow the text: they are the server's with every comment. On a server of its own: what other tests define there makes Freshet
/// read results again.
fn of_mysql(kind: mysql::Kind) -> Result<()> {
    let own = mysql::Database::create(kind.start(&mysql::Kind::settings())?)?;
    let pair = mysql::Pair::over(own, SCHEMA, &[])?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let (mut client, mut direct) = (pair.connect()?, pair.database.connect()?);
    let texts = [
        "select title, 1+1,  concat( title,'x' ) from film where id = 1",
        "select title from film where id =  2 limit 1",
    ];
    for text in texts {
        undisturbed(&pair.freshet, || {
            pair.until_hit(&mut client, &format!("{text} /* first */"))?;
            ensure_hits(&pair.freshet, 5, || {
                let mut all = commented(text).into_iter();
                all.try_for_each(|sql| mysql::ensure_same(&direct.query(&sql)?.packets, &client.query(&sql)?.packets))
            })
        })
        .context(text)?;
    }
    // An expression at the very end of the text, and what is no comment.
    for text in ["select 1+1", "select 'a' , 'b'", "select title from film where id = 1 and 1 = 1"] {
        for sql in commented(text).iter().chain(&[format!("{text} /*! , 3 */"), format!("{text} /*!99999 , 3 */")]) {
            for _ in 0..3 {
                let (one, other) = (direct.query(sql)?.packets, client.query(sql)?.packets);
                mysql::ensure_same(&one, &other)?;
            }
        }
    }
    pair.database.run("update film set title = 'new' where id = 1")?;
    for sql in commented(texts[0]) {
        until_value(|sql| client.value(sql), &sql)?;
    }
    Ok(())
}
