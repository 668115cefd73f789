//! Texts of others in a page. A caller chooses its name, and a name may hold anything.

/// The text as HTML and SVG show it: no element, no attribute, no control character, and no turn of the direction of writing.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            character => match crate::figures::is_shown(character) {
                true => escaped.push(character),
                false => escaped.push(char::REPLACEMENT_CHARACTER),
            },
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_more_than_text() {
        for (text, escaped) in [
            (
                "<script>alert('x')</script>",
                "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;",
            ),
            ("\" onload=\"a&b", "&quot; onload=&quot;a&amp;b"),
            ("a\u{1b}[31m\u{0}b", "a\u{fffd}[31m\u{fffd}b"),
            ("a\u{202e}b\u{2066}\u{fffe}", "a\u{fffd}b\u{fffd}\u{fffd}"),
            ("grüße 名", "grüße 名"),
        ] {
            assert_eq!(escape(text), escaped);
        }
    }
}
