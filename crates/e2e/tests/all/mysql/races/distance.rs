//! A distant database: the client's next statement arrives before the answers to Freshet's own queries.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::mysql::support::{Database, Kind, RawClient, on_both};
use crate::support::relaying::{listen, pass_on};
use crate::support::{Freshet, PATIENCE, eventually, under_way};

on_both!(reads_of_a_far_database);

/// Behind a read that passes the next ones hit, also while Freshet is young and knows little of what the database takes.
fn reads_of_a_far_database(kind: Kind) -> Result<()> {
    const WAY: Duration = Duration::from_millis(3);
    let database = Database::create(kind.start(&Kind::settings())?)?;
    database.run("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO item VALUES (7, 'seven')")?;
    let near = database.address();
    let far = listen(near, |client, server| pass_on(client, server, |_| {}, |_| under_way(WAY)))?;
    let url = database.url().replace(&near.to_string(), &far.to_string()) + "?ssl-mode=disabled";
    let freshet = Freshet::start_unready(near, &url, &[])?;
    freshet.wait_ready()?;
    if !freshet.is_there() {
        return Ok(());
    }
    let mut client = RawClient::login(freshet.address, database.login())?;
    let (read, passes) = ("SELECT name FROM item WHERE id = 7", "SELECT RAND() < 2, COUNT(*) FROM item");
    eventually(PATIENCE, || {
        let before = freshet.metrics()?.hits();
        client.run(read)?;
        ensure!(freshet.metrics()?.hits() > before, "no hit");
        Ok(())
    })?;
    let before = freshet.metrics()?;
    for _ in 0..20 {
        client.run(passes)?;
        for _ in 0..3 {
            client.run(read)?;
        }
    }
    let after = freshet.metrics()?;
    let hits = after.hits() - before.hits();
    ensure!(hits >= 55, "{hits} hits of 60: {:?}", after.passed_since(&before));
    Ok(())
}
