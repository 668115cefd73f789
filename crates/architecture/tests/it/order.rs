//! Crates depend on each other in one order, as their manifests say it.

use std::fs;

use toml::{Table, Value};

use crate::crates;

/// Crates by layer, the lowest first. A crate may depend on those of lower layers, and on none of its own.
const LAYERS: &[&[&str]] = &[
    &["tollgate-core"],
    &[
        "tollgate-memory",
        "tollgate-redis",
        "tollgate-macros",
        "tollgate-conformance",
    ],
    &["tollgate-limiter"],
    &["tollgate-http"],
    &["tollgate-grpc"],
    &["tollgate"],
    &["tollgate-server"],
    &["tollgate-cli"],
];

/// The crates from outside, for the crates whose charters forbid most. `core` is pure: nothing in its list reads, sends or waits.
/// `limiter` reads the heads of requests and no more: `tower` and what writes answers stay out.
const FOREIGN: &[(&str, &str)] = &[
    (
        "tollgate-core",
        "chrono chrono-tz serde sha2 smallvec strsim",
    ),
    (
        "tollgate-limiter",
        "arc-swap axum base64 bytes form_urlencoded http matchit metrics percent-encoding serde serde_json \
         serde_path_to_error smallvec thiserror tokio tonic tracing x509-parser",
    ),
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// The names of the crates that it is built with: not those of its tests alone.
fn dependencies(manifest: &Table) -> Vec<&str> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    let tables = [manifest]
        .into_iter()
        .chain(targets.filter_map(Value::as_table));
    let lists =
        tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    let all = lists.filter_map(|list| list?.as_table()).flatten();
    // A dependency that has another name here says its own.
    all.map(|(here, stated)| {
        stated
            .get("package")
            .and_then(Value::as_str)
            .unwrap_or(here)
    })
    .collect()
}

/// A sentence for each dependency of a shipping crate on one that is not of a lower layer, and for each from outside that is not
/// in the list.
fn violations(manifest: &str) -> Vec<String> {
    let manifest: Table = manifest.parse().unwrap();
    let package = &manifest["package"];
    let name = package["name"].as_str().unwrap();
    let Some(of_crate) = layer(name) else {
        // The others are tools, which may depend on anything.
        let ships = package.get("publish").and_then(Value::as_bool) != Some(false);
        let has_no_place = format!("{name} ships and has no place in the order of the crates");
        return ships.then_some(has_no_place).into_iter().collect();
    };
    let foreign = FOREIGN.iter().find(|(of, _)| *of == name);
    let violation = |dependency: &str| match layer(dependency) {
        Some(layer) => (layer >= of_crate).then_some("stands no lower in the order of the crates"),
        None if dependency.starts_with("tollgate") => Some("is a tool that does not ship"),
        None => (foreign?.1.split(' ').all(|agreed| agreed != dependency))
            .then_some("is not in the list of those from outside"),
    };
    let named = |dependency| {
        let violation = violation(dependency)?;
        Some(format!("{name} depends on {dependency}, which {violation}"))
    };
    (dependencies(&manifest).into_iter())
        .filter_map(named)
        .collect()
}

#[test]
fn crates_that_ship_depend_in_one_order() {
    for (_, folder) in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert_eq!(violations(&manifest), [""; 0]);
    }
}

#[test]
fn a_crate_depends_on_lower_ones_and_core_on_nothing_that_is_not_listed() {
    for (name, rest, said) in [
        (
            "tollgate-cache",
            "",
            "ships and has no place in the order of the crates",
        ),
        (
            "tollgate-tool",
            "package.publish = false\ndependencies = { tollgate = '1' }",
            "",
        ),
        (
            "tollgate-core",
            "dev-dependencies = { tollgate-memory = '1' }",
            "",
        ),
        (
            "tollgate-memory",
            "dependencies = { tollgate-core = '1', tollgate-redis = '1' }",
            "depends on tollgate-redis, which stands no lower in the order of the crates",
        ),
        (
            "tollgate",
            "target.unix.dependencies = { tollgate-testkit = '1' }",
            "depends on tollgate-testkit, which is a tool that does not ship",
        ),
        (
            "tollgate-core",
            "build-dependencies = { net = { package = 'mio' }, serde = '1' }",
            "depends on mio, which is not in the list of those from outside",
        ),
    ] {
        let expected = (!said.is_empty()).then(|| format!("{name} {said}"));
        let violations = violations(&format!("package.name = '{name}'\n{rest}\n"));
        assert_eq!(violations, Vec::from_iter(expected), "{rest}");
    }
}
