//! Escaped text for HTML.

use std::fmt;

/// A text that is escaped for an element, or for an attribute within double quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            let (plain, special) = rest.split_at(at);
            formatter.write_str(plain)?;
            formatter.write_str(match special.as_bytes()[0] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &special[1..];
        }
        formatter.write_str(rest)
    }
}

/// JSON that cannot end its script element. `<` can occur only inside its strings, where it is escaped.
pub(super) fn embedded(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        assert_eq!(Text("a<b>&\"c'é").to_string(), "a&lt;b&gt;&amp;&quot;c&#39;é");
        assert_eq!(Text("").to_string(), "");
        assert_eq!(embedded(r#"{"a":"</script>"}"#), r#"{"a":"\u003c/script>"}"#);
    }
}
