//! The examples of the guide to gateways.

const GUIDE: &str = include_str!("../../../../../docs/gateways.md");

/// The first example of this language behind this heading.
pub(crate) fn example(heading: &str, language: &str) -> String {
    let (_, section) = GUIDE.split_once(&format!("\n## {heading}\n")).unwrap();
    let (_, behind) = section.split_once(&format!("```{language}\n")).unwrap();
    behind.split_once("```").unwrap().0.to_owned()
}
