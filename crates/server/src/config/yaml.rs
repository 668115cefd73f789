//! Documents in YAML, node by node: each error has its line.

use saphyr::{MarkedYaml, ScalarStyle, YamlData, YamlLoader};
use saphyr_parser::Parser;

/// The documents of a text: one at least.
pub(super) fn documents(text: &str) -> Result<Vec<MarkedYaml<'_>>, String> {
    let mut loader = YamlLoader::default();
    // A scalar stays as it is written: `value: 007` is text.
    loader.early_parse(false);
    let loaded = Parser::new_from_str(text).load(&mut loader, true);
    if let Some(error) = loaded.err().as_ref().or(loader.error()) {
        return Err(at(error.marker().line(), error.info()));
    }
    let documents = loader.into_documents();
    if documents.is_empty() {
        return Err("the file is empty".to_owned());
    }
    Ok(documents)
}

/// A sentence with its line.
pub(super) fn at(line: usize, reason: impl std::fmt::Display) -> String {
    format!("line {line}: {reason}")
}

pub(super) fn line(node: &MarkedYaml<'_>) -> usize {
    node.span.start.line()
}

/// The fields of a map, each with the line of its key.
pub(super) type Fields<'n, 'y> = Vec<(&'n str, usize, &'n MarkedYaml<'y>)>;

/// The fields of a map.
pub(super) fn fields<'n, 'y>(
    node: &'n MarkedYaml<'y>,
    what: &str,
) -> Result<Fields<'n, 'y>, String> {
    let YamlData::Mapping(map) = &node.data else {
        return Err(at(line(node), format_args!("{what} is a map of fields")));
    };
    let mut fields: Fields<'_, '_> = Vec::with_capacity(map.len());
    for (key, value) in map {
        let YamlData::Representation(name, ..) = &key.data else {
            return Err(at(
                line(key),
                format_args!("the name of a field of {what} is not a text"),
            ));
        };
        if fields.iter().any(|(known, ..)| *known == name.as_ref()) {
            return Err(at(line(key), format_args!("{name}: is given twice")));
        }
        fields.push((name.as_ref(), line(key), value));
    }
    Ok(fields)
}

/// The nodes of a list; none if nothing is written.
pub(super) fn list<'n, 'y>(
    node: &'n MarkedYaml<'y>,
    what: &str,
) -> Result<&'n [MarkedYaml<'y>], String> {
    match &node.data {
        YamlData::Sequence(nodes) => Ok(nodes),
        _ if matches!(text(node, what), Ok(None)) => Ok(&[]),
        _ => Err(at(line(node), format_args!("{what}: is a list"))),
    }
}

/// A scalar as it is written; nothing if it is empty or null.
pub(super) fn text<'n>(node: &'n MarkedYaml<'_>, what: &str) -> Result<Option<&'n str>, String> {
    let YamlData::Representation(text, style, _) = &node.data else {
        return Err(at(line(node), format_args!("{what}: is a text")));
    };
    let is_null =
        *style == ScalarStyle::Plain && matches!(text.as_ref(), "~" | "null" | "Null" | "NULL");
    Ok(Some(text.as_ref()).filter(|text| !text.is_empty() && !is_null))
}

/// A scalar that says yes or no, in the words of the readers that envoy/ratelimit has.
pub(super) fn flag(node: &MarkedYaml<'_>, what: &str) -> Result<bool, String> {
    let text = text(node, what)?.unwrap_or("false");
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => Ok(true),
        "false" | "no" | "off" | "n" => Ok(false),
        _ => Err(at(
            line(node),
            format_args!("{what}: {text:?} is neither true nor false"),
        )),
    }
}

/// A scalar that is a whole number.
pub(super) fn number(node: &MarkedYaml<'_>, what: &str) -> Result<u32, String> {
    let text = text(node, what)?.unwrap_or_default();
    text.parse().map_err(|_| {
        at(
            line(node),
            format_args!(
                "{what}: {text:?} is not a whole number from 0 to {}",
                u32::MAX
            ),
        )
    })
}
