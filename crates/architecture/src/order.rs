//! The order of the crates, as their manifests say it.

use toml::Table;

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

/// A crate from outside that a crate of the bottom may depend on.
struct Foreign {
    name: &'static str,
    reason: &'static str,
}

const fn foreign(name: &'static str, reason: &'static str) -> Foreign {
    Foreign { name, reason }
}

/// The crates from outside, for the crates whose charters forbid most. `core` is pure: nothing in its list reads, sends or waits.
/// `limiter` reads the heads of requests and no more: `tower` and what writes answers stay out.
const FOREIGN: &[(&str, &[Foreign])] = &[
    (
        "tollgate-core",
        &[
            foreign(
                "chrono",
                "days and months of quotas by the calendar; it reads no clock here",
            ),
            foreign("chrono-tz", "the rules of time zones, as tables"),
            foreign("serde", "quotas as texts in configuration files"),
            foreign("sha2", "a long key is kept as its digest"),
            foreign(
                "smallvec",
                "the verdicts of one or two quotas lie on the stack",
            ),
        ],
    ),
    (
        "tollgate-limiter",
        &[
            foreign(
                "arc-swap",
                "policies and lists are replaced while every request reads them",
            ),
            foreign(
                "axum",
                "the types in which it leaves peers, paths and routes in a request; optional",
            ),
            foreign(
                "base64",
                "identities in the Basic scheme and in binary metadata",
            ),
            foreign("bytes", "bodies that were read for an identity"),
            foreign("form_urlencoded", "identities in queries and forms"),
            foreign("http", "the heads of requests"),
            foreign("matchit", "the router that finds the policies of a path"),
            foreign(
                "metrics",
                "counts for the recorder of the application; optional",
            ),
            foreign("percent-encoding", "paths in one spelling"),
            foreign("serde", "configuration; optional"),
            foreign(
                "serde_json",
                "identities in JSON bodies, and configuration; optional",
            ),
            foreign(
                "serde_path_to_error",
                "the field that an error of the configuration is about; optional",
            ),
            foreign("smallvec", "plans of one policy lie on the stack"),
            foreign("thiserror", "errors of the configuration"),
            foreign("tokio", "waits for a turn, and tasks that ask for tiers"),
            foreign(
                "tonic",
                "the types in which it leaves peers and metadata in a request; optional",
            ),
            foreign("tracing", "the log"),
            foreign("x509-parser", "identities in certificates; optional"),
        ],
    ),
];

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Says whether a crate ships, and so has a place in the order. The others are tools, which may depend on anything.
#[must_use]
pub fn ships(manifest: &Table) -> bool {
    let publish = manifest
        .get("package")
        .and_then(|package| package.get("publish"));
    publish.and_then(toml::Value::as_bool).unwrap_or(true)
}

/// A sentence for each dependency from outside without a reason, and for each reason without its dependency.
#[must_use]
pub fn foreign_violations(manifest: &Table) -> Vec<String> {
    let Some(name) = name(manifest) else {
        return Vec::new();
    };
    let Some((_, agreed)) = FOREIGN.iter().find(|(of, _)| *of == name) else {
        return Vec::new();
    };
    let used: Vec<_> = dependencies(manifest)
        .filter(|dependency| layer(dependency).is_none())
        .collect();
    let without_reason = used.iter().filter(|dependency| {
        let is_agreed =
            |foreign: &Foreign| foreign.name == **dependency && !foreign.reason.is_empty();
        !agreed.iter().any(is_agreed)
    });
    let without_reason = without_reason.map(|dependency| {
        format!("{name} depends on {dependency}, which has no reason in the list")
    });
    let unused = agreed
        .iter()
        .filter(|foreign| !used.contains(&foreign.name))
        .map(|foreign| {
            format!(
                "{name} no longer depends on {}, which stands in the list",
                foreign.name
            )
        });
    without_reason.chain(unused).collect()
}

/// The names of the crates that it is built with: not those of its tests alone.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    [manifest]
        .into_iter()
        .chain(targets.filter_map(toml::Value::as_table))
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .filter_map(|dependencies| dependencies?.as_table())
        .flatten()
        // A dependency that has another name here says its own.
        .map(|(here, stated)| {
            stated
                .get("package")
                .and_then(toml::Value::as_str)
                .unwrap_or(here)
        })
}

/// A sentence for each dependency of a shipping crate on a crate that is not of a lower layer. Dependencies of tests alone do
/// not count.
#[must_use]
pub fn violations(manifest: &Table) -> Vec<String> {
    let Some(name) = name(manifest) else {
        return Vec::new();
    };
    let Some(of_crate) = layer(name) else {
        let has_no_place = ships(manifest)
            .then(|| format!("{name} ships and has no place in the order of the crates"));
        return has_no_place.into_iter().collect();
    };
    dependencies(manifest)
        .filter(|dependency| dependency.starts_with("tollgate"))
        .filter_map(|dependency| match layer(dependency) {
            None => Some(format!(
                "{name} depends on {dependency}, a tool that does not ship"
            )),
            Some(of_dependency) if of_dependency >= of_crate => Some(format!(
                "{name} depends on {dependency}, which stands no lower in the order of the crates"
            )),
            Some(_) => None,
        })
        .collect()
}

fn name(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(text: &str) -> Table {
        text.parse().unwrap_or_default()
    }

    #[test]
    fn a_crate_that_ships_has_a_place() {
        let unknown = manifest("[package]\nname = \"tollgate-cache\"\n");
        let tool = manifest("[package]\nname = \"tollgate-tool\"\npublish = false\n");

        assert_eq!(
            violations(&unknown),
            ["tollgate-cache ships and has no place in the order of the crates"]
        );
        assert_eq!(violations(&tool), [""; 0]);
    }

    #[test]
    fn a_crate_depends_on_lower_ones_only() {
        let upward = manifest(
            "[package]\nname = \"tollgate-memory\"\n[dependencies]\ntollgate-core.workspace = true\ntollgate-redis.workspace = true\n",
        );
        let with_tool = manifest(
            "[package]\nname = \"tollgate\"\n[target.'cfg(unix)'.dependencies]\ntollgate-testkit.workspace = true\n",
        );
        let only_in_tests = manifest(
            "[package]\nname = \"tollgate-core\"\n[dev-dependencies]\ntollgate-memory.workspace = true\n",
        );

        assert_eq!(
            violations(&upward),
            [
                "tollgate-memory depends on tollgate-redis, which stands no lower in the order of the crates"
            ]
        );
        assert_eq!(
            violations(&with_tool),
            ["tollgate depends on tollgate-testkit, a tool that does not ship"]
        );
        assert!(violations(&only_in_tests).is_empty());
    }

    #[test]
    fn a_crate_from_outside_needs_a_reason_in_core_and_in_the_limiter() {
        let list = |name: &str, dependencies: &str| {
            let text = format!("[package]\nname = {name:?}\n[dependencies]\n{dependencies}");
            foreign_violations(&manifest(&text))
        };
        let core = "chrono = '0'\nchrono-tz = '0'\nserde = '1'\nsha2 = '0'\nsmallvec = '1'\n";

        assert_eq!(list("tollgate-core", core), [""; 0]);
        assert_eq!(
            list(
                "tollgate-core",
                &format!(
                    "{core}net = {{ package = \"mio\" }}\n[target.'cfg(unix)'.dependencies]\nlibc = '0'\n"
                )
            ),
            [
                "tollgate-core depends on mio, which has no reason in the list",
                "tollgate-core depends on libc, which has no reason in the list"
            ]
        );
        assert_eq!(
            list("tollgate-core", &core.replace("sha2 = '0'\n", "")),
            ["tollgate-core no longer depends on sha2, which stands in the list"]
        );
        let limiter = list("tollgate-limiter", "tollgate-core = '1'\ntower = '0'\n");
        assert_eq!(
            limiter[0],
            "tollgate-limiter depends on tower, which has no reason in the list"
        );
        // The charters of the others allow what they need.
        assert_eq!(list("tollgate-http", "tower = '0'\n"), [""; 0]);
    }
}
