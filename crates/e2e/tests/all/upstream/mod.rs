//! How the upstream is named and found: connection strings, environment, sockets, several hosts.
