//! A table of texts, for the terminal or as Markdown.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::text::Text;

/// Rows under a header. The first columns are names, the others are figures.
#[derive(Debug, Default)]
pub(super) struct Grid {
    header: Vec<String>,
    /// Number of columns that are aligned left.
    names: usize,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Columns: names, then figures. A header contains the unit. A newline in it breaks the line on the terminal only.
    pub(super) fn new<'a>(names: &[&'a str], figures: impl IntoIterator<Item = &'a str>) -> Self {
        let header = names.iter().copied().chain(figures).map(str::to_owned).collect();
        Self { header, names: names.len(), rows: Vec::new() }
    }

    pub(super) fn row(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn terminal(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// A table in an element of its own that scrolls sideways if the table is wide.
    pub(super) fn html(&self) -> String {
        let line = |cells: &[String], name: &str| {
            let mut text = String::from("<tr>");
            for (column, cell) in cells.iter().enumerate() {
                let class = if column < self.names { "" } else { " class=\"n\"" };
                let _ = write!(text, "<{name}{class}>{}</{name}>", Text(&cell.replace("-\n", "").replace('\n', " ")));
            }
            text + "</tr>"
        };
        let rows: String = self.rows.iter().map(|row| line(row, "td")).collect();
        let header = line(&self.header, "th");
        format!(
            "<div class=\"wide\" tabindex=\"0\"><table><thead>{header}</thead><tbody>{rows}</tbody></table></div>\n"
        )
    }

    pub(super) fn markdown(&self) -> String {
        let cell = |text: &String| text.replace("-\n", "").replace('\n', " ").replace('|', "\\|");
        let line = |cells: &[String]| format!("| {} |\n", cells.iter().map(cell).collect::<Vec<_>>().join(" | "));
        let mut text = line(&self.header);
        for column in 0..self.header.len() {
            let _ = write!(text, "|{}", if column < self.names { "---" } else { "---:" });
        }
        text.push_str("|\n");
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        text
    }
}
