//! Answers that are the value of a global variable: `SELECT @@GLOBAL.read_only`, which MediaWiki asks on each page.
//!
//! No change stream tells of a changed variable. The catalogue service reads some of them every 250 ms; a change flushes the cache, and hits count their
//! age from the last reading. This alone does not suffice: a variable that is set and reset between two readings seems unchanged, and an
//! answer from between them would stay. So an answer is cached only if it is the value that was read last: then it is as current as that reading,
//! and as each later one that finds the same value.

use freshet_wire::mysql::rows::{Field, Rows};

use crate::mysql::session::Session;
use crate::mysql::session::answer::Fill;

impl Session {
    /// Whether an answer may be cached, as far as global variables are concerned. If it shows a newer value than the catalogue, the session is served
    /// from the cache only behind the next reading, so that it does not see the old value again.
    pub(crate) fn confirm_polled(&mut self, fill: &Fill) -> bool {
        let Some(name) = fill.stage.source.query.template.polled() else { return true };
        let shared = self.shared.clone();
        let catalog = shared.catalog.load();
        let known = catalog.polled.iter().find(|[polled, _]| **polled == *name).map(|[_, value]| value.as_bytes());
        let answer = Rows::of(&fill.stage.frames, self.capabilities(), fill.stage.answer.form).ok();
        let values = answer.and_then(|answer| match answer.packets() {
            [row] => answer.values(row).ok(),
            _ => None,
        });
        match (values.as_deref(), known) {
            (Some([Field::Text(value)]), Some(known)) if **value == *known => true,
            (Some([_]), Some(_)) => {
                let now = self.now();
                self.watermark.note_definition(now);
                shared.want_catalog();
                false
            }
            // It cannot be read.
            _ => false,
        }
    }
}
