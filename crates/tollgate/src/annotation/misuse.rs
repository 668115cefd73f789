//! What is wrong with an annotation or its surroundings, and cannot be seen before a request comes.

use std::fmt;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use tollgate_core::MAX_CHARGES;

use super::build::Claim;
use super::site::{Site, described};
use crate::ConfigError;

/// Why a limit cannot be enforced. The handler behind it is not called then: better closed than unlimited.
#[derive(Debug)]
pub(super) struct Misuse {
    who: String,
    what: What,
    other_name: &'static str,
}

#[derive(Debug)]
pub(super) enum What {
    NoLayer,
    UnknownPolicy { policy: String },
    NoRoute,
    NoName { name: String },
    NameOfPolicy { name: String },
    NameTaken { name: String, by: Box<Claim> },
    TooManyQuotas { quotas: usize },
    Config(ConfigError),
}

impl Misuse {
    pub(super) fn new(site: &dyn Site, route: &str, what: What) -> Self {
        Self {
            who: described(site, route),
            what,
            other_name: site.other_name(),
        }
    }

    /// With places in the source, which callers need not know.
    pub(super) fn log(self, site: &dyn Site) -> Self {
        let other_place = match &self.what {
            What::NameTaken { by, .. } => Some(by.place.as_str()),
            _ => None,
        };
        tracing::error!(place = site.place(), other_place, "{self}");
        self
    }

    /// The same for a call, in its status.
    #[cfg(feature = "tonic")]
    pub(super) fn status(&self) -> tonic::Status {
        tonic::Status::internal(self.to_string())
    }

    /// Says it in the body too: whoever sees it first is whoever has just written the annotation.
    pub(super) fn response(&self) -> Response {
        let no_store = [(CACHE_CONTROL, "no-store")];
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        (status, no_store, format!("{self}\n")).into_response()
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other_name = self.other_name;
        write!(f, "{} cannot be limited, so it is closed: ", self.who)?;
        match &self.what {
            What::NoLayer => f.write_str(
                "there is no RateLimitLayer around it, or one `.without_status()`; add \
                 `.layer(RateLimitLayer::new(limiter))` to the router, after its routes, or to the gRPC server",
            ),
            What::UnknownPolicy { policy } => write!(
                f,
                "policy {policy:?} is not in the limiter; add `.policy(Policy::new({policy:?}, ..).on_demand())` to its builder, \
                 and `limiter.expects([{policy:?}])` to see it at start"
            ),
            What::NoRoute => write!(
                f,
                "the request took no route that it could be named after; {other_name}"
            ),
            What::NoName { name } => write!(
                f,
                "its route makes {name:?}, which is too long for a name; {other_name}"
            ),
            What::NameOfPolicy { name } => write!(
                f,
                "its limit is called {name:?}, as one of the limiter's is; {other_name}"
            ),
            What::NameTaken { name, by } => write!(
                f,
                "its limit is called {name:?}, as the one of {} is; {other_name}",
                by.who
            ),
            What::TooManyQuotas { quotas } => write!(
                f,
                "it has {quotas} quotas, and at most {MAX_CHARGES} are decided together"
            ),
            What::Config(error) => write!(f, "{error}"),
        }
    }
}
