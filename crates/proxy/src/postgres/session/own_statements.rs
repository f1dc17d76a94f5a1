//! Freshet's own prepared statements on a server connection, as far as they are known ([`super::own`]).

/// Whether the question of what lives on a connection is prepared there: only where sessions share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rest {
    #[default]
    Unprepared,
    Prepared,
}

/// The statements that are prepared there.
#[expect(clippy::struct_excessive_bools, reason = "one for each statement")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnStatements {
    pub(super) proof: bool,
    /// See [`crate::postgres::pooling::rest_question`].
    pub(super) rest: Rest,
    pub(super) end: bool,
    pub(super) context: bool,
    pub(super) end_and_context: bool,
    /// The number of settings that the last two name.
    pub(super) named: usize,
}

impl OwnStatements {
    /// On a connection where only the question of what lives there has been asked.
    pub(crate) fn asked_for_rest() -> Self {
        Self { rest: Rest::Prepared, ..Self::default() }
    }

    /// Whether the server may not have the prepared log-end probe.
    pub(crate) fn forget_end(&mut self) {
        self.end = false;
    }
}
