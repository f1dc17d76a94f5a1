//! The memory limit changes while Freshet runs, and includes memory outside the cache.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use freshet_testbed::Settings;

use super::configuration::File;
use super::{connect_as, databases, reader, rows, sqlstate};
use crate::cached::until_hit;
use crate::mysql::support as mysql;
use crate::support::{Database, PATIENCE, Pair, Version, eventually, on_both_at_length, program};

on_both_at_length!(less_and_more, not_for_everybody, wide_rows);

const SCHEMA: &str = "
    create table film (id int primary key, title text not null);
    insert into film select i, repeat(chr(97 + i % 26), 10000) from generate_series(1, 400) i;";

fn read(id: u32) -> String {
    format!("select title from film where id = {id}")
}

/// Entries go when the limit falls, at once and not with the next fill; there is room for more when it rises.
fn less_and_more(version: Version) -> Result<()> {
    // A server of its own: roles that other tests change would have the cache flushed.
    let database = Database::create(version.start(&Settings::default())?)?;
    let pair = Pair::over(database, SCHEMA, &["--memory", "64MiB", "--admission", "always"])?;
    let Some(program) = program()? else { return Ok(()) };
    let login = pair.login();
    let password = login.password.unwrap_or_default();
    let url = format!("postgres://{}:{password}@{}/{}", login.user, pair.address(), login.database);
    let set = |size: &str| -> Result<Output> {
        Command::new(&program).args(["memory", size, "--at", &url]).output().context("freshet memory")
    };
    let mut c = pair.connect()?;
    until_hit(&pair, &mut c, &read(1))?;
    for id in 2..=400 {
        c.query(&read(id))?;
    }
    let full = pair.freshet.metrics()?;
    ensure!(full.value("freshet_bytes") > 3e6, "only {} bytes are cached", full.value("freshet_bytes"));

    let output = set("2MiB")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.contains("memory 2097152 bytes"), "{output:?}");
    eventually(PATIENCE, || {
        let now = pair.freshet.metrics()?;
        let (held, limit) = (now.value("freshet_bytes"), now.value("freshet_memory_limit_bytes"));
        ensure!(
            limit < 2_097_153.0 && held < 2_097_153.0 && held > 5e5,
            "{held} bytes are cached with a limit of {limit}"
        );
        let invalidated = now.count("freshet_evictions_total") - full.count("freshet_evictions_total");
        ensure!(invalidated > 50, "{invalidated} entries were invalidated");
        Ok(())
    })?;
    let status = rows(&pair.connect()?.query("SHOW FRESHET STATUS")?);
    ensure!(status.contains(&vec!["memory_limit_bytes".to_owned(), "2097152".to_owned()]), "{status:?}");
    let log = pair.freshet.log();
    ensure!(log.contains("has set the memory limit to 2097152 bytes; it was 67108864"), "no word in the log:\n{log}");

    ensure!(set("16MiB")?.status.success(), "it cannot rise");
    for id in 1..=400 {
        c.query(&read(id))?;
    }
    let held = pair.freshet.metrics()?.value("freshet_bytes");
    ensure!(held > 3e6, "{held} bytes are held under the larger limit");
    until_hit(&pair, &mut c, &read(400))?;

    for (size, why) in [("1KiB", "at least 1048576 bytes"), ("much", "a size is 65536, 512MiB or 2GiB")] {
        let output = set(size)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(why), "{size}: {output:?}");
    }
    c.expect_silence()
}

fn not_for_everybody(version: Version) -> Result<()> {
    let pair = Pair::new(version, super::SCHEMA)?;
    if !pair.freshet.is_there() {
        return Ok(());
    }
    let before = pair.freshet.metrics()?.value("freshet_memory_limit_bytes");
    let mut other = connect_as(&pair, &reader(&pair, "reader")?)?;
    let answer = other.query("FRESHET MEMORY 4194304")?;
    ensure!(sqlstate(&answer).as_deref() == Some("42501"), "{answer:?}");
    let after = pair.freshet.metrics()?.value("freshet_memory_limit_bytes");
    ensure!(after.to_bits() == before.to_bits(), "the limit is {after} all the same");
    other.expect_silence()
}

/// Changes are remembered for a time: not more of them than the limit allows, however wide their rows are.
fn wide_rows(version: Version) -> Result<()> {
    const ROW_BYTES: u64 = 1 << 20;
    const CHANGES: u64 = 200;
    let database = Database::create(version.start(&Settings::default())?)?;
    let schema = "create table document (id int primary key, body text not null);
        alter table document replica identity full;
        insert into document values (1, 'short');";
    let pair = Pair::over(database, schema, &["--memory", "32MiB", "--admission", "always"])?;
    let mut c = pair.connect()?;
    let read = "select length(body) from document where id = 1";
    until_hit(&pair, &mut c, read)?;
    let before = pair.freshet.peak_memory()?;
    for change in 1..=CHANGES {
        c.query(&format!("update document set body = repeat(chr(97 + {change} % 26), {ROW_BYTES}) where id = 1"))?;
    }
    until_hit(&pair, &mut c, read)?;
    let taken = pair.freshet.peak_memory()?.saturating_sub(before);
    ensure!(taken < 40 << 20, "{CHANGES} changes of rows of {ROW_BYTES} bytes took {taken} bytes more");
    c.expect_silence()
}

/// Of several databases one gets more or less: by statement, in the console, and by reload.
#[test]
fn of_one_database() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let shop = Database::shared(Version::V18)?;
    let maria = mysql::Database::shared(mysql::Kind::Mariadb)?;
    let text = |more: &str| {
        format!(
            "memory = \"64MiB\"\n[[database]]\nname = \"shop\"\nupstream = \"{}\"\n{more}\
             [[database]]\nname = \"maria\"\nupstream = \"{}\"\nlisten = \"127.0.0.1:0\"\n",
            shop.url(),
            maria.url()
        )
    };
    let file = File::new("memory.toml", &text(""))?;
    let Some(freshet) = databases::start(&file, &shop)? else { return Ok(()) };
    let of_maria = *freshet.others.first().context("a second address")?;
    let mut admin = databases::connect(&freshet, &shop, "shop")?;
    let mut console = databases::connect(&freshet, &shop, "pgbouncer")?;
    let mut in_maria = mysql::RawClient::login(of_maria, maria.login())?;
    let part = |name: &str| -> Result<u64> {
        let bytes = freshet.metrics()?.of(name, "freshet_memory_limit_bytes");
        Ok(format!("{bytes:.0}").parse()?)
    };
    let have = |wanted: [u64; 2]| {
        eventually(PATIENCE, || {
            let parts = [part("shop")?, part("maria")?];
            ensure!(parts == wanted.map(|mib| mib * MIB), "{parts:?} instead of {wanted:?}");
            Ok(())
        })
    };
    have([32, 32])?;
    // The others get what one may not have.
    admin.run(&format!("FRESHET MEMORY MAX {}", 16 * MIB))?;
    have([16, 48])?;
    in_maria.run(&format!("freshet memory min {}", 56 * MIB))?;
    eventually(PATIENCE, || {
        let part = part("maria")?;
        ensure!((56 * MIB..=64 * MIB).contains(&part), "{part}");
        Ok(())
    })?;
    let refused = admin.query(&format!("FRESHET MEMORY MIN {}", 17 * MIB))?;
    ensure!(sqlstate(&refused).as_deref() == Some("22023"), "{refused:?}");
    let shown = rows(&admin.query("SHOW CONFIG")?);
    let row = |key: &str| shown.iter().find(|row| row[0] == key).map(|row| [row[1].clone(), row[4].clone()]);
    let at_run_time = |bytes: u64| Some([bytes.to_string(), "run time".to_owned()]);
    ensure!(row("database.shop.memory_max") == at_run_time(16 * MIB), "{shown:?}");
    ensure!(row("database.maria.memory_min") == at_run_time(56 * MIB), "{shown:?}");
    in_maria.run("FRESHET MEMORY MIN 0")?;
    console.run(&format!("SET database.shop.memory_max = {}", 24 * MIB))?;
    eventually(PATIENCE, || {
        let part = part("shop")?;
        ensure!(part <= 24 * MIB, "{part}");
        Ok(())
    })?;
    for wrong in ["database.none.memory_max", "database.shop.memory", "database.shop.memory_max"] {
        let answer = console.query(&format!("SET {wrong} = 5"))?;
        ensure!(sqlstate(&answer).as_deref() == Some("08P01"), "{wrong}: {answer:?}");
    }
    // The file is the truth.
    file.write(&text("memory_min = \"40MiB\"\n"))?;
    let said = rows(&admin.query("RELOAD")?);
    let is_it = |row: &Vec<String>| row[0] == "database.shop.memory_min" && row[3] == "in force";
    ensure!(said.iter().any(is_it), "{said:?}");
    eventually(PATIENCE, || {
        let part = part("shop")?;
        ensure!(part >= 40 * MIB, "{part}");
        Ok(())
    })
}
