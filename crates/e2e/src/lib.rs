//! Black-box tests against real servers.
