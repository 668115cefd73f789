//! The name of a limit that was given none.

use http::Method;

/// The name for a limit on this route, of this handler or of methods of this family: `login/login`, `get/users/_id_`. It may be too
/// long for a policy's name, since routes may be longer. It may also be taken, since characters that names cannot hold become `_`.
pub fn of_route(whose: &str, route: &str) -> String {
    let name = whose.chars().chain(route.chars());
    let name = name.map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || "-_./".contains(c) => c,
        _ => '_',
    });
    name.collect()
}

/// The methods that have budgets of their own. `HEAD` is a `GET` whose answer is not looked at. A caller can invent any number of
/// methods that HTTP does not know, so these are one.
pub(super) fn family(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate_core::{MAX_NAME_LEN, is_name};

    use super::*;

    proptest! {
        #[test]
        fn every_route_that_is_short_enough_makes_a_name(route in "/.{0,80}") {
            let name = of_route("POST", &route);
            prop_assert_eq!(is_name(&name), name.len() <= MAX_NAME_LEN, "{}", name);
        }
    }

    #[test]
    fn routes_are_named_by_method_and_path() {
        let cases = [
            (Method::POST, "/login", "post/login"),
            (Method::GET, "/", "get/"),
            (Method::HEAD, "/users/{id}", "get/users/_id_"),
            (Method::DELETE, "/Files/{*path}", "delete/files/__path_"),
            (Method::PUT, "/ü~a", "put/__a"),
        ];
        for (method, route, expected) in cases {
            assert_eq!(of_route(family(&method), route), expected);
        }
    }

    #[test]
    fn pitfall_methods_that_a_caller_thinks_up_as_so_many_budgets() {
        let invented = |name: &str| Method::from_bytes(name.as_bytes()).unwrap();
        assert_eq!(family(&invented("FOO")), family(&invented("BAR")));
        assert_eq!(of_route(family(&invented("FOO")), "/any"), "other/any");
    }
}
