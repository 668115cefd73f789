//! The `Forwarded` field (RFC 7239), read from the right.
//!
//! A proxy appends to the field that the caller sent, and the caller may have sent an opening quote. Read from the
//! left, that quote would swallow what the proxy wrote; read from the right, everything behind the last comma is the proxy's.

use std::borrow::Cow;
use std::net::IpAddr;

use super::node;

/// The addresses of a line, the last one first; nothing for an element that has none.
///
/// Empty elements are ignored, as of every list in HTTP (RFC 9110, 5.6.1): a proxy that does not know its peer writes
/// `for=unknown`.
pub(super) fn list_from_the_right(line: &[u8]) -> impl Iterator<Item = Option<IpAddr>> {
    elements_from_the_right(line)
        .filter(|element| !element.trim_ascii().is_empty())
        .map(|element| forwarded_for(element).and_then(|value| node::address(&value)))
}

fn elements_from_the_right(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut left = Some(line);
    std::iter::from_fn(move || {
        let line = left?;
        let Some(comma) = last_comma(line) else {
            return left.take();
        };
        left = line.get(..comma);
        line.get(comma + 1..)
    })
}

/// The last comma that is not within quotes, as seen from the end.
fn last_comma(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut bytes = line.iter().enumerate().rev();
    let found = bytes.find(|(at, byte)| {
        match byte {
            b'"' if quoted => quoted = is_escaped(line, *at),
            b'"' => quoted = true,
            b',' => return !quoted,
            _ => {}
        }
        false
    });
    found.map(|(at, _)| at)
}

/// True if the byte stands behind an odd number of backslashes.
fn is_escaped(line: &[u8], at: usize) -> bool {
    let before = line.get(..at).unwrap_or_default();
    let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\');
    backslashes.count() % 2 == 1
}

/// The value of the one `for` of an element; nothing if the element is not well-formed to its end.
fn forwarded_for(element: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut found = None;
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(b";") {
            rest = behind.trim_ascii_start();
            continue;
        }
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (rest.get(..equals)?, rest.get(equals + 1..)?);
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        let (value, behind) = match value.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted)?,
            None => plain(value)?,
        };
        if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
            return None;
        }
        rest = behind.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b";") {
            return None;
        }
    }
    found
}

/// A value without quotes. RFC 7239 has colons and brackets in quotes only; many proxies do not.
fn plain(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = text.iter().position(|byte| b"; \t".contains(byte));
    let (value, behind) = text.split_at_checked(end.unwrap_or(text.len()))?;
    let allowed = |byte: u8| is_token(byte) || b":[]".contains(&byte);
    let fits = !value.is_empty() && value.iter().all(|byte| allowed(*byte));
    fits.then_some((Cow::Borrowed(value), behind))
}

/// The text up to the closing quote, and what is behind it.
fn unquote(text: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let end = (0..text.len()).find(|at| text.get(*at) == Some(&b'"') && !is_escaped(text, *at))?;
    let (value, behind) = (text.get(..end)?, text.get(end + 1..)?);
    if !value.contains(&b'\\') {
        return Some((Cow::Borrowed(value), behind));
    }
    let mut plain = Vec::with_capacity(value.len());
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\\' {
            *bytes.next()?
        } else {
            *byte
        });
    }
    Some((Cow::Owned(plain), behind))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(line: &str) -> Vec<Option<IpAddr>> {
        list_from_the_right(line.as_bytes()).collect()
    }

    fn one(text: &str) -> Option<IpAddr> {
        text.parse().ok()
    }

    #[test]
    fn elements_are_read_in_all_their_forms() {
        let cases = [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=\"[2001:db8::17]:4711\"", "2001:db8::17"),
            ("for=192.0.2.1;proto=http;by=203.0.113.43", "192.0.2.1"),
            ("by=203.0.113.43; FOR=192.0.2.1 ;", "192.0.2.1"),
            (";;for=192.0.2.1", "192.0.2.1"),
            ("for=\"192.0.2.1:80\"", "192.0.2.1"),
            ("for=192.0.2.1:80", "192.0.2.1"),
            ("for=[2001:db8::1]", "2001:db8::1"),
            ("for=\"\\1\\92.0.2.1\"", "192.0.2.1"),
            ("host=\"a,b;c\\\"d\";for=192.0.2.1", "192.0.2.1"),
        ];
        for (line, expected) in cases {
            assert_eq!(list(line), [one(expected)], "{line}");
        }
    }

    #[test]
    fn what_names_no_address_or_is_not_well_formed_is_an_element_without_one() {
        let none = [
            ";",
            "for=unknown",
            "for=_hidden",
            "for=",
            "for",
            "by=192.0.2.1",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1 x",
            "for=192.0.2.1 by=x",
            "for=\"192.0.2.1\"by=x",
            "for = 192.0.2.1",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "for=\"192.0.2.1\\\"",
            "=192.0.2.1",
            "for=192.0.2.1;x",
        ];
        for line in none {
            assert_eq!(list(line), [None], "{line}");
        }
    }

    #[test]
    fn elements_come_last_first_and_quotes_may_hold_commas() {
        assert_eq!(
            list("for=192.0.2.1, for=\"[2001:db8::1]\";host=\"a,b\" ,for=unknown"),
            [None, one("2001:db8::1"), one("192.0.2.1")]
        );
    }

    #[test]
    fn empty_elements_are_none_as_of_every_list_in_http() {
        for line in ["", " ", ",", ",, \t,"] {
            assert_eq!(list(line), [], "{line:?}");
        }
        let lines = ["for=192.0.2.1,", ",for=192.0.2.1", " , for=192.0.2.1 ,\t, "];
        for line in lines {
            assert_eq!(list(line), [one("192.0.2.1")], "{line:?}");
        }
    }

    #[test]
    fn ghsa_38x9_25wx_7fg2_a_quote_from_outside_swallows_nothing_that_a_proxy_appended() {
        let outside = [
            "for=\"",
            "for=6.6.6.6;x=\"",
            "for=6.6.6.6;x=\"\\",
            "for=\"6.6.6.6\\\"",
            "\"\"\"",
            "for=6.6.6.6, for=\"a",
        ];
        let appended = [
            ("for=192.0.2.1", "192.0.2.1"),
            ("for=\"[2001:db8::1]:80\"", "2001:db8::1"),
            ("for=192.0.2.1;host=\"a,b\\\"\"", "192.0.2.1"),
        ];
        for outside in outside {
            for (appended, expected) in appended {
                let line = format!("{outside}, {appended}");
                assert_eq!(list(&line).first(), Some(&one(expected)), "{line}");
            }
        }
    }
}
