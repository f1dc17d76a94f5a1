//! The only integration-test binary: everything that is tested from outside, with real servers.
//!
//! One binary rather than one per file, because linking and starting servers takes most of the time. The modules:
//!
//! * `wire`: a direct conversation with PostgreSQL and one through Freshet are the same, byte for byte;
//! * `clients`: real programs and drivers, the same session direct and through Freshet;
//! * `login`, `encryption`, `upstream`: authentication, TLS on both sides, ways to name the upstream;
//! * `cached`: the view of applications whose reads are served from the cache: freshness, settings, privileges, admin replies;
//! * `join keys`: results over joined tables, on all servers: which changes invalidate them;
//! * `checking`: faults of a database, and that the printed statements correct them; preparing and uninstalling;
//! * `documents`: the lists of reasons, metrics and options in the documents are the program's;
//! * `operating`: switching the cache off, stopping, admin users, logs;
//! * `benching`: the benchmark program, and its error reports;
//! * `instructions`: the instructions of each statement and each change (`make bench-instructions`);
//! * `calls`: system calls of a hit and of a pass;
//! * `scale`: ten thousand connections (`make bench-scale`);
//! * `mysql`: the same for MariaDB and MySQL;
//! * `pooling`: sessions that share server connections;
//! * `stress`: the promises under concurrent writers;
//! * `suites`: test suites of other projects, direct and through Freshet (`make test-long`);
//! * `verdicts`: the verdicts about statements of real software;
//! * `tidy`: the rules of the code base that a compiler does not check;
//! * `worth`: statements whose results do not pay;
//! * `support`: starting servers and Freshet, reading its metrics, and a client that speaks the protocol frame by frame.

mod benching;
mod bursts;
mod cached;
mod calls;
mod checking;
mod clients;
mod documents;
mod encryption;
mod instructions;
mod join_keys;
mod login;
mod mysql;
mod operating;
mod pooling;
mod scale;
mod stress;
mod suites;
mod support;
mod tidy;
mod upstream;
mod verdicts;
mod wire;
mod worth;
