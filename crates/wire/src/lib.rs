//! Sans-IO codecs: every untrusted byte is parsed here and nowhere else.
