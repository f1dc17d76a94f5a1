//! The dashboard's files, which are part of the program.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

/// One file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All of them.
pub(super) const FILES: &[File] = &[
    File { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    File { path: "/dashboard.js", kind: SCRIPT, text: include_str!("page/dashboard.js") },
    File { path: "/elements.js", kind: SCRIPT, text: include_str!("page/elements.js") },
    File { path: "/table.js", kind: SCRIPT, text: include_str!("page/table.js") },
    File { path: "/sessions.js", kind: SCRIPT, text: include_str!("page/sessions.js") },
    File { path: "/charts.js", kind: SCRIPT, text: include_str!("page/charts.js") },
    File { path: "/dashboard.css", kind: STYLE, text: include_str!("page/dashboard.css") },
    File { path: "/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    File { path: "/uPlot.js", kind: SCRIPT, text: include_str!("page/uplot/uPlot.iife.min.js") },
    File { path: "/uPlot.css", kind: STYLE, text: include_str!("page/uplot/uPlot.min.css") },
];

impl File {
    /// The page is requested each time, since a new version of the program may have another one.
    pub(super) fn answer(&self) -> impl IntoResponse + use<> {
        ([(CONTENT_TYPE, self.kind), (CACHE_CONTROL, "no-cache")], self.text)
    }
}
