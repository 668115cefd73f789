//! `docs/scale.md` has the figures of the program, and the program still has these figures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_scale::runs::{self, Row};
use tollgate_scale::{page, pictures};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn rows(name: &str) -> Vec<Row> {
    let text = fs::read_to_string(docs().join("scale").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn runs_that_take_no_time_have_the_figures_that_are_written_down() {
    let (all, written) = (runs::all(), rows("figures.json"));
    assert_eq!(all.len(), written.len());
    for (run, row) in all.iter().zip(&written) {
        assert!(run.is_of(row), "{} {} {}", run.table, run.line, run.x);
    }
    let mut done = 0;
    for (run, row) in all.iter().zip(&written) {
        let is_quick = match run.table {
            "company" => run.x <= 100.0,
            "bound" => run.x <= 10.0,
            "choice" => run.x <= 1_000.0 && run.settings.lease.is_none(),
            _ => false,
        };
        if is_quick {
            done += 1;
            assert_eq!(run.figures(), *row);
        }
    }
    assert!(done > 20, "{done}");
}

#[test]
fn the_page_has_the_tables_and_the_plots_of_the_figures() {
    let (simulated, measured) = (rows("figures.json"), rows("measured.json"));
    let page = fs::read_to_string(docs().join("scale.md")).unwrap();

    for table in page::tables(&simulated, &measured) {
        assert!(table.lines().count() > 3);
        assert!(page.contains(&table), "not on the page:\n{table}");
    }
    for (name, picture) in pictures::all(&simulated, &measured) {
        let file = fs::read_to_string(docs().join("scale").join(name)).unwrap();
        assert!(file == picture, "{name}: draw it anew");
        assert!(page.contains(&format!("(scale/{name})")), "{name}");
    }
}

/// The bounds of the documentation hold in each run and each measurement.
#[test]
fn nothing_on_the_page_is_above_the_bound() {
    for row in rows("figures.json") {
        let most = if row.line.starts_with("leases") {
            1.0
        } else {
            0.0
        };
        if row.table != "regions" && row.table != "cut" {
            assert!(
                row.excess <= most,
                "{} {}: {}",
                row.table,
                row.line,
                row.excess
            );
        }
    }
    // Requests that pass one after the other may be heard together.
    for row in rows("measured.json") {
        let most = if row.line.starts_with("leases") {
            1.0
        } else {
            0.5
        };
        assert!(
            row.excess <= most,
            "{} {}: {}",
            row.table,
            row.line,
            row.excess
        );
    }
}
