//! Logins that end at Freshet: sources of verifiers, methods, refusals, limits.
