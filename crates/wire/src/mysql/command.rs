//! The first byte of what a client sends: which command it is.

/// Ends the session; not answered.
pub const QUIT: u8 = 0x01;
/// Another default database.
pub const INIT_DB: u8 = 0x02;
/// Statements as text.
pub const QUERY: u8 = 0x03;
/// Columns of a table (obsolete).
pub const FIELD_LIST: u8 = 0x04;
/// A line of figures; answered by a string alone.
pub const STATISTICS: u8 = 0x09;
/// The running sessions (obsolete).
pub const PROCESS_INFO: u8 = 0x0a;
/// Ends another session.
pub const PROCESS_KILL: u8 = 0x0c;
/// The server writes to its log.
pub const DEBUG: u8 = 0x0d;
/// Nothing.
pub const PING: u8 = 0x0e;
/// Logs in anew on the same connection.
pub const CHANGE_USER: u8 = 0x11;
/// The binlog from a position, for ever.
pub const BINLOG_DUMP: u8 = 0x12;
/// A table's data (obsolete).
pub const TABLE_DUMP: u8 = 0x13;
/// A replica tells its name.
pub const REGISTER_REPLICA: u8 = 0x15;
/// Prepares a statement.
pub const STMT_PREPARE: u8 = 0x16;
/// Runs a prepared statement.
pub const STMT_EXECUTE: u8 = 0x17;
/// A piece of a parameter; not answered.
pub const STMT_SEND_LONG_DATA: u8 = 0x18;
/// Forgets a prepared statement; not answered.
pub const STMT_CLOSE: u8 = 0x19;
/// Forgets the pieces of parameters and the cursor.
pub const STMT_RESET: u8 = 0x1a;
/// Allows several statements in one COM_QUERY, or not.
pub const SET_OPTION: u8 = 0x1b;
/// The next rows of a cursor.
pub const STMT_FETCH: u8 = 0x1c;
/// The binlog from a set of GTIDs, for ever.
pub const BINLOG_DUMP_GTID: u8 = 0x1e;
/// A fresh session without a login.
pub const RESET_CONNECTION: u8 = 0x1f;
/// Copies the server (MySQL).
pub const CLONE: u8 = 0x20;
/// The stream of group replication (MySQL).
pub const SUBSCRIBE_GROUP_REPLICATION_STREAM: u8 = 0x21;
/// Runs a prepared statement for many rows (MariaDB).
pub const STMT_BULK_EXECUTE: u8 = 0xfa;
