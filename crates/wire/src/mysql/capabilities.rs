//! Capabilities of clients and servers, and the status flags of a session.
//!
//! Both ends use the capabilities that both have. MariaDB has more than 32: a server and a client that both leave out
//! [`Capabilities::MYSQL`] send another 32 in reserved bytes.

use std::fmt;
use std::ops::{BitAnd, BitOr};

/// Capabilities; MariaDB's own from bit 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Formerly `CLIENT_LONG_PASSWORD`, now `CLIENT_MYSQL`: MariaDB's capabilities are absent.
    pub const MYSQL: Self = Self(1);
    /// Counts matched rows instead of changed rows.
    pub const FOUND_ROWS: Self = Self(1 << 1);
    /// The login names a database.
    pub const CONNECT_WITH_DB: Self = Self(1 << 3);
    /// Packets may be compressed by zlib.
    pub const COMPRESS: Self = Self(1 << 5);
    /// `LOAD DATA LOCAL`
    pub const LOCAL_FILES: Self = Self(1 << 7);
    /// The protocol of version 4.1. Older ones are not supported.
    pub const PROTOCOL_41: Self = Self(1 << 9);
    /// `wait_timeout` takes the interactive value.
    pub const INTERACTIVE: Self = Self(1 << 10);
    /// TLS.
    pub const SSL: Self = Self(1 << 11);
    /// Status flags in OK packets.
    pub const TRANSACTIONS: Self = Self(1 << 13);
    /// Logins by a nonce (`CLIENT_RESERVED2` now).
    pub const SECURE_CONNECTION: Self = Self(1 << 15);
    /// Several statements in one COM_QUERY.
    pub const MULTI_STATEMENTS: Self = Self(1 << 16);
    /// Several results of one COM_QUERY.
    pub const MULTI_RESULTS: Self = Self(1 << 17);
    /// Several results of one COM_STMT_EXECUTE.
    pub const PS_MULTI_RESULTS: Self = Self(1 << 18);
    /// The login names an authentication plugin.
    pub const PLUGIN_AUTH: Self = Self(1 << 19);
    /// The login carries attributes of the client.
    pub const CONNECT_ATTRS: Self = Self(1 << 20);
    /// The answer to the nonce has a length-encoded length.
    pub const PLUGIN_AUTH_LENENC_DATA: Self = Self(1 << 21);
    /// Users with expired passwords may log in to change it.
    pub const CAN_HANDLE_EXPIRED_PASSWORDS: Self = Self(1 << 22);
    /// OK packets report changes of the session.
    pub const SESSION_TRACK: Self = Self(1 << 23);
    /// No EOF packet follows column definitions, and an OK packet with its mark replaces the last EOF packet.
    pub const DEPRECATE_EOF: Self = Self(1 << 24);
    /// Column definitions may be left out on wish (MySQL).
    pub const OPTIONAL_RESULTSET_METADATA: Self = Self(1 << 25);
    /// Packets may be compressed by zstd (MySQL).
    pub const ZSTD_COMPRESSION: Self = Self(1 << 26);
    /// Statements carry attributes (MySQL).
    pub const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// Several factors of authentication (MySQL).
    pub const MULTI_FACTOR_AUTHENTICATION: Self = Self(1 << 28);
    /// Progress reports (MariaDB), at their place before [`Self::MARIADB_PROGRESS`].
    pub const PROGRESS_OBSOLETE: Self = Self(1 << 29);
    /// Progress reports.
    pub const MARIADB_PROGRESS: Self = Self(1 << 32);
    /// `COM_STMT_BULK_EXECUTE`
    pub const MARIADB_STMT_BULK: Self = Self(1 << 34);
    /// Column definitions carry type names and formats.
    pub const MARIADB_EXTENDED_METADATA: Self = Self(1 << 35);
    /// Column definitions that did not change since the prepare are left out.
    pub const MARIADB_CACHE_METADATA: Self = Self(1 << 36);
    /// Bulk statements answer with a result for each row.
    pub const MARIADB_BULK_UNIT_RESULTS: Self = Self(1 << 37);

    /// Whether it contains all of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All except those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The union with `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The lower 32, of the original protocol.
    pub const fn basic(self) -> u32 {
        self.0 as u32
    }

    /// MariaDB's 32; 0 if bit [`Self::MYSQL`] says that there are none.
    pub const fn extended(self) -> u32 {
        if self.has(Self::MYSQL) { 0 } else { (self.0 >> 32) as u32 }
    }

    pub(super) const fn from_parts(basic: u32, extended: u32) -> Self {
        let extended = if basic & Self::MYSQL.basic() == 0 { extended } else { 0 };
        Self(basic as u64 | (extended as u64) << 32)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::LowerHex for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

/// The status flags of a session, as in OK and EOF packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// A transaction is open.
    pub const IN_TRANS: Self = Self(1);
    /// Each statement is a transaction of its own.
    pub const AUTOCOMMIT: Self = Self(1 << 1);
    /// Another result follows.
    pub const MORE_RESULTS_EXISTS: Self = Self(1 << 3);
    /// The statement used no good index.
    pub const NO_GOOD_INDEX_USED: Self = Self(1 << 4);
    /// The statement used no index.
    pub const NO_INDEX_USED: Self = Self(1 << 5);
    /// A cursor has rows to fetch.
    pub const CURSOR_EXISTS: Self = Self(1 << 6);
    /// The cursor has no further rows.
    pub const LAST_ROW_SENT: Self = Self(1 << 7);
    /// The session's database was dropped.
    pub const DB_DROPPED: Self = Self(1 << 8);
    /// `\` is not an escape in strings.
    pub const NO_BACKSLASH_ESCAPES: Self = Self(1 << 9);
    /// A prepared statement was prepared again and has other columns.
    pub const METADATA_CHANGED: Self = Self(1 << 10);
    /// The statement was slow.
    pub const QUERY_WAS_SLOW: Self = Self(1 << 11);
    /// The result holds a procedure's output parameters.
    pub const PS_OUT_PARAMS: Self = Self(1 << 12);
    /// The open transaction reads only.
    pub const IN_TRANS_READONLY: Self = Self(1 << 13);
    /// The OK packet reports changes of the session.
    pub const SESSION_STATE_CHANGED: Self = Self(1 << 14);
    /// `"` quotes names (MariaDB).
    pub const ANSI_QUOTES: Self = Self(1 << 15);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All except those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The union with `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
