//! `BENCHMARKS.md` and the table in `README.md`, written from the report and never by hand.

mod summary;
mod tables;

use std::fs;
use std::path::Path;

use super::figures::figure;
use super::floors::{Bound, Floor, floors};
use super::report::Report;
use crate::Result;

pub(super) fn write(report: &Report) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::write(root.join("BENCHMARKS.md"), page(report))?;
    summary::write(report, &root.join("README.md"))
}

const METHOD: &str = include_str!("pages/method.md");
const PROGRAM: &str = include_str!("pages/program.md");
const NOTES: &str = include_str!("pages/notes.md");
const LEFT_OUT: &str = include_str!("pages/left_out.md");

fn page(report: &Report) -> String {
    let setting = &report.setting;
    let mut page = METHOD.to_owned();
    page.push_str(&format!(
        "\nMeasured on {} cores of {}, {}, {} run. {}.\n",
        setting.cores,
        setting.processor,
        setting.system,
        if report.quick { "a quick" } else { "a full" },
        setting.versions.join(", ")
    ));
    page.push_str(&tables::all(report));
    page.push_str(PROGRAM);
    page.push_str(NOTES);
    page.push_str(&standing(&floors(report)));
    page.push_str(LEFT_OUT);
    for sentence in &report.not_measured {
        page.push_str(&format!("* {sentence}\n"));
    }
    page
}

/// The bounds of the project, and this run's results.
fn standing(floors: &[Floor]) -> String {
    let mut missed = floors.iter().filter(|floor| !floor.is_met()).peekable();
    let mut text = "\n## Bounds\n\n".to_owned();
    if missed.peek().is_none() {
        text.push_str(&format!(
            "All {} bounds that the project has set are kept in this run.\n",
            floors.len()
        ));
        return text;
    }
    text.push_str(&format!(
        "Of {} bounds that the project has set, this run misses:\n\n",
        floors.len()
    ));
    for floor in missed {
        text.push_str(&format!("* {}\n", sentence(floor)));
    }
    text
}

/// A floor in words.
pub(super) fn sentence(floor: &Floor) -> String {
    let (wanted, bound) = match floor.bound {
        Bound::AtLeast(bound) => ("at least", bound),
        Bound::AtMost(bound) => ("at most", bound),
    };
    let Floor { what, measured, .. } = floor;
    format!(
        "{what}: {}, and is to be {wanted} {}",
        figure(*measured),
        figure(bound)
    )
}
