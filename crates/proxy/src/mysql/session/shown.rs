//! What the rows of an answer tell of the rows that matter to it.

use freshet_sql::{Bound, End, Field, Furthest, Keys, Lineage, Top};
use freshet_types::Tag;
use freshet_wire::mysql::capabilities::Capabilities;
use freshet_wire::mysql::result::Form;
use freshet_wire::mysql::rows::{self, Rows};

/// What they tell, and how they are written.
#[derive(Debug)]
pub(crate) struct Shown {
    top: Option<Top>,
    keys: Option<Keys>,
    page: Option<Furthest>,
    form: Form,
}

impl Shown {
    /// Takes from what an execution depends on what its answer will tell.
    pub(crate) fn of(bound: &mut Bound, form: Form) -> Option<Box<Self>> {
        let (top, keys, page) = (bound.top.take(), bound.keys.take(), bound.page.take());
        (top.is_some() || keys.is_some()).then(|| Box::new(Self { top, keys, page, form }))
    }

    /// The late tags of a whole answer, which may bound the rows whose keys are to be read. What cannot be read is told as a row of
    /// no values.
    pub(crate) fn tags(
        &self,
        frames: &[u8],
        capabilities: Capabilities,
        mut lineage: Option<&mut Lineage>,
    ) -> Vec<Tag> {
        let answer = Rows::of(frames, capabilities, self.form).ok();
        let packets: &[&[u8]] = answer.as_ref().map_or(&[&[]], Rows::packets);
        let values = |row| answer.as_ref().and_then(|answer| answer.values(row).ok()).unwrap_or_default();
        // Of others than the last one nothing is asked unless all are.
        let by_all = self.keys.is_some() || self.page.is_some();
        let unread = if by_all { 0 } else { packets.len().saturating_sub(1) };
        let rows: Vec<Vec<rows::Field<'_>>> =
            packets.iter().enumerate().map(|(at, row)| if at < unread { Vec::new() } else { values(row) }).collect();
        let end = End::of(self.page.as_ref(), rows.iter(), |row| fields(row));
        if let Some(lineage) = lineage.as_deref_mut() {
            lineage.bound_by_last(end.rows, &end.last);
        }
        let by_last = self.top.iter().flat_map(|top| top.late_tags(end.rows, &end.last));
        let by_all = self
            .keys
            .iter()
            .flat_map(|keys| keys.late_tags(rows.iter(), |row| fields(row), &end, lineage.as_deref_mut()));
        by_last.chain(by_all).collect()
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
