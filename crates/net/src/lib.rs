//! Sockets: upstream login, service connections, replication connections.
