//! The follower of binlogs on real servers: MariaDB 10.11 and MySQL 8.0.

mod connections;
mod files;
mod fixture;
mod groups;
mod rows;
mod setup;
mod visible;
