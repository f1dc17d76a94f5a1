//! What a statement says of its own caching in a comment: `/* freshet: ttl=10s */`.
//!
//! The comments around a text are no part of it ([`freshet_sql::without_outer_comments`]), but a hint must be: results of statements with different hints
//! are different entries. So a text is known with its hint behind it. There it changes no literal's place. Sent in this form, `… /* freshet: ttl=10s */` at the end,
//! the text is known as it was sent; in any other, a copy is made.

use std::borrow::Cow;

use freshet_types::Nanos;
use freshet_units::Span;
use memchr::memmem;

use crate::rules::text::{Caching, Way, is_ttl};

const NAME: &[u8] = b"freshet:";
const BEGIN: &[u8] = b" /* freshet: ";
const END: &[u8] = b" */";

/// A statement's hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) cache: Caching,
    pub(crate) ttl: Option<Nanos>,
    pub(crate) route: Option<Way>,
}

impl Hint {
    /// The hint behind a text that is known by it.
    pub(crate) fn behind(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(END)?;
        let at = memmem::rfind(text, BEGIN)?;
        Self::parse(text.get(at + BEGIN.len()..)?)
    }

    /// `ttl=10s`, `cache=always`, `primary`, or several of them, with commas or blanks between them. None: anything else.
    fn parse(body: &[u8]) -> Option<Self> {
        let (mut hint, mut has_cache) = (Self::default(), false);
        let items = std::str::from_utf8(body).ok()?.split([',', ' ', '\t']).filter(|item| !item.is_empty());
        for item in items {
            let (key, value) = item.split_once('=').unwrap_or(("route", item));
            match (key, value) {
                ("route", name) if hint.route.is_none() => hint.route = Some(Way::named(name)?),
                ("ttl", span) if hint.ttl.is_none() => {
                    let Span(span) = span.parse().ok()?;
                    hint.ttl = Some(Nanos::try_from(span.as_nanos()).ok().filter(|ttl| is_ttl(*ttl))?);
                }
                ("cache", name) if !has_cache => (hint.cache, has_cache) = (Caching::named(name)?, true),
                _ => return None,
            }
        }
        let is_contradictory = hint.cache == Caching::Never && hint.ttl.is_some();
        let is_any = has_cache || hint.ttl.is_some() || hint.route.is_some();
        Some(hint).filter(|_| is_any && !is_contradictory)
    }
}

/// The text by which a statement is known. `bare` is the part of it that has no comments around it. None: it has a hint that is wrong.
pub(super) fn known_text<'t>(sent: &'t [u8], bare: &'t [u8]) -> Option<Cow<'t, [u8]>> {
    let Some((before, behind)) = around(sent, bare) else { return Some(Cow::Borrowed(bare)) };
    let Some(body) = body(behind).or_else(|| body(before)) else { return Some(Cow::Borrowed(bare)) };
    Hint::parse(body)?;
    let is_in_form =
        behind.strip_prefix(BEGIN).and_then(|rest| rest.strip_prefix(body)).map(|rest| rest.starts_with(END));
    if is_in_form == Some(true) {
        let start = before.len();
        return Some(Cow::Borrowed(sent.get(start..start + bare.len() + BEGIN.len() + body.len() + END.len())?));
    }
    Some(Cow::Owned([bare, BEGIN, body, END].concat()))
}

/// What is before a part of a text, and behind it.
fn around<'t>(text: &'t [u8], part: &[u8]) -> Option<(&'t [u8], &'t [u8])> {
    let start = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some((text.get(..start)?, text.get(start + part.len()..)?))
}

/// The contents of the last comment that is a hint.
fn body(comments: &[u8]) -> Option<&[u8]> {
    let is_begun = |at: &usize| comments.get(..*at).is_some_and(|before| before.trim_ascii_end().ends_with(b"/*"));
    let at = memmem::rfind_iter(comments, NAME).find(is_begun)?;
    let inside = comments.get(at + NAME.len()..)?;
    Some(inside.get(..memmem::find(inside, b"*/")?)?.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn known(text: &str) -> Option<Cow<'_, [u8]>> {
        known_text(text.as_bytes(), freshet_sql::without_outer_comments(text.as_bytes()))
    }

    #[test]
    fn hints_are_read() {
        let hint = |text: &str| Hint::parse(text.as_bytes());
        let ttl = |ttl| Some(Hint { ttl: Some(ttl), ..Hint::default() });
        assert_eq!(hint("ttl=10s"), ttl(10 * SECOND));
        let both = Hint { cache: Caching::Always, ttl: Some(SECOND), ..Hint::default() };
        assert_eq!((hint("cache=always, ttl=1s"), hint("ttl=1s cache=always")), (Some(both), Some(both)));
        assert_eq!(hint("cache=never"), Some(Hint { cache: Caching::Never, ..Hint::default() }));
        let route = |cache, way| Some(Hint { cache, route: Some(way), ..Hint::default() });
        assert_eq!(
            (hint("primary"), hint("route=primary")),
            (route(Caching::Auto, Way::Primary), route(Caching::Auto, Way::Primary))
        );
        assert_eq!(hint("cache=never, replica"), route(Caching::Never, Way::Replica));
        for wrong in [
            "",
            "ttl",
            "ttl=1",
            "ttl=1ms",
            "ttl=1s ttl=2s",
            "cache=no",
            "cache=never ttl=1s",
            "standby",
            "primary replica",
            "TTL=1s",
            "ttl=1s x=1",
            "\u{e9}=1",
        ] {
            assert_eq!(hint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_text_is_known_with_its_hint_behind_it() {
        let form = "select 1 /* freshet: ttl=10s */";
        for sent in [
            form,
            "select 1 /* freshet: ttl=10s */;",
            "select 1 /*freshet:ttl=10s*/",
            "/* freshet: ttl=10s */ select 1",
            "/* a */ select 1 /* freshet: ttl=10s */ /* traceparent='00' */",
            "/* freshet: cache=never */ select 1 /*freshet:  ttl=10s  */",
        ] {
            let known = known(sent).expect(sent);
            assert_eq!(String::from_utf8_lossy(&known), form, "{sent}");
            assert_eq!(Hint::behind(&known), Some(Hint { ttl: Some(10 * SECOND), ..Hint::default() }));
        }
        assert!(matches!(known(form), Some(Cow::Borrowed(_))));
        assert!(matches!(known("/* a */ select 1 /* freshet: ttl=10s */ /* b */"), Some(Cow::Borrowed(_))));
    }

    #[test]
    fn other_comments_are_no_hints() {
        for sent in ["select 1", "select 1 /* a */", "/* not freshet: ttl=10s */ select 1"] {
            let known = known(sent).expect(sent);
            assert_eq!(Hint::behind(&known), None, "{sent}");
        }
        assert_eq!(known("select 1 /* freshet: ttl=soon */"), None);
        assert_eq!(Hint::behind(b"select 1 /* freshet: ttl=soon */"), None);
    }
}
