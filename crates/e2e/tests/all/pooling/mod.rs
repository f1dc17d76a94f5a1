//! Transaction pooling: sessions share server connections, and each sees its own state only.
//!
//! * `mysql`: MySQL and MariaDB.
//! * `postgres`: PostgreSQL.

mod mysql;
mod postgres;
