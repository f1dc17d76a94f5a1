//! Comments, executable comments and hints in a text of which neither the server's version nor its kind is known.
//!
//! The code of an executable comment that some servers run counts as code. For the others its end must be the same, and the words around it.

use freshet_types::Temporaries;

use super::{Behind, CodeScanner, Executable, Gap, State};
use crate::lex::mysql::{Quoting, RUN_BY_ALL};

impl CodeScanner {
    pub(super) fn in_comment(&mut self, byte: u8) {
        let comment = State::Comment(byte == b'*');
        self.state = match self.state {
            State::Opening => match byte {
                b'!' => State::Version(0, 0),
                b'M' => State::OpeningM,
                b'+' => State::Hint(false),
                _ => comment,
            },
            State::OpeningM if byte == b'!' => {
                self.executable = Executable::RunBySome; // code of MariaDB, and a comment of MySQL
                State::Version(0, 0)
            }
            State::Version(digits @ 0..=5, version) if byte.is_ascii_digit() => {
                State::Version(digits + 1, version * 10 + u32::from(byte - b'0'))
            }
            State::Version(digits, version) if is_run_by_none(digits, version) => {
                self.executable = Executable::No;
                State::Skipped(byte)
            }
            State::Skipped(before) if (before, byte) != (b'*', b'/') => {
                if (before, byte) == (b'/', b'*') {
                    // A comment inside, behind which the executable comment continues.
                    (self.code.own, self.code.several) = (Temporaries::Any, true);
                }
                State::Skipped(byte)
            }
            State::Version(digits, version) => {
                if digits >= 5 && version > RUN_BY_ALL {
                    self.executable = Executable::RunBySome;
                } else if self.executable == Executable::No {
                    self.executable = Executable::RunByAll;
                }
                // Servers that read five digits see a name that begins with the sixth.
                self.code.has_odd_names |= digits > 5;
                if self.executable == Executable::RunBySome {
                    self.at_unsure();
                }
                return self.again(byte);
            }
            State::Skipped(_) | State::Comment(true) | State::Hint(true) if byte == b'/' => State::Code,
            State::Hint(_) if matches!(byte, b'\'' | b'"' | b'`') => State::HintText(byte, 0),
            State::Hint(_) => State::Hint(byte == b'*'),
            State::HintText(quote, _) if byte == quote => State::Hint(false),
            State::HintText(quote, before) => {
                if byte == b'\\' || (before, byte) == (b'*', b'/') {
                    self.code.own = Temporaries::Any; // the hint may end here or not
                }
                State::HintText(quote, byte)
            }
            _ => comment,
        };
    }

    /// Whether a server that does not run the executable comment may take its end for another than one that does.
    pub(super) fn may_hide_end(&self, byte: u8) -> bool {
        match self.state {
            State::Text(_) | State::Name(_) => matches!(byte, b'*' | b'\\'),
            State::Dashes | State::Line => true,
            State::Slash => byte == b'*',
            State::Code => byte == b'#' && self.quoting != Quoting::Unknown,
            _ => false,
        }
    }

    /// At the beginning or end of code that some servers run: it separates words for the others, too.
    pub(super) fn at_unsure(&mut self) {
        self.end_word();
        if self.naming.is_some() || self.gap == Gap::Point {
            self.code.own = Temporaries::Any;
        }
        self.behind = Behind::Other;
        // The first word may be another.
        self.code.several |= self.code.first.is_empty();
    }
}

/// Executable comments that no server runs, as in dumps.
fn is_run_by_none(digits: u8, version: u32) -> bool {
    (digits == 5 && version > 99_000) || (digits == 6 && version > 990_000)
}
