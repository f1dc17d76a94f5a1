//! Throw-away database servers on private ports, for the demo and the tests.
//!
//! The promises of a cache can only be tested on a real server, so every such test starts one: a new data directory, a free port on 127.0.0.1,
//! settings for logical decoding, and nothing left behind afterwards. Three things make this harder than running `initdb`:
//!
//! - **Servers refuse to run as root**, while containers and CI often run as root. The server then runs as the system user `postgres` (else
//!   `nobody`), and an installation of PostgreSQL is used only if this user can execute it.
//! - **The process that started the server may be killed.** A parent-death signal does not help: Linux sends it when the *thread* that forked ends,
//!   and threads of a test runner or of a runtime's blocking pool end while their servers are in use. So each server has a small watching shell that
//!   holds the read end of a pipe. When the last writer has ended in any way, it stops the server and removes its directory. An ordinary drop uses
//!   the same mechanism.
//! - **A free port may be taken by another process**, so a start that fails on its port picks another.
//!
//! All calls block. In async code, start servers before the runtime, or inside `spawn_blocking`.

mod installation;
mod leash;
mod mariadb;
mod mysql;
mod mysqld;
mod owner;
pub mod process;
mod server;
mod settings;
mod standby;
mod tls;
mod watch;

pub use installation::{Installation, Postgres, find_program};
pub use leash::Leash;
pub use mariadb::Mariadb;
pub use mysql::Mysql;
pub use mysqld::{MysqlSettings, MysqlSettings as MariadbSettings, Mysqld};
pub use owner::Owner;
pub use server::{Server, StopMode};
pub use settings::{Auth, Settings, Tls};
