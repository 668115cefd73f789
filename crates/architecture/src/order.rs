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
    &["tollgate-cli"],
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
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    let dependencies = [manifest]
        .into_iter()
        .chain(targets.filter_map(toml::Value::as_table))
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)))
        .filter_map(|dependencies| dependencies?.as_table())
        .flat_map(Table::keys);
    dependencies
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
}
