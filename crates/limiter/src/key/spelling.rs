//! The spellings of one identity, where an operator may write another one than requests have.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::typed::one_form;
use crate::matching::Pattern;
use crate::request::one_host;

/// The way in which an extractor makes one identity of several spellings. Lists, tiers and bans by hand are read in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Spelling {
    /// Numbers, UUIDs and IPv6 addresses, as typed extractors read them: `007` is `7`.
    Typed,
    /// The same, without slashes that are doubled or at an end.
    InPath {
        /// True if capital letters are small ones.
        ignores_case: bool,
    },
    /// The value of a header, with blanks around it.
    Field,
    /// A bearer token, with blanks around it.
    Token,
    /// The user of Basic authorization.
    User,
    /// Encoded with `%`, or in quotes.
    Cookie,
    /// A name without regard to capital letters.
    Name,
    /// The name of a host, with a port, capital letters or dots at its end.
    Host,
    /// A route, as axum writes it.
    Route,
    /// A method of HTTP. `HEAD` is none: it counts as `GET`.
    Method,
}

impl Spelling {
    /// The identity as requests have it, if any has it.
    pub(super) fn one_form(self, text: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Typed => one_form(text),
            Self::InPath { ignores_case } => {
                let mut value = text.to_vec();
                if ignores_case {
                    value.make_ascii_lowercase();
                }
                Some(tidy(value))
            }
            Self::Field | Self::Token => Some(text.trim_ascii().to_vec()),
            Self::Cookie => Some(plain_cookie(text).into_owned()),
            Self::Name => Some(text.to_ascii_lowercase()),
            Self::Host => Some(one_host(str::from_utf8(text).ok()?)?.into_bytes()),
            Self::User | Self::Route | Self::Method => Some(text.to_vec()),
        }
    }

    /// The reason why no request has this identity.
    pub(super) fn misfit(self, text: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(text);
        match self {
            _ if text.trim().is_empty() && self != Self::Method => {
                Some("an identity that is empty counts as none".to_owned())
            }
            Self::User => text
                .contains(':')
                .then(|| format!("its key is a user, and the name {text:?} has a colon")),
            Self::Token => text
                .trim()
                .contains([' ', '\t', ','])
                .then(|| format!("its key is a bearer token, and {text:?} is none; write what stands behind \"Bearer\"")),
            // A gateway may state any text as the value of a header.
            Self::Typed | Self::InPath { .. } | Self::Field | Self::Cookie | Self::Name => None,
            // A route that the policy's own paths do not meet is accepted: a layer may rewrite a path before axum's router reads it.
            Self::Route => (Pattern::parse(&text).err())
                .map(|why| format!("its key is a route, and {text:?} {why}")),
            Self::Host => one_host(&text)
                .is_none()
                .then(|| format!("its key is a host, and {text:?} names none")),
            // All that HTTP does not define are the empty one.
            Self::Method => (!text.is_empty() && !METHODS.contains(&&*text)).then(|| {
                format!(
                    "its key is a method, and none of its requests has {text:?}; HEAD counts as GET, and all methods that HTTP does \
                     not define count as \"\""
                )
            }),
        }
    }

    pub(super) fn ignore_path_case(&mut self) {
        if let Self::InPath { ignores_case } = self {
            *ignores_case = true;
        }
    }
}

/// The methods that are identities of their own.
pub(super) const METHODS: [&str; 8] = [
    "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE",
];

/// Slashes that are doubled or at an end make no other identity of a value, and they may be encoded themselves.
pub(super) fn tidy(mut value: Vec<u8>) -> Vec<u8> {
    let is_tidy = !value.starts_with(b"/") && !value.ends_with(b"/");
    if !is_tidy || value.windows(2).any(|pair| pair == b"//") {
        let segments = value.split(|byte| *byte == b'/');
        let segments: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
        if segments.is_empty() && !value.is_empty() {
            // Slashes alone are an identity, too.
            return b"/".to_vec();
        }
        value = segments.join(&b'/');
    }
    one_form(&value).unwrap_or(value)
}

/// The value without what some readers see and others do not. Quotes go last: they may be encoded themselves.
pub(super) fn plain_cookie(value: &[u8]) -> Cow<'_, [u8]> {
    match Cow::from(percent_decode(value)) {
        Cow::Borrowed(value) => Cow::Borrowed(unquoted(value)),
        Cow::Owned(value) => Cow::Owned(unquoted(&value).to_vec()),
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    let is_quote = |byte: &u8| *byte == b'"';
    let first = value.iter().position(|byte| !is_quote(byte));
    let last = value.iter().rposition(|byte| !is_quote(byte));
    match (first, last) {
        (Some(first), Some(last)) => value.get(first..=last).unwrap_or(value),
        // Two are an empty value. Any other number is an identity.
        _ if value == b"\"\"" => b"",
        _ => value,
    }
}
