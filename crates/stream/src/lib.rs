//! Follows a logical slot and turns it into committed changes.
