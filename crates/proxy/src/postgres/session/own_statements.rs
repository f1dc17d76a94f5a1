//! Freshet's own prepared statements on a server connection, as far as they are known ([`super::own`]).

/// The statements that are prepared there.
#[expect(clippy::struct_excessive_bools, reason = "one for each statement")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnStatements {
    pub(super) proof: bool,
    pub(super) end: bool,
    pub(super) context: bool,
    pub(super) end_and_context: bool,
    /// The number of settings that the last two name.
    pub(super) named: usize,
}

impl OwnStatements {
    /// Whether the server may not have the prepared log-end probe.
    pub(crate) fn forget_end(&mut self) {
        self.end = false;
    }
}
