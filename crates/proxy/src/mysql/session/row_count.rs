//! ROW_COUNT() of the server's last statement, as far as its answer tells.

use freshet_wire::mysql::command as code;
use freshet_wire::mysql::response::Done;

/// ROW_COUNT().
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RowCount {
    /// 0.
    #[default]
    Zero,
    /// -1: the statement had a result set, or failed.
    Rows,
    /// More, or not known.
    Other,
}

impl RowCount {
    /// Behind a statement.
    pub(super) fn behind(done: &Done) -> Self {
        match (done.results, done.result_sets) {
            _ if done.error.is_some() => Self::Rows,
            (1, 1) => Self::Rows,
            (1, 0) if done.status.is_some() && done.affected_rows == 0 => Self::Zero,
            _ => Self::Other,
        }
    }

    /// Behind a command that is no statement. `before`: behind what was sent before it.
    pub(super) fn behind_command(command: u8, done: &Done, before: Self) -> Self {
        match command {
            _ if done.error.is_some() => Self::Rows,
            code::STATISTICS => before,
            code::FIELD_LIST | code::DEBUG | code::SET_OPTION | code::STMT_FETCH | code::PROCESS_INFO => Self::Rows,
            _ => Self::Zero,
        }
    }
}
