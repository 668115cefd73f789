use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn matcher(routes: &[&str]) -> Matcher {
    let routes: Vec<Vec<Pattern>> = routes
        .iter()
        .map(|text| {
            let pattern = pattern(text);
            let tidied = pattern.tidied();
            [Some(pattern), tidied].into_iter().flatten().collect()
        })
        .collect();
    let patterns: Vec<_> = routes
        .iter()
        .map(|routes| Patterns {
            routes,
            exempt: &[],
        })
        .collect();
    Matcher::new(&patterns).unwrap()
}

fn covers(route: &str, form: &str) -> bool {
    let pattern = pattern(route);
    pattern.covers(form) || pattern.tidied().is_some_and(|tidied| tidied.covers(form))
}

fn covering(matcher: &Matcher, path: &str) -> Vec<usize> {
    matcher
        .covering(&PathForms::of(path, false))
        .as_slice()
        .to_vec()
}

#[test]
fn a_path_belongs_to_all_patterns_that_cover_it() {
    let matcher = matcher(&["/{*rest}", "/users/{id}", "/users/me", "/users/{id}/posts"]);
    assert_eq!(covering(&matcher, "/users/me"), [0, 1, 2]);
    assert_eq!(covering(&matcher, "/users/7"), [0, 1]);
    assert_eq!(covering(&matcher, "/users/7/posts"), [0, 3]);
    assert_eq!(covering(&matcher, "/elsewhere"), [0]);
    assert!(covering(&matcher, "/").is_empty());
    assert_eq!(matcher.tiers.len(), 1);
}

#[test]
fn parameters_of_other_names_are_one_pattern() {
    let matcher = matcher(&["/users/{id}", "/users/{name}/", "//users/{u}"]);
    assert_eq!(covering(&matcher, "/users/7"), [0, 1, 2]);
    assert_eq!(matcher.tiers.len(), 1);
}

#[test]
fn what_axum_routes_to_a_pattern_is_covered_with_all_its_slashes() {
    let matcher = matcher(&["/files/{*path}", "/files", "/{*rest}", "/{a}/c"]);
    assert_eq!(covering(&matcher, "/files//"), [0, 1, 2]);
    assert_eq!(covering(&matcher, "//"), [2]);
    assert_eq!(covering(&matcher, "//c"), [2, 3]);
}

#[test]
fn a_slash_at_the_end_of_a_pattern_may_stand_behind_an_empty_parameter() {
    let matcher = matcher(&["/{p}/", "/a/{p}/b/"]);
    assert_eq!(covering(&matcher, "//"), [0]);
    assert_eq!(covering(&matcher, "/x"), [0]);
    assert_eq!(covering(&matcher, "/a//b/"), [1]);
    assert_eq!(covering(&matcher, "/a/x/b"), [1]);
}

#[test]
fn a_hundred_policies_stand_in_one_router() {
    let routes: Vec<_> = (0..100).map(|n| format!("/v1/thing-{n}/{{id}}")).collect();
    let routes: Vec<_> = routes.iter().map(String::as_str).collect();
    let matcher = matcher(&routes);
    assert_eq!(matcher.tiers.len(), 1);
    assert_eq!(covering(&matcher, "/v1/thing-42/x"), [42]);
    assert_eq!(matcher.heaviest(|_| 1), 2);
}

#[test]
fn services_and_packages_of_grpc_can_be_said() {
    let matcher = matcher(&["/pkg.Users/{method}", "/pkg.{*rest}", "/pkg.Users/Get"]);
    assert_eq!(covering(&matcher, "/pkg.Users/Get"), [0, 1, 2]);
    assert_eq!(covering(&matcher, "/pkg.Users/Put"), [0, 1]);
    assert_eq!(covering(&matcher, "/pkg.Posts/Get"), [1]);
}

#[test]
fn what_is_exempt_is_so_in_the_form_that_axum_routes_and_in_no_other() {
    let (all, health) = ([pattern("/{*rest}")], [pattern("/health")]);
    let policies = [
        Patterns {
            routes: &all,
            exempt: &health,
        },
        Patterns {
            routes: &[],
            exempt: &health,
        },
        Patterns {
            routes: &[],
            exempt: &[],
        },
    ];
    let matcher = Matcher::new(&policies).unwrap();
    assert_eq!(covering(&matcher, "/health"), [2]);
    for form in ["//health", "/health/", "//health/", "/%68ealth"] {
        assert_eq!(covering(&matcher, form), [0, 1, 2], "{form}");
    }
    assert_eq!(covering(&matcher, "/other"), [0, 1, 2]);
    assert_eq!(covering(&matcher, "/"), [1, 2]);
}

#[test]
fn what_is_exempt_by_a_wide_pattern_is_exempt_where_a_narrow_one_is_found() {
    let (all, narrow, wide) = (
        [pattern("/{*rest}")],
        [pattern("/a/b")],
        [pattern("/a/{*rest}")],
    );
    let policies = [
        Patterns {
            routes: &all,
            exempt: &wide,
        },
        Patterns {
            routes: &narrow,
            exempt: &[],
        },
    ];
    let matcher = Matcher::new(&policies).unwrap();
    assert_eq!(covering(&matcher, "/a/b"), [1]);
    assert!(covering(&matcher, "/a/c").is_empty());
    assert_eq!(covering(&matcher, "/b"), [0]);
}

fn text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "a-", "{{", "%61", "B"])
}

fn route() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => text().prop_map(str::to_owned),
        2 => Just("{p}".to_owned()),
        1 => text().prop_map(|text| format!("{text}{{p}}")),
    ];
    let end = prop_oneof![
        4 => Just(String::new()),
        1 => Just("/".to_owned()),
        2 => Just("/{*rest}".to_owned()),
        1 => text().prop_map(|text| format!("/{text}{{*rest}}")),
    ];
    (vec(segment, 0..4), end).prop_map(|(segments, end)| {
        let path: String = segments
            .iter()
            .map(|segment| format!("/{segment}"))
            .collect();
        if path.is_empty() && end.is_empty() {
            "/".to_owned()
        } else {
            path + &end
        }
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec![
        "a", "b", "ab", "a-", "a-b", "{", "%61", "", "c", "%2f",
    ]);
    vec(segment, 1..6).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn the_router_finds_what_looking_at_each_pattern_finds(
        routes in vec(route(), 1..8),
        paths in vec(path(), 1..20),
    ) {
        let routes: Vec<_> = routes.iter().map(String::as_str).collect();
        let matcher = matcher(&routes);
        for path in &paths {
            let forms = PathForms::of(path, false);
            let each = routes.iter().enumerate();
            let expected: Vec<_> = each
                .filter(|(_, route)| forms.covered().any(|form| covers(route, form)))
                .map(|(index, _)| index)
                .collect();
            prop_assert_eq!(covering(&matcher, path), expected, "{}", path);
            // More than two forms are those of nobody who means well: a call of too many charges is refused.
            if forms.covered().count() <= 2 {
                prop_assert!(covering(&matcher, path).len() <= matcher.heaviest(|_| 1));
            }
        }
    }

    #[test]
    fn what_axums_router_routes_to_a_pattern_a_policy_with_it_covers(
        route in route(),
        paths in vec(path(), 1..20),
    ) {
        let mut axums = matchit::Router::new();
        axums.insert(&*route, ()).unwrap();
        let matcher = matcher(&[&route]);
        for path in &paths {
            if axums.at(path).is_ok() {
                prop_assert_eq!(covering(&matcher, path), [0], "{}", path);
            }
        }
    }
}
