//! MySQL and MariaDB.
//!
//! * `sharing`: sessions that use one connection in turns;
//! * `pins`: what holds a session on its connection, and until when;
//! * `stage`: Freshet with a users file and a pool.

mod pins;
mod random;
mod sharing;
mod stage;
