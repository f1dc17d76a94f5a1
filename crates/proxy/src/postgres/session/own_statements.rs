//! Freshet's own prepared statements on a connection to the server, as far as they are known ([`super::own`]).

/// Those that are prepared there.
#[expect(clippy::struct_excessive_bools, reason = "one for each statement")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnStatements {
    pub(super) proof: bool,
    pub(super) end: bool,
    pub(super) context: bool,
    pub(super) end_and_context: bool,
    /// How many settings the last two ask for by name.
    pub(super) named: usize,
}

impl OwnStatements {
    /// It is not certain that the upstream knows the question for the log end.
    pub(crate) fn forget_end(&mut self) {
        self.end = false;
    }
}
