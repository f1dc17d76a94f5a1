//! The one integration-test binary: everything that is tested from outside, against real servers.
//!
//! One binary rather than one per file, because linking and starting servers is what costs time. The modules:
//!
//! * `wire`: a conversation held directly with PostgreSQL and one held through Freshet are the same, byte for byte;
//! * `clients`: real programs and drivers, the same session direct and through Freshet;
//! * `login`, `encryption`, `upstream`: who is let in, TLS on both legs, how the upstream is named;
//! * `cached`: what applications see when their reads come from the cache: freshness, settings, privileges, admin replies;
//! * `join keys`: results that join tables, on all servers: which changes touch them;
//! * `checking`: what a database lacks, and that the printed statements mend it; preparing one, and leaving one;
//! * `documents`: the lists of reasons, metrics and options in the documents are the program's;
//! * `operating`: switching the cache off, stopping, who may ask, what is logged;
//! * `benching`: the benchmark program, and that it says what is wrong;
//! * `instructions`: how many each statement and each change costs (`make bench-instructions`);
//! * `calls`: system calls of a hit and of what passes;
//! * `scale`: ten thousand connections (`make bench-scale`);
//! * `mysql`: the same for MariaDB and MySQL;
//! * `stress`: the promises under concurrent writers;
//! * `suites`: others' test suites, direct and through Freshet (`make test-long`);
//! * `verdicts`: what is made of the statements that real software sends;
//! * `tidy`: the rules of the code base that a compiler does not check;
//! * `worth`: statements whose results do not pay for being kept;
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
mod scale;
mod stress;
mod suites;
mod support;
mod tidy;
mod upstream;
mod verdicts;
mod wire;
mod worth;
