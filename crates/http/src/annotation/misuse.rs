//! Mistakes in an annotation or around it that show only when a request comes.

use std::fmt;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use tollgate_core::MAX_CHARGES;
use tollgate_limiter::ConfigError;

use super::claim::Claim;
use super::site::{Site, described};

/// The reason why a limit cannot be enforced. The handler behind it is then not called: better closed than unlimited.
#[derive(Debug)]
pub struct Misuse {
    who: String,
    what: MisuseKind,
    other_name: &'static str,
}

#[derive(Debug)]
pub(super) enum MisuseKind {
    NoLayer,
    UnknownPolicy { policy: String },
    NoRoute,
    NoName { name: String },
    NameOfPolicy { name: String },
    NameTaken { name: String, by: Box<Claim> },
    LimitedTwice { name: String, by: Box<Claim> },
    TooManyQuotas { quotas: usize },
    Config(ConfigError),
}

impl Misuse {
    pub(super) fn new(site: &dyn Site, route: &str, what: MisuseKind) -> Self {
        Self {
            who: described(site, route),
            what,
            other_name: site.other_name(),
        }
    }

    /// The text has places in the source, which callers need not know.
    pub(super) fn log(self, site: &dyn Site) -> Self {
        let other_place = match &self.what {
            MisuseKind::NameTaken { by, .. } | MisuseKind::LimitedTwice { by, .. } => {
                Some(by.place.as_str())
            }
            _ => None,
        };
        tracing::error!(place = site.place(), other_place, "{self}");
        self
    }

    /// The answer to a request.
    pub(super) fn response(&self) -> Response {
        let no_store = [(CACHE_CONTROL, "no-store")];
        let body = self.told() + "\n";
        (StatusCode::INTERNAL_SERVER_ERROR, no_store, body).into_response()
    }

    /// The text for callers.
    #[must_use]
    pub fn told(&self) -> String {
        self.told_in(cfg!(debug_assertions))
    }

    /// The text for callers, in development or in production. In development the author of the annotation reads it. Callers in
    /// production need not know the names of handlers and policies.
    fn told_in(&self, in_development: bool) -> String {
        if in_development {
            self.to_string()
        } else {
            "this cannot be limited, so it is closed: the server's log says why".to_owned()
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other_name = self.other_name;
        write!(f, "{} cannot be limited, so it is closed: ", self.who)?;
        match &self.what {
            MisuseKind::NoLayer => f.write_str(
                "there is no RateLimitLayer around it, or one `.without_status()`; add \
                 `.layer(RateLimitLayer::new(limiter))` to the router, after its routes, or to the gRPC server",
            ),
            MisuseKind::UnknownPolicy { policy } => write!(
                f,
                "policy {policy:?} is not in the limiter; add `.policy(Policy::new({policy:?}, ..).on_demand())` to its builder, \
                 and `limiter.expects([{policy:?}])` to see it at start"
            ),
            MisuseKind::NoRoute => write!(
                f,
                "the request took no route that it could be named after; {other_name}"
            ),
            MisuseKind::NoName { name } => write!(
                f,
                "its route makes {name:?}, which is too long for a name; {other_name}"
            ),
            MisuseKind::NameOfPolicy { name } => write!(
                f,
                "its limit is called {name:?}, like a policy of the limiter; {other_name}"
            ),
            MisuseKind::NameTaken { name, by } => write!(
                f,
                "its limit is called {name:?}, like that of {}; {other_name}",
                by.who
            ),
            MisuseKind::LimitedTwice { name, .. } => write!(
                f,
                "it is limited twice under the name {name:?}: `.rate_limit(..)` limits all handlers that a route has so far; \
                 limit each by itself, `get(a).rate_limit(..).merge(post(b).rate_limit(..))`, and give one handler several \
                 quotas at once, `.rate_limit([\"10/s\", \"1000/day\"])`"
            ),
            MisuseKind::TooManyQuotas { quotas } => write!(
                f,
                "it has {quotas} quotas, and at most {MAX_CHARGES} are decided together"
            ),
            MisuseKind::Config(error) => write!(f, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_while_the_program_is_written_callers_are_told_the_names_of_its_parts() {
        let misuse = Misuse {
            who: "handler `secret`".to_owned(),
            what: MisuseKind::UnknownPolicy {
                policy: "hidden".to_owned(),
            },
            other_name: "",
        };
        for in_development in [true, false] {
            let told = misuse.told_in(in_development);
            for name in ["secret", "hidden"] {
                assert_eq!(told.contains(name), in_development, "{told}");
            }
        }
    }
}
