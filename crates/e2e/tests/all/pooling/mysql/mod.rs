//! MySQL and MariaDB.
//!
//! * `sharing`: sessions that use one connection in turns;
//! * `limits`, `operator`: how many connections there are, for whom; what an operator sees and orders;
//! * `pins`: what holds a session on its connection, and until when;
//! * `stage`: Freshet with a users file and a pool.

mod limits;
mod operator;
mod pins;
mod random;
mod sharing;
mod stage;
