//! The client/server protocol of MySQL and MariaDB (MySQL's source documentation, "Client/Server Protocol"; MariaDB's
//! knowledge base, "Clients & Utilities: MariaDB Client/Server Protocol").
//!
//! Each kind of packet has one module. The meaning of a packet depends on the command and on the capabilities that
//! both ends agreed on, never on the packet alone: [`response`] keeps track of them.

mod answer;
pub mod binlog;
pub mod capabilities;
pub mod command;
pub mod error;
pub mod handshake;
pub mod integers;
pub mod ok;
pub mod packet;
pub mod response;
pub mod result;
pub mod rows;
pub mod statement;
pub mod track;
