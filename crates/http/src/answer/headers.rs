//! The headers that show the state of budgets to callers.

use std::fmt;

use smallvec::{SmallVec, smallvec};
use tollgate_limiter::transport::literal;
use tollgate_limiter::{ConfigError, Share};

/// A form of headers for the state of a budget.
///
/// | form | what is written |
/// | --- | --- |
/// | `Draft11` | `RateLimit: "api";r=49;t=30` and `RateLimit-Policy: "api";q=50;w=60` |
/// | `Draft07` | `RateLimit: limit=50, remaining=49, reset=30` and `RateLimit-Policy: 50;w=60` |
/// | `Draft06` | `RateLimit-Limit: 50`, `RateLimit-Remaining: 49`, `RateLimit-Reset: 30` |
/// | `Legacy` | `X-RateLimit-Limit: 50`, `X-RateLimit-Remaining: 49`, `X-RateLimit-Reset: 1767225630` |
///
/// Times are seconds from now, rounded up. `Legacy` has seconds since the Unix epoch, rounded up, by the backend's clock. In the
/// answer to a refused caller nothing remains, and the time is that of `Retry-After`.
///
/// Headers of another limiter further in are never overwritten. `Draft11` has lists, to which members are appended. A header of
/// any other form has one value: if one header of a form is there already, none of that form is written, since the headers would
/// mix two limiters.
///
/// ```
/// use tollgate::{HeaderForm, Quota, RateLimitLayer};
///
/// // Clients that read what GitHub writes.
/// let layer = RateLimitLayer::new(Quota::per_second(10)).headers(HeaderForm::Legacy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderForm {
    /// draft-ietf-httpapi-ratelimit-headers-11. The default: the only one in which several policies have names.
    Draft11,
    /// draft-ietf-httpapi-ratelimit-headers-07.
    Draft07,
    /// draft-ietf-httpapi-ratelimit-headers-06.
    Draft06,
    /// The headers that came before any draft.
    Legacy,
}

impl HeaderForm {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Draft11 => "draft-11",
            Self::Draft07 => "draft-07",
            Self::Draft06 => "draft-06",
            Self::Legacy => "legacy",
        }
    }

    pub(crate) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Draft11 | Self::Draft07 => &["RateLimit", "RateLimit-Policy"],
            Self::Draft06 => &["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
            Self::Legacy => &[
                "X-RateLimit-Limit",
                "X-RateLimit-Remaining",
                "X-RateLimit-Reset",
            ],
        }
    }
}

impl fmt::Display for HeaderForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The headers that show the state of budgets to callers, and the conditions for them.
///
/// By default: draft-11, of the tightest policy, on every response that is not a redirect, and not over gRPC.
///
/// ```
/// use tollgate::{HeaderForm, Quota, RateLimitHeaders, RateLimitLayer, Share};
///
/// // For clients that know nothing newer:
/// let layer = RateLimitLayer::new(Quota::per_second(10)).headers(HeaderForm::Legacy);
///
/// // While clients move from one form to another, and only to clients that have less than a fifth left:
/// let headers = RateLimitHeaders::new([HeaderForm::Draft11, HeaderForm::Legacy])
///     .when_below(Share::one_in(5));
/// let layer = RateLimitLayer::new(Quota::per_second(10)).headers(headers);
/// ```
///
/// Where one layer stands within another, the outer one writes for both, in its own form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "headers are written by the layer that they are given to"]
pub struct RateLimitHeaders {
    forms: SmallVec<[HeaderForm; 4]>,
    pub(super) all_policies: bool,
    pub(super) below: Option<Share>,
    pub(super) over_grpc: bool,
}

impl RateLimitHeaders {
    /// Headers of these forms, next to each other.
    ///
    /// # Panics
    ///
    /// While they are built, if there is no form or two of them write the same header: see [`try_new`](Self::try_new).
    #[track_caller]
    pub fn new(forms: impl IntoIterator<Item = HeaderForm>) -> Self {
        literal(Self::try_new(forms))
    }

    /// Headers of these forms, next to each other.
    ///
    /// ```
    /// use tollgate::{HeaderForm, RateLimitHeaders};
    ///
    /// // Both write `RateLimit`.
    /// assert!(RateLimitHeaders::try_new([HeaderForm::Draft11, HeaderForm::Draft07]).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no form ([`without_headers`](crate::RateLimitLayer::without_headers) is for that), or if two of them write the
    /// same header: a client could not tell draft-11 from draft-07.
    pub fn try_new(forms: impl IntoIterator<Item = HeaderForm>) -> Result<Self, ConfigError> {
        let mut all = SmallVec::new();
        for form in forms {
            let clashes = |other: &&HeaderForm| other.names()[0] == form.names()[0];
            if let Some(other) = all.iter().find(clashes) {
                return Err(ConfigError::HeaderForms {
                    forms: [other.as_str(), form.as_str()],
                    header: form.names()[0],
                });
            }
            all.push(form);
        }
        if all.is_empty() {
            return Err(ConfigError::NoHeaderForm);
        }
        Ok(Self::of(all))
    }

    fn of(forms: SmallVec<[HeaderForm; 4]>) -> Self {
        Self {
            forms,
            all_policies: false,
            below: None,
            over_grpc: false,
        }
    }

    /// Shows every policy that took part, not only the tightest. Only draft-11 has room for that.
    ///
    /// ```
    /// use tollgate::{HeaderForm, Policy, Quota, RateLimitHeaders, RateLimitLayer};
    ///
    /// let api = Policy::new("api", [Quota::per_second(10), Quota::per_day(1_000)]);
    /// let headers = RateLimitHeaders::new([HeaderForm::Draft11]).of_all_policies();
    /// let layer = RateLimitLayer::new(api).headers(headers);
    /// ```
    pub fn of_all_policies(mut self) -> Self {
        self.all_policies = true;
        self
    }

    /// Leaves the headers out as long as at least this share of the tightest budget is left. A refusal always has them.
    pub fn when_below(mut self, share: Share) -> Self {
        self.below = Some(share);
        self
    }

    /// Writes them as metadata of gRPC calls as well. It is off by default because gRPC clients do not read them, and a refusal
    /// says when to come back anyway.
    ///
    /// ```
    /// use tollgate::{HeaderForm, RateLimitHeaders};
    ///
    /// let headers = RateLimitHeaders::new([HeaderForm::Draft11]).over_grpc();
    /// ```
    pub fn over_grpc(mut self) -> Self {
        self.over_grpc = true;
        self
    }

    pub(super) fn forms(&self) -> &[HeaderForm] {
        &self.forms
    }
}

impl Default for RateLimitHeaders {
    fn default() -> Self {
        HeaderForm::Draft11.into()
    }
}

impl From<HeaderForm> for RateLimitHeaders {
    fn from(form: HeaderForm) -> Self {
        Self::of(smallvec![form])
    }
}

#[cfg(test)]
mod tests {
    use super::HeaderForm::{Draft06, Draft07, Draft11, Legacy};
    use super::*;

    #[test]
    fn forms_that_write_one_header_are_refused() {
        let cases: [(&[HeaderForm], &str); 4] = [
            (
                &[],
                "header forms: the list is empty; use `.without_headers()`",
            ),
            (
                &[Draft11, Draft07],
                "header forms draft-11 and draft-07: both write RateLimit",
            ),
            (
                &[Draft11, Legacy, Legacy],
                "header forms legacy and legacy: both write X-RateLimit-Limit",
            ),
            (&[Draft07, Draft06, Legacy], ""),
        ];
        for (forms, expected) in cases {
            let built = RateLimitHeaders::try_new(forms.iter().copied());
            let error = built.err().map(|error| error.to_string());
            assert_eq!(error.unwrap_or_default(), expected);
        }
    }
}
