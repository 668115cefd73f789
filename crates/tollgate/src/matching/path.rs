//! The forms of a path that are one path.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};

/// What stays encoded: what is no visible character, and what would be read as something else.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'/').add(b'%');

/// The path of a request, each character in its one form.
#[derive(Debug)]
pub(crate) struct PathForms<'a> {
    as_sent: Cow<'a, str>,
    /// Without slashes that are doubled or at the end, if there were any.
    tidied: Option<String>,
}

impl<'a> PathForms<'a> {
    pub(crate) fn of(path: &'a str, ignore_case: bool) -> Self {
        if is_plain(path, ignore_case) {
            return Self {
                as_sent: Cow::Borrowed(path),
                tidied: None,
            };
        }
        let as_sent = canonical(path, ignore_case);
        let untidy = as_sent.len() > 1 && (as_sent.ends_with('/') || as_sent.contains("//"));
        Self {
            tidied: untidy.then(|| tidy(&as_sent)),
            as_sent: Cow::Owned(as_sent),
        }
    }

    /// The path with its slashes as they came, and without those that are too many.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        [Some(&*self.as_sent), self.tidied.as_deref()]
            .into_iter()
            .flatten()
    }

    /// The path with its slashes as they came.
    pub(crate) fn as_sent(&self) -> &str {
        &self.as_sent
    }

    /// The only form, if there is but one.
    pub(super) fn only(&self) -> Option<&str> {
        match self.tidied {
            None => Some(&self.as_sent),
            Some(_) => None,
        }
    }
}

/// What a byte of a path may need.
const DECODING: u8 = 1;
const LOWERING: u8 = 2;
const SLASH: u8 = 4;

const NEEDS: [u8; 256] = {
    let mut needs = [DECODING; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        needs[byte as usize] = match byte {
            b'%' => DECODING,
            b'/' => SLASH,
            b'A'..=b'Z' => LOWERING,
            _ => 0,
        };
        byte += 1;
    }
    needs
};

/// Whether the path has but one form, and this is it. Nearly every path has, which a look into a table for each byte tells.
fn is_plain(path: &str, ignore_case: bool) -> bool {
    let unwanted = if ignore_case {
        DECODING | LOWERING
    } else {
        DECODING
    };
    let (mut found, mut previous) = (0, 0);
    for byte in path.bytes() {
        let needs = NEEDS[usize::from(byte)];
        found |= (needs & unwanted) | (needs & previous & SLASH);
        previous = needs;
    }
    found == 0 && (previous != SLASH || path.len() == 1)
}

/// Every character in one form, slashes as they came.
pub(super) fn canonical(path: &str, ignore_case: bool) -> String {
    let mut canonical = String::with_capacity(path.len() + 16);
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            canonical.push('/');
        }
        let mut decoded: Vec<u8> = percent_decode_str(segment).collect();
        if ignore_case {
            decoded.make_ascii_lowercase();
        }
        canonical.extend(percent_encode(&decoded, ENCODED));
    }
    canonical
}

fn tidy(path: &str) -> String {
    let mut tidy = String::with_capacity(path.len());
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        tidy.push('/');
        tidy.push_str(segment);
    }
    if tidy.is_empty() {
        tidy.push('/');
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_variants_of_one_path_as_several_budgets() {
        let cases = [
            ("/login", "/login"),
            ("/log%69n", "/login"),
            ("/%6c%6F%67in", "/login"),
            ("//login", "/login"),
            ("/login/", "/login"),
            ("///login//", "/login"),
            ("/caf\u{e9}", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/a%20b", "/a%20b"),
            ("/a%7Eb", "/a~b"),
            ("/", "/"),
            ("//", "/"),
        ];
        for (path, expected) in cases {
            let forms = PathForms::of(path, false);
            assert_eq!(forms.iter().last(), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_is_encoded_to_be_something_else_stays_something_else() {
        let last = |path| PathForms::of(path, false).iter().last().map(str::to_owned);
        for (one, other) in [
            ("/a%2Fb", "/a/b"),
            ("/a%252Fb", "/a%2Fb"),
            ("/a%2561", "/a%61"),
            ("/a/..", "/"),
            ("/a", "/A"),
        ] {
            assert_ne!(last(one), last(other), "{one} {other}");
        }
        assert_eq!(last("/a%2fb"), last("/a%2Fb"));
        // A percent sign that encodes nothing is itself.
        assert_eq!(last("/100%"), last("/100%25"));
        assert_eq!(last("/%zz"), last("/%25zz"));
    }

    #[test]
    fn case_is_ignored_where_asked() {
        let forms = PathForms::of("/LOGIN/%41%C3%89", true);
        assert_eq!(forms.only(), Some("/login/a%C3%89"));
    }
}
