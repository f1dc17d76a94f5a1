//! The server side of Freshet: who is let in.

pub(crate) mod access;
