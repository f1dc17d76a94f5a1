//! Certificates change while Freshet runs, and sessions continue.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use freshet_testbed::Tls;

use super::link::{Link, Negotiation, Trust};
use super::workshop::{Authority, Workshop};
use super::{SCHEMA, serves, tls_options};
use crate::support::{Database, Freshet, PATIENCE, RawClient, Version, eventually, on_both_at_length};

on_both_at_length!(changed_files, sighup);

/// A Freshet whose files are overwritten by those of other certificates.
struct Changing {
    freshet: Freshet,
    database: Database,
    installed: Tls,
    workshop: Workshop,
}

impl Changing {
    fn start(version: Version, first: &Tls, workshop: Workshop) -> Result<Self> {
        let database = Database::shared(version)?;
        database.run(SCHEMA)?;
        let installed =
            Tls { cert: workshop.path("installed.crt"), key: workshop.path("installed.key"), client_ca: None };
        copy(first, &installed)?;
        let options = tls_options(&installed);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let freshet = Freshet::start(&database, &options)?;
        Ok(Self { freshet, database, installed, workshop })
    }

    fn link(&self, authority: &Authority) -> Result<Link> {
        Link::to(self.freshet.address, Negotiation::Request, &Trust::authority(authority)?)
    }
}

fn copy(from: &Tls, to: &Tls) -> Result<()> {
    fs::copy(&from.key, &to.key)?;
    fs::copy(&from.cert, &to.cert)?;
    Ok(())
}

/// The times of a file, so that a change of its bytes does not show by them.
fn keep_time(path: &Path, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let time = fs::metadata(path)?.modified()?;
    change()?;
    Ok(fs::File::options().append(true).open(path)?.set_modified(time)?)
}

fn changed_files(version: Version) -> Result<()> {
    let workshop = Workshop::open()?;
    let (old, new) = (workshop.authority("old")?, workshop.authority("new")?);
    let first = workshop.leaf("first", &["localhost"], &old)?;
    let second = workshop.leaf("second", &["localhost"], &new)?;
    let changing = Changing::start(version, &first, workshop)?;
    if !changing.freshet.is_there() {
        return Ok(());
    }
    let (by_old, by_new) = (changing.link(&old)?, changing.link(&new)?);
    let mut session = RawClient::login(by_old.address, changing.database.login())?;
    ensure!(serves(by_new.address, &changing.database).is_err(), "the new certificate is not there yet");

    copy(&second, &changing.installed)?;
    eventually(PATIENCE, || serves(by_new.address, &changing.database))?;
    ensure!(serves(by_old.address, &changing.database).is_err(), "the old certificate is still shown");
    ensure!(session.value("select 1")? == "1", "a session did not outlive the change");

    // Each kind of bad file is named in the log, and the last good certificate stays.
    for (file, bytes, words) in [
        (&changing.installed.cert, fs::read(&first.cert)?, "does not belong to the certificate"),
        (&changing.installed.cert, b"nothing".to_vec(), "no certificate"),
        (&changing.installed.key, b"nothing".to_vec(), "installed.key"),
    ] {
        copy(&second, &changing.installed)?;
        fs::write(file, bytes)?;
        eventually(PATIENCE, || {
            let log = changing.freshet.log();
            ensure!(log.contains(words), "\"{words}\" is not in the log:\n{log}");
            Ok(())
        })?;
        serves(by_new.address, &changing.database)?;
    }
    fs::remove_file(&changing.installed.cert)?;
    eventually(PATIENCE, || {
        ensure!(changing.freshet.log().contains("cannot read"), "{}", changing.freshet.log());
        Ok(())
    })?;
    serves(by_new.address, &changing.database)?;
    copy(&first, &changing.installed)?;
    eventually(PATIENCE, || serves(by_old.address, &changing.database))?;
    ensure!(session.value("select 2")? == "2");
    drop(changing.workshop);
    Ok(())
}

fn sighup(version: Version) -> Result<()> {
    let workshop = Workshop::open()?;
    let (old, new) = (workshop.authority("old")?, workshop.authority("new")?);
    let first = workshop.leaf("first", &["localhost"], &old)?;
    let second = workshop.leaf("second", &["localhost"], &new)?;
    let changing = Changing::start(version, &first, workshop)?;
    let Some(pid) = changing.freshet.pid() else { return Ok(()) };
    let (by_old, by_new) = (changing.link(&old)?, changing.link(&new)?);
    let mut session = RawClient::login(by_old.address, changing.database.login())?;
    let Tls { cert, key, .. } = &changing.installed;
    keep_time(cert, || keep_time(key, || copy(&second, &changing.installed)))?;
    let sent = Command::new("kill").args(["-HUP", &pid.to_string()]).status().context("kill")?;
    ensure!(sent.success());
    eventually(PATIENCE, || serves(by_new.address, &changing.database))?;
    ensure!(serves(by_old.address, &changing.database).is_err(), "the old certificate is still shown");
    ensure!(session.value("select 1")? == "1", "a session did not outlive the change");
    Ok(())
}
