//! The page about metrics lists those that there are, as the code makes them.

#![cfg(all(feature = "axum", feature = "metrics"))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::common::figured::Figured;
use metrics::{
    Counter, Gauge, Histogram, Key as MetricKey, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tollgate::{Limiter, MemoryBackend, Policy, Quota};

/// Keeps what it is told about each metric: its type, its unit and its labels.
#[derive(Default)]
struct Catalogue(Mutex<BTreeMap<String, Row>>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    kind: &'static str,
    unit: String,
    labels: BTreeSet<String>,
}

impl Catalogue {
    fn describe(&self, name: &KeyName, kind: &'static str, unit: Option<Unit>, help: &str) {
        assert!(help.ends_with('.'), "{help}");
        let mut rows = self.0.lock().unwrap();
        let row = rows.entry(name.as_str().to_owned()).or_default();
        (row.kind, row.unit) = (kind, unit.unwrap().as_str().to_owned());
    }

    fn register(&self, key: &MetricKey) {
        let mut rows = self.0.lock().unwrap();
        let labels = key.labels().map(|label| label.key().to_owned());
        rows.get_mut(key.name()).unwrap().labels.extend(labels);
    }
}

impl Recorder for Catalogue {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, "counter", unit, &help);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, "gauge", unit, &help);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&name, "histogram", unit, &help);
    }

    fn register_counter(&self, key: &MetricKey, _metadata: &Metadata<'_>) -> Counter {
        self.register(key);
        Counter::noop()
    }

    fn register_gauge(&self, key: &MetricKey, _metadata: &Metadata<'_>) -> Gauge {
        self.register(key);
        Gauge::noop()
    }

    fn register_histogram(&self, key: &MetricKey, _metadata: &Metadata<'_>) -> Histogram {
        self.register(key);
        Histogram::noop()
    }
}

/// The rows of the tables of the page whose first cell is code, each cell without its backticks.
fn documented() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    lines.map(cells).collect()
}

#[tokio::test]
async fn the_page_lists_each_metric_with_its_type_unit_and_labels() {
    // given
    let catalogue = Catalogue::default();
    let _installed = metrics::set_default_local_recorder(&catalogue);
    let limiter = Limiter::builder().policy(Policy::new("api", Quota::per_hour(1)));
    let limiter = limiter.backend(Figured(MemoryBackend::new())).metrics();
    let limiter = limiter.build().unwrap();

    // when
    let _ruled = limiter.check("api", "alice").await;
    limiter.publish_metrics();

    // then
    let mut pages = BTreeMap::new();
    for row in documented().into_iter().filter(|row| row.len() == 5) {
        let [name, kind, unit, labels, question] = &row[..] else {
            panic!("{row:?}");
        };
        assert!(question.contains('?'), "{name} answers no question");
        let kind = ["counter", "gauge", "histogram"]
            .into_iter()
            .find(|it| it == kind);
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let row = Row {
            kind: kind.unwrap(),
            unit: unit.clone(),
            labels: labels.map(str::to_owned).collect(),
        };
        pages.insert(name.clone(), row);
    }
    assert_eq!(pages, *catalogue.0.lock().unwrap());
}

#[test]
fn the_names_are_such_as_prometheus_wants_and_the_page_lists_each_result() {
    for row in documented() {
        let name = &row[0];
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(name.chars().all(is_plain), "{name}");
        if row.len() == 5 {
            assert!(name.starts_with("rate_limiting_"), "{name}");
            assert_eq!(name.ends_with("_total"), row[1] == "counter", "{name}");
            assert_eq!(name.contains("_bytes"), row[2] == "bytes", "{name}");
            assert_eq!(name.contains("_seconds"), row[2] == "seconds", "{name}");
        }
    }
    let results: Vec<_> = documented()
        .into_iter()
        .filter(|row| row.len() == 2)
        .collect();
    let source = include_str!("../../../limiter/src/limiter/tally.rs");
    let (_, list) = source.split_once("const RESULTS").unwrap();
    let list = list.split_once("];\n").unwrap().0;
    let names: Vec<_> = list.split('"').skip(1).step_by(2).collect();
    let listed: Vec<_> = results.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(listed, names);
}
