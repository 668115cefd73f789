//! Answers of the admin, and their header fields.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tollgate::CheckError;

/// Style and script are files beside the page and nothing else, data go to this server alone, and no page may embed it. A text
/// cannot become markup, even by a mistake in the script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// The answer, with the fields that every one has.
pub(super) fn secured(mut answer: Response) -> Response {
    let fields = [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fields {
        answer
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// An answer with this body.
pub(super) fn text(content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut answer = Response::new(body.into());
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub(super) fn object(value: &Value) -> Response {
    text("application/json", value.to_string())
}

/// A request that has no answer.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    reason: String,
    field: Option<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
            field: None,
        }
    }

    pub(super) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    pub(super) fn unauthorized() -> Self {
        let mut error = Self::new(
            StatusCode::UNAUTHORIZED,
            "state the admin's token: Authorization: Bearer TOKEN",
        );
        error.field = Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        error
    }

    pub(super) fn method(known: &Method) -> Self {
        let mut error = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("this path has the method {known}"),
        );
        let allowed = match *known {
            Method::POST => "POST",
            _ => "GET, HEAD",
        };
        error.field = Some((ALLOW, HeaderValue::from_static(allowed)));
        error
    }

    /// True if the request is at fault, so that nothing was asked of the backend.
    pub(super) fn is_of_request(&self) -> bool {
        self.status.is_client_error()
    }

    /// The reason, which names no caller.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// The error, with words before its reason.
    pub(super) fn behind(mut self, words: &str) -> Self {
        self.reason = format!("{words}: {}", self.reason);
        self
    }

    pub(super) fn into_answer(self) -> Response {
        let mut answer = object(&json!({ "error": self.reason }));
        *answer.status_mut() = self.status;
        if let Some((name, value)) = self.field {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

impl From<CheckError> for ApiError {
    fn from(error: CheckError) -> Self {
        let status = match &error {
            CheckError::UnknownPolicy { .. } => StatusCode::NOT_FOUND,
            CheckError::NeverBans { .. } => StatusCode::CONFLICT,
            CheckError::Unavailable(_)
            | CheckError::Unlisted { .. }
            | CheckError::TierUnknown { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        let mut reason = match &error {
            // Its own words are for programmers.
            CheckError::NeverBans { policy } => format!(
                "policy {policy:?}: it bans no callers: if it is to, give it a ban in the file, such as \
                 `ban = {{ after = \"5 in 10min for 15min\" }}`"
            ),
            _ => error.to_string(),
        };
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            reason += &format!(": {error}");
            cause = error.source();
        }
        Self::new(status, reason)
    }
}
