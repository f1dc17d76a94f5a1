//! The dependencies that the rows of an answer show, and the formats of these rows.

use freshet_sql::{Bound, Field, JoinKeys};
use freshet_types::Tag;
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::result::Form;
use freshet_wire::mysql::rows::{self, Rows};

use crate::session::answer_tags::AnswerTags;

/// These dependencies, and the formats.
#[derive(Debug)]
pub(crate) struct Shown {
    tags: AnswerTags,
    form: Form,
}

impl Shown {
    /// Takes from the dependencies of an execution those that its answer will show.
    pub(crate) fn of(bound: &mut Bound, form: Form) -> Option<Box<Self>> {
        AnswerTags::of(bound).map(|tags| Box::new(Self { tags, form }))
    }

    /// The deferred tags of a whole answer, which may also bound the rows whose keys are read. A row that cannot be parsed counts as a row without
    /// values.
    pub(crate) fn tags(&self, frames: &[u8], capabilities: Capabilities, join_keys: Option<&mut JoinKeys>) -> Vec<Tag> {
        let answer = Rows::of(frames, capabilities, self.form).ok();
        let packets: &[&[u8]] = answer.as_ref().map_or(&[&[]], Rows::packets);
        let values = |row| answer.as_ref().and_then(|answer| answer.values(row).ok()).unwrap_or_default();
        let unread = if self.tags.reads_all_rows() { 0 } else { packets.len().saturating_sub(1) };
        let rows: Vec<Vec<rows::Field<'_>>> =
            packets.iter().enumerate().map(|(at, row)| if at < unread { Vec::new() } else { values(row) }).collect();
        self.tags.tags(|| rows.iter(), |row| fields(row), join_keys)
    }
}

pub(crate) fn fields<'a>(row: &'a [rows::Field<'_>]) -> Vec<Field<'a>> {
    let field = |value: &'a rows::Field<'_>| match value {
        rows::Field::Null => Field::Null,
        rows::Field::Text(text) => Field::Text(text),
        rows::Field::Other => Field::Other,
    };
    row.iter().map(field).collect()
}
