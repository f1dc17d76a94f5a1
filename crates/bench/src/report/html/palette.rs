//! The style of each target: one colour, one marker and one dash on the whole page.
//!
//! The colours are those of Okabe and Ito, which people with any colour vision can distinguish; the pale ones are darker on white. They are in the
//! style sheet. The numbers of markers and colours have no common factor, so no two of up to 56 targets have both in common.

use std::fmt::Write as _;

use super::super::text::Text;
use crate::result::Run;

const COLOURS: usize = 8;
const MARKERS: usize = 7;
const DASHES: usize = 3;

/// The marker shapes. Charts refer to them.
pub(super) const SHAPES: &str = concat!(
    r#"<svg width="0" height="0" class="shapes" aria-hidden="true"><defs>"#,
    r#"<circle id="m0" r="3.6"/><rect id="m1" x="-3.3" y="-3.3" width="6.6" height="6.6"/>"#,
    r#"<path id="m2" d="M0-4.4 4.2 3.2H-4.2z"/><path id="m3" d="M0-4.8 4.8 0 0 4.8-4.8 0z"/>"#,
    r#"<path id="m4" d="M0 4.4 4.2-3.2H-4.2z"/><path id="m5" d="M-1.4-4.4h2.8v3h3v2.8h-3v3h-2.8v-3h-3v-2.8h3z"/>"#,
    r#"<path id="m6" d="M0-4.6 1.4-1.4 4.6 0 1.4 1.4 0 4.6-1.4 1.4-4.6 0-1.4-1.4z"/></defs></svg>"#
);

/// Names of all targets of a page, in the order of their first occurrence.
#[derive(Debug)]
pub(super) struct Palette(Vec<String>);

impl Palette {
    pub(super) fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let mut names: Vec<String> = Vec::new();
        for run in runs {
            let measured = run.cells.iter().flat_map(|cell| &cell.rounds).map(|round| &round.target);
            for name in run.targets.iter().map(|target| &target.name).chain(measured) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        Self(names)
    }

    fn index(&self, name: &str) -> usize {
        self.0.iter().position(|known| known == name).unwrap_or(self.0.len())
    }

    /// CSS classes of a target's elements.
    pub(super) fn classes(&self, name: &str) -> String {
        let index = self.index(name);
        format!("t{} d{}", index % COLOURS, index / COLOURS % DASHES)
    }

    /// Name of the target's marker.
    pub(super) fn marker(&self, name: &str) -> String {
        format!("m{}", self.index(name) % MARKERS)
    }

    /// A legend with the markers and colours of these names.
    pub(super) fn legend<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> String {
        let mut text = String::from("<ul class=\"legend\">");
        for name in names {
            let _ = write!(
                text,
                "<li><svg class=\"{}\" viewBox=\"-16 -6 32 12\" width=\"32\" height=\"12\" aria-hidden=\"true\">\
                 <path class=\"l\" d=\"M-15 0H15\"/><use href=\"#{}\"/></svg>{}</li>",
                self.classes(name),
                self.marker(name),
                Text(name)
            );
        }
        text.push_str("</ul>");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_targets_look_alike() {
        let palette = Palette((0..24).map(|number| format!("target {number}")).collect());
        let look = |name: &String| (palette.classes(name), palette.marker(name));
        assert_eq!(palette.0.iter().map(look).collect::<BTreeSet<_>>().len(), 24);
        assert_eq!(palette.classes("target 9"), "t1 d1");
        assert!(palette.legend(["<b>"]).contains("&lt;b&gt;"));
    }
}
