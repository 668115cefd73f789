//! gRPC methods as policies name them.

use super::Policy;
use crate::ConfigError;
use crate::literal::literal;
use crate::matching::Pattern;

/// Calls that it covers.
impl Policy {
    /// Covers only calls to this gRPC method: `shop.v1.Orders/Place`. `shop.v1.Orders/*` names all methods of a service, and
    /// `shop.v1.*` all services of a package and of packages within it. Several calls name alternatives. A leading slash, as in
    /// the path of a call, makes no difference.
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let place = Policy::new("place-order", Quota::per_minute(10)).grpc("shop.v1.Orders/Place");
    /// let shop = Policy::new("shop", Quota::per_second(100)).grpc("shop.v1.*").grpc("shop.v2.*");
    /// ```
    ///
    /// It is a [`route`](Self::route) in gRPC's own words: the policy also covers other callers of that path.
    ///
    /// # Panics
    ///
    /// While it is built, if `methods` is invalid. Text from outside goes through [`try_grpc`](Self::try_grpc).
    #[must_use]
    #[track_caller]
    pub fn grpc(self, methods: &str) -> Self {
        literal(self.try_grpc(methods))
    }

    /// Covers only calls to this gRPC method: see [`grpc`](Self::grpc).
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = || Policy::new("shop", Quota::per_second(100));
    /// assert!(policy().try_grpc("shop.v1.Orders/Place").is_ok());
    /// assert!(policy().try_grpc("Place").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If `methods` is invalid.
    pub fn try_grpc(self, methods: &str) -> Result<Self, ConfigError> {
        match route(methods) {
            Ok(route) => self.try_route(&route).map(|mut policy| {
                policy.mark_grpc();
                policy
            }),
            Err(reason) => Err(ConfigError::GrpcMethod {
                policy: self.name.to_string(),
                method: methods.chars().take(128).collect(),
                reason,
            }),
        }
    }
}

impl Policy {
    /// The call that gave it this route, for an operator who looks for the line.
    pub(crate) fn written(&self, route: &Pattern) -> String {
        let text = route.as_str();
        let mut grpc = self.grpc_patterns().iter();
        match text.strip_prefix('/') {
            Some(methods) if grpc.any(|pattern| pattern.as_str() == text) => {
                let methods = methods.replace("{service}/{method}", "*");
                format!(".grpc(\"{}\")", methods.replace("{method}", "*"))
            }
            _ => format!(".route(\"{text}\")"),
        }
    }

    /// The part of the policy that an interceptor cannot do, if there is one.
    #[doc(hidden)]
    pub fn beyond_an_interceptor(&self) -> Option<&'static str> {
        if self.has_targets() {
            return Some("has a route or host, and an interceptor does not see what is called");
        }
        if self.has_methods() {
            return Some("has a condition on the HTTP method, and an interceptor does not see it");
        }
        if self.has_closures() {
            return Some(
                "has a condition of its own, and an interceptor does not show it the call",
            );
        }
        if self.cost.fixed().is_none() {
            return Some("has a cost of its own, and an interceptor does not show it the call");
        }
        if self.key.needs_whole_request() {
            return Some(
                "has a key in the path, host or body, and an interceptor does not see them",
            );
        }
        if self.class_needs_whole_request() {
            return Some(
                "has classes by the path, host or body, and an interceptor does not see them",
            );
        }
        if self.key.later().is_some() {
            return Some("has an async key, and an interceptor cannot wait");
        }
        if self.tiers.as_ref().is_some_and(|tiers| tiers.is_later()) {
            return Some("has tiers that are asked for, and an interceptor cannot wait");
        }
        if self.asks_for_quotas() {
            return Some("has quotas that are asked for, and an interceptor cannot wait");
        }
        if self.messages.is_some() {
            return Some("charges messages, and an interceptor sees none");
        }
        if self.outcome.is_some() {
            return Some("charges by the response, and an interceptor does not see it");
        }
        if self.waits() {
            return Some("lets calls wait for their turn, and an interceptor cannot wait");
        }
        if self.holds() {
            return Some(
                "limits how many at once, and an interceptor does not see when a call is over",
            );
        }
        None
    }
}

/// The pattern of the paths of these methods, or what is wrong with them.
fn route(methods: &str) -> Result<String, &'static str> {
    let methods = methods.strip_prefix('/').unwrap_or(methods);
    let Some((service, method)) = methods.split_once('/') else {
        return match methods.strip_suffix(".*") {
            Some(package) if are_names(package) => Ok(format!("/{package}.{{service}}/{{method}}")),
            _ => Err(
                "names no methods; write package.Service/Method, package.Service/* or package.*",
            ),
        };
    };
    if !are_names(service) {
        return Err("has no service like package.Service before the slash");
    }
    match method {
        "*" => Ok(format!("/{service}/{{method}}")),
        _ if is_name(method) => Ok(format!("/{service}/{method}")),
        _ => Err("has no method or * behind the slash"),
    }
}

/// Names between dots.
fn are_names(text: &str) -> bool {
    text.split('.').all(is_name)
}

pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    #[test]
    fn methods_services_and_packages_are_routes() {
        let cases = [
            ("shop.v1.Orders/Place", "/shop.v1.Orders/Place"),
            ("/shop.v1.Orders/Place", "/shop.v1.Orders/Place"),
            ("shop.v1.Orders/*", "/shop.v1.Orders/{method}"),
            ("shop.*", "/shop.{service}/{method}"),
            ("Orders/Place", "/Orders/Place"),
        ];
        for (methods, expected) in cases {
            assert_eq!(route(methods).as_deref(), Ok(expected), "{methods}");
        }
    }

    #[test]
    fn what_names_no_method_is_refused_and_names_the_policy() {
        for methods in [
            "",
            "*",
            "*/Place",
            "shop.v1.Orders",
            "shop.v1.Orders/",
            "shop.v1.Orders/Pl*",
            "shop.v1.Orders/Place/Now",
            "shop..Orders/Place",
            ".Orders/Place",
            "shop.v1.Örders/Place",
            "shop.v1.{service}/Place",
            "//shop.v1.Orders/Place",
        ] {
            let policy = Policy::new("place", Quota::per_second(1));
            let error = policy.try_grpc(methods).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("policy \"place\": gRPC method {methods:?}: ")),
                "{error}"
            );
        }
    }
}
