//! Black-box tests against real servers: one integration-test binary, `tests/all`. This library is empty.
