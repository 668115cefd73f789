//! The value of gRPC metadata.

use std::error::Error;
use std::fmt;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::HeaderName;

use super::reading::SEVERAL;
use super::spelling::Spelling;
use super::{Header, KeyExtractor, KeyMissing, KeyShape};
use crate::literal::literal;
use crate::{Key, RequestView};

/// Padding may be there or not, which makes no other identity. Some readers find nothing where bits are left behind the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The value of gRPC metadata: an API key, a tenant. Like a [`Header`], but it knows gRPC's rules for names and values.
///
/// If the name ends in `-bin`, the value is decoded from base64, so that all spellings of one identity have one budget; a value
/// that is not base64 is [ambiguous](KeyMissing::ambiguous). The first of several lines counts; the lines of a class have to agree.
/// Several values in one line, and an empty line before others, are ambiguous, too.
///
/// ```
/// use tollgate::key::Metadata;
/// use tollgate::{OnMissing, Policy, Quota};
///
/// let policy = Policy::new("per-tenant", Quota::per_second(10))
///     .key(Metadata::new("tenant-id-bin"))
///     .on_missing(OnMissing::Deny);
/// ```
///
/// Any caller can send any metadata: see [`Header`].
#[derive(Clone, Debug)]
pub struct Metadata(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Ascii(Header),
    Binary {
        name: HeaderName,
        missing: KeyMissing,
    },
}

impl Metadata {
    /// The metadata of this name.
    ///
    /// # Panics
    ///
    /// While it is built, if `name` is invalid. Names from outside go through [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(name: &str) -> Self {
        literal(Self::try_new(name))
    }

    /// The metadata of this name.
    ///
    /// ```
    /// use tollgate::key::Metadata;
    ///
    /// assert!(Metadata::try_new("tenant-id").is_ok());
    /// // Names that start with `grpc-` are gRPC's own.
    /// assert!(Metadata::try_new("grpc-timeout").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `name` is invalid. Valid names have `a-z`, `0-9`, `-`, `_` and `.`; names that start with `grpc-` are gRPC's own.
    pub fn try_new(name: &str) -> Result<Self, InvalidMetadataName> {
        let invalid = || InvalidMetadataName {
            name: name.chars().take(64).collect(),
        };
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        if !name.chars().all(allowed) || name.starts_with("grpc-") {
            return Err(invalid());
        }
        let kind = if name.ends_with("-bin") {
            Kind::Binary {
                name: name.parse().map_err(|_| invalid())?,
                missing: KeyMissing::shared(format!("metadata {name}")),
            }
        } else {
            Kind::Ascii(Header::try_new(name).map_err(|_| invalid())?)
        };
        Ok(Self(kind))
    }
}

impl KeyExtractor for Metadata {
    fn extract(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        let (name, missing) = match &self.0 {
            Kind::Ascii(header) => return header.extract(request),
            Kind::Binary { name, missing } => (name, missing),
        };
        let lines = request.headers().get_all(name).into_iter();
        let mut lines = lines.map(|line| line.as_bytes().trim_ascii());
        let first = lines.next().unwrap_or_default();
        match BASE64.decode(first) {
            Ok(bytes) if !bytes.is_empty() => Ok(Key::bytes(&bytes)),
            Ok(_) if lines.all(<[u8]>::is_empty) => Err(missing.clone()),
            Ok(_) => Err(missing.clone().ambiguous(SEVERAL)),
            // Several values may stand in one line, which some readers take apart.
            Err(_) if first.contains(&b',') => Err(missing.clone().ambiguous(SEVERAL)),
            Err(_) => Err(missing.clone().ambiguous("it is not base64")),
        }
    }

    fn extract_class(&self, request: &RequestView<'_>) -> Result<Key, KeyMissing> {
        match &self.0 {
            Kind::Ascii(header) => header.extract_class(request),
            // As of a header: the lines have to agree.
            Kind::Binary { name, missing } => {
                let mut lines = request.headers().get_all(name).into_iter();
                let first = lines.next();
                match lines.any(|line| Some(line) != first) {
                    true => Err(missing.clone().ambiguous(SEVERAL)),
                    false => self.extract(request),
                }
            }
        }
    }

    fn shape(&self) -> KeyShape {
        match self.0 {
            Kind::Ascii(_) => KeyShape::Spelled(Spelling::Field),
            // Blanks are bytes like others.
            Kind::Binary { .. } => KeyShape::Bytes,
        }
    }
}

/// The error of an invalid name of gRPC metadata.
///
/// ```
/// use tollgate::key::{InvalidMetadataName, Metadata};
///
/// fn key(name: &str) -> Result<Metadata, InvalidMetadataName> {
///     Metadata::try_new(name)
/// }
///
/// assert!(key("Tenant Id").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMetadataName {
    name: String,
}

impl fmt::Display for InvalidMetadataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "metadata {:?}: invalid name; use a-z, 0-9, -, _ and ., not starting with grpc-",
            self.name
        )
    }
}

impl Error for InvalidMetadataName {}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    fn extract(name: &str, lines: &[&str]) -> Result<Key, KeyMissing> {
        let mut request = Request::new(());
        for line in lines {
            let name: HeaderName = name.parse().unwrap();
            request
                .headers_mut()
                .append(name, HeaderValue::from_str(line).unwrap());
        }
        Metadata::new(name).extract(&RequestView::of(&request))
    }

    #[test]
    fn binary_metadata_is_the_bytes_that_it_stands_for() {
        let expected = Ok(Key::bytes(b"\xff\xfe\xfd\x00"));
        for lines in [
            &["//79AA=="][..],
            &["//79AA"],
            &[" //79AA== "],
            &["//79AA", "AAAA"],
        ] {
            assert_eq!(extract("tenant-bin", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn of_several_lines_that_differ_none_is_a_class() {
        let class = |lines: &[&'static str]| {
            let mut request = Request::new(());
            for line in lines {
                let line = HeaderValue::from_static(line);
                request.headers_mut().append("class-bin", line);
            }
            Metadata::new("class-bin").extract_class(&RequestView::of(&request))
        };
        // `critical` and `batch`.
        assert_eq!(class(&["Y3JpdGljYWw"]), Ok(Key::from("critical")));
        assert!(class(&["Y3JpdGljYWw", "Y3JpdGljYWw"]).is_ok());
        for lines in [["Y3JpdGljYWw", "YmF0Y2g"], ["YmF0Y2g", "Y3JpdGljYWw"]] {
            assert!(class(&lines).unwrap_err().is_ambiguous(), "{lines:?}");
        }
    }

    #[test]
    fn binary_metadata_that_is_empty_is_missing_and_what_is_no_base64_is_ambiguous() {
        for (lines, is_ambiguous) in [
            (&[][..], false),
            (&[""], false),
            (&[" , "], true),
            (&["//79AA,AAAA"], true),
            (&[",//79AA"], true),
            (&["", "//79AA"], true),
            (&["?"], true),
            (&["A"], true),
            (&["//79AA==="], true),
        ] {
            let missing = extract("tenant-bin", lines).unwrap_err();
            assert_eq!(missing.what(), "metadata tenant-bin", "{lines:?}");
            assert_eq!(missing.is_ambiguous(), is_ambiguous, "{lines:?}");
        }
    }

    #[test]
    fn text_metadata_is_what_it_is() {
        assert_eq!(
            extract("tenant", &["//79AA=="]),
            Ok(Key::bytes(b"//79AA=="))
        );
        assert_eq!(extract("tenant", &[" a "]), Ok(Key::from("a")));
        assert!(extract("tenant", &[""]).is_err());
    }

    #[test]
    fn names_that_grpc_could_not_carry_are_refused() {
        for name in [
            "",
            "tenänt",
            "Tenant",
            "ten ant",
            "grpc-timeout",
            "a/b",
            "a:b",
        ] {
            let error = Metadata::try_new(name).unwrap_err().to_string();
            assert!(error.contains("invalid name"), "{name:?}: {error}");
        }
    }

    #[test]
    #[should_panic(expected = "metadata \"tenänt\": invalid name")]
    fn a_wrong_literal_is_refused_while_it_is_built() {
        drop(Metadata::new("tenänt"));
    }
}
