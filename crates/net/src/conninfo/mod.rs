//! Connection strings as libpq understands them.
