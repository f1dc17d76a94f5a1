//! MariaDB's accounts with the plugin PAM: the client is asked questions, which it answers in clear text.
//!
//! The server's part of the plugin is not in Debian's package of the server's programs; `script/setup` unpacks it. It runs a helper program, which
//! uses the system's PAM. PAM reads its rules from `/etc` only, so another program that asks for a password replaces the helper here; everything
//! between the client and the plugin is unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};

use super::super::SCHEMA;
use super::Account;
use super::folder::Folder;
use crate::mysql::support::{Database, Kind, Pair, Server};
use crate::support::Freshet;

/// Reads a byte (whether to say more), the user's name and the service's, each with its length in two bytes before it; asks
/// for a password ('C', and \4: not to be shown); says 'E' if it is right (`plugin/auth_pam/auth_pam_tool.c`).
const TOOL: &str = r#"#!/bin/sh
text() {
    set -- $(dd bs=1 count=2 2>/dev/null | od -An -tu1)
    dd bs=1 count=$(($1 * 256 + $2)) 2>/dev/null | tr -d '\000'
}
dd bs=1 count=1 >/dev/null 2>&1
name=$(text)
service=$(text)
printf 'C\000\013\004Password: '
password=$(text)
[ "$service:$password" = freshet:secret ] && printf E
"#;

/// A server with the plugin; none if this machine lacks it.
fn server(certificate: &Folder, clear: &str) -> Result<Option<Arc<Server>>> {
    let plugin = "auth_pam.so";
    let unpacked = Kind::Mariadb.shared().sql("SELECT @@plugin_dir")?;
    let unpacked = Path::new(unpacked.trim()).join(plugin);
    if !unpacked.exists() {
        return crate::clients::left_out("PAM").map(|()| None);
    }
    let tools = certificate.path().join("auth_pam_tool_dir");
    fs::create_dir_all(&tools)?;
    fs::copy(unpacked, certificate.path().join(plugin))?;
    let tool = tools.join("auth_pam_tool");
    fs::write(&tool, TOOL)?;
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755))?;
    let settings = Kind::settings()
        .with_tls(certificate.tls())
        .with(format!("plugin-dir = {}", certificate.path().display()))
        .with(format!("loose-pam-use-cleartext-plugin = {clear}"));
    let server = Kind::Mariadb.start(&settings)?;
    server.sql("INSTALL SONAME 'auth_pam'")?;
    Ok(Some(server))
}

/// Handed on where nobody can read along, refused elsewhere.
fn questions(clear: &str, plugin: &str) -> Result<()> {
    let certificate = Folder::with_certificate(&format!("pam-{clear}"))?;
    let Some(server) = server(&certificate, clear)? else { return Ok(()) };
    for mode in ["required", "disabled"] {
        let database = Database::create(server.clone())?;
        database.run(SCHEMA)?;
        let (url, options) = (format!("{}?ssl-mode={mode}", database.url()), certificate.options());
        let freshet = Freshet::start_unready(database.address(), &url, &options.each_ref().map(String::as_str))?;
        freshet.wait_ready()?;
        let pair = Pair { freshet, database };
        let account = Account::create(&pair, "IDENTIFIED VIA pam USING 'freshet'")?;
        for encryption in ["--ssl", "--skip-ssl"] {
            if (mode, encryption) == ("required", "--ssl") || !pair.freshet.is_there() {
                for (password, said) in [("secret", "item 1"), ("wrong", "Access denied"), ("", "ERROR")] {
                    let printed = account.same(password, &[encryption])?;
                    ensure!(printed.contains(said), "{password}: {printed}");
                }
            } else {
                let printed = account.run(pair.address(), "secret", &[encryption])?;
                let said = format!("hands on {plugin} only where both its sides are encrypted");
                ensure!(printed.contains(&said), "{mode} {encryption}: {printed}");
            }
        }
        account.drop()?;
    }
    Ok(())
}

#[test]
fn dialog() -> Result<()> {
    questions("OFF", "dialog")
}

#[test]
fn clear_password() -> Result<()> {
    questions("ON", "mysql_clear_password")
}
