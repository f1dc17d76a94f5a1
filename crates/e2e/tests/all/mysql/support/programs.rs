//! The command-line client.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// The `mariadb` program, which also speaks to MySQL, with this login; it prints rows in tabs without headers.
pub(crate) fn mariadb(address: SocketAddr, user: &str, password: &str, database: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60", "mariadb", "--no-defaults", "--batch", "--skip-column-names", "--protocol=tcp"]);
    command.arg(format!("--host={}", address.ip())).arg(format!("--port={}", address.port()));
    command.arg(format!("--user={user}")).arg(format!("--password={password}"));
    command.args(["--default-character-set=utf8mb4", database]).stdin(Stdio::null()).env("LC_ALL", "C.UTF-8");
    command
}
