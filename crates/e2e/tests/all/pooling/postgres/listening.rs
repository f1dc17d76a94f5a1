//! LISTEN keeps no connection: one of Freshet's own listens for all sessions, and each gets what it would get directly, once and in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use anyhow::{Context, Result, ensure};

use super::{is_silent, shared};
use crate::stress::stage::Random;
use crate::support::{
    Message, PATIENCE, Pair, RawClient, Version, ensure_hits, eventually, frames, on_both, undisturbed,
};

on_both!(
    sessions_that_listen_share_a_connection,
    nothing_is_lost_or_twice_while_channels_change,
    transactions_that_end_the_listening,
    code_that_may_end_it_keeps_the_connection,
    what_a_notification_tells_of_is_read,
    other_encodings_keep_the_connection,
    the_end_of_the_listening_connection_is_told
);

const SCHEMA: &str = "create table t (id int primary key, v int); insert into t values (1, 0)";

/// The channel and the payload.
fn notification(message: &Message) -> Option<(String, String)> {
    let mut texts = message.body.get(4..)?.split(|byte| *byte == 0);
    let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
    (message.tag == b'A').then(|| Some((text()?, text()?)))?
}

fn payloads(messages: &[Message]) -> Vec<String> {
    messages.iter().filter_map(notification).map(|(_, payload)| payload).collect()
}

/// The next notification.
fn hear(client: &mut RawClient) -> Result<(String, String)> {
    let first = client.read()?;
    notification(&first).with_context(|| format!("{first:?} came"))
}

/// So many sessions listen, and none keeps a connection for that.
fn are_handed_over(pair: &Pair, sessions: u64) -> Result<()> {
    eventually(PATIENCE, || {
        let metrics = pair.freshet.metrics()?;
        let listening = metrics.count("freshet_listening_sessions");
        let pinned = metrics.count("freshet_pinned_sessions{reason=\"listen\"}");
        ensure!((listening, pinned) == (sessions, 0), "{listening} sessions listen, {pinned} are pinned");
        Ok(())
    })
}

fn sessions_that_listen_share_a_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let mut listeners = Vec::new();
    for number in 0..6 {
        let mut client = pair.connect()?;
        client.run(&format!("listen everyone; listen \"Only {number}\""))?;
        listeners.push(client);
    }
    // A pool of one: each has given its connection back.
    let mut sender = pair.connect()?;
    for number in 0..50 {
        sender.run(&format!("notify everyone, '{number}'"))?;
    }
    for number in 0..6 {
        sender.run(&format!("notify \"Only {number}\", 'you'"))?;
    }
    for (number, client) in listeners.iter_mut().enumerate() {
        for expected in 0..50 {
            ensure!(hear(client)? == ("everyone".to_owned(), expected.to_string()));
        }
        ensure!(hear(client)? == (format!("Only {number}"), "you".to_owned()));
        ensure!(client.value("select pg_listening_channels()").is_ok());
        client.expect_silence()?;
    }
    are_handed_over(&pair, 6)?;
    // Those that have ended are not listened for.
    drop(listeners);
    let mut last = pair.connect()?;
    last.run("listen last")?;
    sender.run("notify everyone, 'nobody'; notify last, 'one'")?;
    ensure!(hear(&mut last)? == ("last".to_owned(), "one".to_owned()));
    last.run("unlisten *")?;
    sender.run("notify last, 'two'")?;
    ensure!(is_silent(&last)?);
    last.expect_silence()
}

/// Sends numbers until told to stop: `sent` is the last one that is committed.
fn send_numbers(pair: &Pair, sent: Arc<AtomicU64>, ends: Arc<AtomicBool>) -> Result<thread::JoinHandle<Result<()>>> {
    let mut sender = pair.database.connect()?;
    Ok(thread::spawn(move || {
        for number in 1.. {
            let is_last = ends.load(SeqCst) || number == 200_000;
            let text = if is_last { "end".to_owned() } else { number.to_string() };
            sender.run(&format!("notify c, '{text}'"))?;
            if is_last {
                break;
            }
            sent.store(number, SeqCst);
        }
        Ok(())
    }))
}

/// What a session that listens to `c` has heard since it began.
#[derive(Default)]
struct Heard {
    /// Committed when the listening began.
    begun_at: u64,
    last: Option<u64>,
}

impl Heard {
    fn add(&mut self, messages: &[Message]) -> Result<()> {
        for payload in payloads(messages) {
            let number: u64 = payload.parse().with_context(|| format!("{payload} came"))?;
            match self.last {
                Some(last) => ensure!(number == last + 1, "{number} behind {last}"),
                // One may be committed and not counted yet.
                None => ensure!(number <= self.begun_at + 2, "{number} is the first behind {}", self.begun_at),
            }
            self.last = Some(number);
        }
        Ok(())
    }
}

fn nothing_is_lost_or_twice_while_channels_change(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let (sent, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let sender = send_numbers(&pair, sent.clone(), ends.clone())?;
    let mut random = Random(7);
    let (mut client, mut heard) = (pair.connect()?, None::<Heard>);
    let mut other = pair.connect()?;
    for step in 0..300 {
        let sql = match (random.below(8), heard.is_some()) {
            (0 | 1, _) => "listen c",
            (2, _) => "unlisten c",
            (3, _) => "select pg_listening_channels()",
            (4, _) => "begin; unlisten *; listen c; listen d; rollback",
            (5, true) => "begin; unlisten *; listen c; commit",
            (6, _) => "listen d",
            _ => "select v from t where id = 1",
        };
        let before = sent.load(SeqCst);
        let mut messages = Vec::new();
        // In one text, or one by one.
        let parts: Vec<&str> = if random.below(2) == 0 { vec![sql] } else { sql.split("; ").collect() };
        for part in parts {
            messages.extend(client.query(part).with_context(|| format!("step {step}: {sql}"))?);
        }
        let at = || format!("step {step}: {sql}");
        match sql {
            "listen c" if heard.is_none() => {
                let mut new = Heard { begun_at: sent.load(SeqCst), last: None };
                new.add(&messages).with_context(at)?;
                heard = Some(new);
            }
            "unlisten c" => {
                heard.take().unwrap_or_default().add_last(&messages).with_context(at)?;
            }
            // What was sent while it listened to nothing for a moment need not come.
            "begin; unlisten *; listen c; commit" => {
                let mut new = Heard { begun_at: u64::MAX - 2, last: None };
                new.last = heard.take().and_then(|heard| heard.last);
                new.add(&messages).with_context(at)?;
                heard = Some(new);
            }
            _ => match &mut heard {
                Some(heard) => heard.add(&messages).with_context(at)?,
                None => ensure!(payloads(&messages).is_empty(), "{}: {messages:?} behind {before}", at()),
            },
        }
        // It works on beside it.
        other.run("update t set v = v + 1")?;
    }
    if heard.is_none() {
        client.run("listen c")?;
        heard = Some(Heard { begun_at: sent.load(SeqCst), last: None });
    }
    ends.store(true, SeqCst);
    sender.join().map_err(|_| anyhow::anyhow!("the sender has panicked"))??;
    let mut heard = heard.context("it listens")?;
    loop {
        let next = client.until(b'A')?;
        if payloads(&next) == ["end"] {
            break;
        }
        heard.add(&next)?;
    }
    ensure!(heard.last == Some(sent.load(SeqCst)), "{:?} was the last of {}", heard.last, sent.load(SeqCst));
    client.run("unlisten *")?;
    client.expect_silence()
}

impl Heard {
    /// What comes with the answer that ends the listening; before, it may have listened to nothing.
    fn add_last(&mut self, messages: &[Message]) -> Result<()> {
        self.begun_at = if self.last.is_none() && self.begun_at == 0 { u64::MAX - 2 } else { self.begun_at };
        self.add(messages)
    }
}

fn transactions_that_end_the_listening(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut client, mut sender) = (pair.connect()?, pair.connect()?);
    client.run("listen a; listen b")?;
    let mut number = 0;
    // What is run, and which of the channels are listened to behind it.
    for (statements, expected) in [
        (vec!["begin", "listen c", "rollback"], "ab"),
        (vec!["begin", "unlisten *", "rollback"], "ab"),
        (vec!["begin", "unlisten *", "select 1/0", "commit"], "ab"),
        (vec!["begin", "select 1/0", "unlisten *", "rollback"], "ab"),
        (vec!["begin", "unlisten a", "commit"], "b"),
        (vec!["begin", "listen c", "listen a", "commit"], "abc"),
        (vec!["begin", "unlisten *", "commit"], ""),
        (vec!["listen a"], "a"),
        (vec!["begin; unlisten *; listen c; commit"], "c"),
        (vec!["begin; listen d; commit; begin; unlisten d; rollback", "begin; unlisten d; commit"], "c"),
        (vec!["do 'begin execute ''unlisten c''; execute ''listen b''; end'"], "b"),
        (vec!["listen a", "begin", "unlisten a", "rollback", "unlisten b"], "a"),
        (vec!["begin", "unlisten *", "listen b", "listen c", "commit", "unlisten c"], "b"),
        (vec!["begin", "unlisten b", "commit"], ""),
        (vec!["listen b", "listen a", "begin", "unlisten a", "commit", "begin", "unlisten b", "rollback"], "b"),
        (vec!["discard all"], ""),
        (vec!["listen a", "listen b", "unlisten a"], "b"),
    ] {
        for sql in &statements {
            client.query(sql)?;
        }
        ensure!(channels(&mut pair.connect()?)?.0.is_empty(), "another session sees the channels");
        number += 1;
        sender.run(&format!("notify a, '{number}'; notify b, '{number}'; notify c, '{number}'; notify last"))?;
        let (here, mut came) = channels(&mut client)?;
        ensure!(here == expected, "{statements:?}: {here}");
        let heard: Vec<_> = expected.chars().map(|channel| (channel.to_string(), number.to_string())).collect();
        while came.len() < heard.len() {
            let next = hear(&mut client).with_context(|| format!("{statements:?}: only {came:?} came"))?;
            came.push(next);
        }
        ensure!(came == heard, "{statements:?}: {came:?}");
        client.expect_silence().with_context(|| format!("{statements:?}"))?;
    }
    are_handed_over(&pair, 1)?;
    // Sent at once.
    let all: Vec<u8> = [
        "listen c",
        "begin",
        "unlisten *",
        "commit",
        "begin",
        "listen a",
        "rollback",
        "listen b",
        "unlisten b",
        "listen c",
    ]
    .iter()
    .flat_map(|sql| frames::query(sql))
    .collect();
    client.exchange(&all, 10)?;
    ensure!(channels(&mut client)?.0 == "c");
    are_handed_over(&pair, 1)?;
    sender.run("notify a, 'no'; notify b, 'no'; notify c, 'yes'")?;
    ensure!(hear(&mut client)? == ("c".to_owned(), "yes".to_owned()));
    client.expect_silence()
}

/// The channels that the session itself sees, and what comes with the answer.
fn channels(client: &mut RawClient) -> Result<(String, Vec<(String, String)>)> {
    let messages = client.query("select string_agg(c, '' order by c) from pg_listening_channels() c")?;
    let row = messages.iter().find(|message| message.tag == b'D').context("no row")?;
    let text = row.columns().into_iter().next().flatten().unwrap_or_default();
    Ok((String::from_utf8(text)?, messages.iter().filter_map(notification).collect()))
}

fn code_that_may_end_it_keeps_the_connection(version: Version) -> Result<()> {
    let schema = "create function f() returns void language plpgsql as $$ begin execute 'unlisten ' || 'a'; end $$";
    let pair = shared(version, &format!("{SCHEMA}; {schema}"), 2)?;
    let (mut client, mut sender) = (pair.connect()?, pair.connect()?);
    client.run("listen a")?;
    eventually(PATIENCE, || {
        let pinned = pair.freshet.metrics()?.count("freshet_pinned_sessions{reason=\"listen\"}");
        ensure!(pinned == 1, "{pinned} sessions are pinned");
        Ok(())
    })?;
    sender.run("notify a, 'one'")?;
    ensure!(hear(&mut client)?.1 == "one");
    client.run("select f()")?;
    sender.run("notify a, 'two'")?;
    ensure!(is_silent(&client)?);
    Ok(())
}

fn what_a_notification_tells_of_is_read(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 1)?;
    let (mut client, mut writer) = (pair.connect()?, pair.database.connect()?);
    client.run("listen changed")?;
    are_handed_over(&pair, 1)?;
    for value in 1..=30 {
        writer.run(&format!("begin; update t set v = {value}; notify changed; commit"))?;
        hear(&mut client)?;
        ensure!(client.value("select v from t where id = 1")? == value.to_string());
    }
    eventually(PATIENCE, || ensure_hits(&pair.freshet, 1, || client.run("select v from t where id = 1")))?;
    undisturbed(&pair.freshet, || {
        client.run("select v from t where id = 1")?;
        ensure_hits(&pair.freshet, 3, || (0..3).try_for_each(|_| client.run("select v from t where id = 1")))
    })
}

fn other_encodings_keep_the_connection(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let (mut client, mut sender) = (pair.connect()?, pair.connect()?);
    client.run("set client_encoding = 'LATIN1'")?;
    client.run("listen a")?;
    sender.run("notify a, 'é'")?;
    let messages = client.until(b'A')?;
    let body = &messages.last().context("nothing")?.body;
    ensure!(body.ends_with(b"a\0\xe9\0"), "{}", body.escape_ascii());
    // The encoding changes behind the LISTEN: the notification cannot be told, and nothing wrong is.
    client.run("unlisten *; reset client_encoding")?;
    client.run("listen a")?;
    are_handed_over(&pair, 1)?;
    sender.run("notify a, 'é'")?;
    ensure!(client.until(b'A')?.last().context("nothing")?.body.ends_with("a\0é\0".as_bytes()));
    client.run("set client_encoding = 'LATIN1'")?;
    sender.run("notify a, 'plain'; notify a, 'é'")?;
    ensure!(hear(&mut client)?.1 == "plain");
    let ended = client.until(b'E')?;
    ensure!(ended.last().and_then(|error| error.field(b'C')).as_deref() == Some("57P01"), "{ended:?}");
    Ok(())
}

fn the_end_of_the_listening_connection_is_told(version: Version) -> Result<()> {
    let pair = shared(version, SCHEMA, 2)?;
    let (mut client, mut other) = (pair.connect()?, pair.connect()?);
    client.run("listen a")?;
    are_handed_over(&pair, 1)?;
    let listens = "select pid from pg_stat_activity where datname = current_database() and query like 'LISTEN \"a\"%'";
    let pid = pair.database.connect()?.value(listens)?;
    pair.database.run(&format!("select pg_terminate_backend({pid})"))?;
    let ended = client.until(b'E')?;
    ensure!(ended.last().and_then(|error| error.field(b'C')).as_deref() == Some("57P01"), "{ended:?}");
    other.run("select 1 from t")?;
    let mut next = pair.connect()?;
    next.run("listen a")?;
    are_handed_over(&pair, 1)?;
    other.send(&frames::query("notify a, 'again'"))?;
    ensure!(hear(&mut next)?.1 == "again");
    Ok(())
}
