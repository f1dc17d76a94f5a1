//! Sans-IO codecs: every untrusted byte is parsed here and nowhere else.

pub mod pg;
pub mod reader;
