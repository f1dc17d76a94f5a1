//! What changes something: for admin users only.

use std::time::Duration;

use super::command::{Command, Stop};
use super::served::Instance;
use super::{Answer, Wrong};
use crate::admin::change_bounds;
use crate::postgres::console::show::HELP;

/// How often PAUSE looks whether all sessions rest, and WAIT_CLOSE whether all connections are closed.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Parameters of a server that clients set without need, and that PgBouncer ignores.
const IGNORED: [&str; 5] =
    ["client_encoding", "default_transaction_isolation", "standard_conforming_strings", "datestyle", "timezone"];
/// Less memory than this is a mistake.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Runs a command of this user.
pub(super) async fn act(
    instance: Instance<'_>,
    (user, is_admin): (&str, bool),
    command: &Command,
) -> Result<Answer, Wrong> {
    match command {
        Command::Help => return Ok(Answer::Done("SHOW".to_owned(), Some(HELP))),
        Command::Set(key, _) if IGNORED.iter().any(|name| name.eq_ignore_ascii_case(key)) => {
            return Ok(Answer::Done("SET".to_owned(), Some("SET ignored")));
        }
        Command::Lacking(name) => return Err(lacking(name)),
        _ if !is_admin => return Err(Wrong::new("admin access needed")),
        _ => tracing::info!("user \"{user}\" in the console: {command:?}"),
    }
    let shared = instance.first;
    let tag = match command {
        Command::Set(key, value) => set(instance, user, key, value)?,
        Command::Reload => {
            let reloaded = shared.console.get().map_or_else(|| Ok(Vec::new()), |console| console.reload(user));
            let failed = |_| "RELOAD failed, see logs for additional details".to_owned();
            reloaded.map_err(|why| Wrong { sqlstate: "F0000", message: failed(why) })?;
            "RELOAD".to_owned()
        }
        Command::Pause(database) => {
            pause(instance, database.as_deref()).await?;
            "PAUSE".to_owned()
        }
        Command::Resume(database) => {
            if !instance.resume(database.as_deref()) {
                let not_paused = |name: &String| format!("database {name} is not paused");
                let all = || "pooler is not paused/suspended".to_owned();
                return Err(Wrong::new(database.as_ref().map_or_else(all, not_paused)));
            }
            "RESUME".to_owned()
        }
        Command::Reconnect(database) => {
            known(instance, "reconnect", database.as_deref())?;
            instance.reconnect(database.as_deref());
            "RECONNECT".to_owned()
        }
        Command::WaitClose(database) => {
            wait_close(instance, database.as_deref()).await?;
            "WAIT_CLOSE".to_owned()
        }
        Command::Kill(database) => {
            known(instance, "kill", database.as_deref())?;
            not_all_paused(instance)?;
            instance.pause(database.as_deref());
            instance.kill_all(database.as_deref());
            "KILL".to_owned()
        }
        Command::KillClient(id) => {
            let id = id.parse().map_err(|_| Wrong::new("invalid client pointer supplied"))?;
            if !instance.kill(id) {
                return Err(Wrong::new("client not found"));
            }
            "KILL_CLIENT".to_owned()
        }
        Command::Shutdown(stop) => {
            shared.settings.stop.make(*stop == Stop::AtOnce);
            "SHUTDOWN".to_owned()
        }
        Command::Show(_) | Command::Help | Command::Lacking(_) => "SHOW".to_owned(),
    };
    Ok(Answer::Done(tag, None))
}

/// Returns when all sessions rest, or the pause has ended.
async fn pause(instance: Instance<'_>, database: Option<&str>) -> Result<(), Wrong> {
    known(instance, "pause", database)?;
    not_all_paused(instance)?;
    instance.pause(database);
    while !instance.is_at_rest(database) && is_paused(instance, database) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Returns when all connections from before the last RECONNECT are closed.
async fn wait_close(instance: Instance<'_>, database: Option<&str>) -> Result<(), Wrong> {
    known(instance, "wait_close", database)?;
    while !instance.is_reconnected(database) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

fn lacking(name: &str) -> Wrong {
    let hint = match name {
        "SUSPEND" => ": it is for a new process that takes the sockets over; PAUSE lets all sessions come to rest",
        _ => "",
    };
    Wrong::new(format!("{name} is not supported{hint}"))
}

fn not_all_paused(instance: Instance<'_>) -> Result<(), Wrong> {
    if instance.is_all_paused() { Err(Wrong::new("already suspended/paused")) } else { Ok(()) }
}

fn is_paused(instance: Instance<'_>, database: Option<&str>) -> bool {
    database.map_or_else(|| instance.is_all_paused(), |database| instance.is_paused(database))
}

/// The database is one of the configuration, or one that a session is in, or any may be opened.
fn known(instance: Instance<'_>, what: &str, database: Option<&str>) -> Result<(), Wrong> {
    let Some(database) = database else { return Ok(()) };
    if database == "pgbouncer" {
        return Err(Wrong::new(format!("cannot {what} admin db: {database}")));
    }
    let is_served = instance.served.iter().any(|served| served.names().any(|name| name == database));
    if is_served || instance.takes_any() || instance.links().iter().any(|link| link.about.database == database) {
        return Ok(());
    }
    Err(Wrong::new(format!("no such database: {database}")))
}

fn set(instance: Instance<'_>, user: &str, key: &str, value: &str) -> Result<String, Wrong> {
    if let Some((database, bound)) = key.strip_prefix("database.").and_then(|key| key.rsplit_once('.')) {
        return set_memory(instance, user, (database, bound), value).map(|()| format!("SET {key}={value}"));
    }
    let is_on = match value.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" => Some(true),
        "0" | "off" | "false" => Some(false),
        _ => None,
    };
    match (key.to_ascii_lowercase().as_str(), is_on, value.parse()) {
        ("bypass", Some(on), _) => set_bypass(instance, on)?,
        ("memory", _, Ok(bytes)) if bytes >= MEMORY_BYTES_MIN => _ = instance.first.set_memory(bytes),
        _ => return Err(Wrong::new("SET failed")),
    }
    Ok(format!("SET {key}={value}"))
}

fn set_bypass(instance: Instance<'_>, on: bool) -> Result<(), Wrong> {
    instance.all().for_each(|pg| _ = pg.switches.set_bypass(on));
    if !on && instance.all().any(|pg| pg.switches.bypass()) {
        return Err(Wrong::new(
            "bypass stays on: a new process was asked to take over, or a database is being removed",
        ));
    }
    Ok(())
}

/// `database.NAME.memory_min`, `database.NAME.memory_max`
fn set_memory(instance: Instance<'_>, user: &str, (database, bound): (&str, &str), value: &str) -> Result<(), Wrong> {
    let failed = || Wrong::new("SET failed");
    let served = instance.served.iter().find(|served| served.name == database).ok_or_else(failed)?;
    let bytes = value.parse().map_err(|_| failed())?;
    let bounds = match (bound, served.pg.memory_bounds()) {
        ("memory_min", (_, max)) => (bytes, max),
        ("memory_max", (min, _)) if bytes >= MEMORY_BYTES_MIN => (min, bytes),
        _ => return Err(failed()),
    };
    change_bounds(&served.pg, user, bounds).map_err(Wrong::new)
}
