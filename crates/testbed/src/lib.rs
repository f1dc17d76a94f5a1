//! Throw-away database servers on private ports, for the demo and the tests.
//!
//! What a cache promises can only be shown on the real server, so every test of a promise starts one: a fresh data
//! directory, a free port on 127.0.0.1, settings fit for logical decoding, and nothing left behind afterwards. Three
//! things make that harder than running `initdb`:
//!
//! - **Servers refuse to run as root**, while containers and CI often are root. The server then runs as the system user
//!   `postgres` (else `nobody`), and an installation of PostgreSQL counts as found only if that user can execute it.
//! - **Whoever started the server may be killed.** A parent-death signal is no answer: Linux sends it when the *thread*
//!   that forked ends, and threads of a test runner or of a runtime's blocking pool end while their servers are in use.
//!   So each server has a small watching shell that holds the read end of a pipe; when the last writer is gone,
//!   by whatever death, it stops the server and removes its directory. An ordinary drop takes the same way.
//! - **A free port is free only until someone else takes it**, so a start that fails on its port picks another.
//!
//! Everything here blocks. From async code start servers before the runtime, or inside `spawn_blocking`.

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
