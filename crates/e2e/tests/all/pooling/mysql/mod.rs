//! MySQL and MariaDB.
//!
//! * `sharing`: sessions that use one connection in turns;
//! * `limits`, `operator`: how many connections there are, for whom; what an operator sees and orders;
//! * `prepared`, `carried`, `held`: prepared statements of the binary protocol;
//! * `random`: nothing of a session is seen by another one;
//! * `pins`: what holds a session on its connection, and until when;
//! * `stage`: Freshet with a users file and a pool.

mod carried;
mod diagnostics;
mod held;
mod limits;
mod operator;
mod pins;
mod prepared;
mod random;
mod sharing;
mod stage;
mod user_variables;
