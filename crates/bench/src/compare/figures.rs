//! Numbers in the form that people read.

/// With as many digits as are significant: 0.93, 12.4, 1,234.
pub(super) fn figure(value: f64) -> String {
    if value.abs() >= 100.0 {
        thousands(value.round())
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Whole, in groups of three.
pub(crate) fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if value < 0.0 {
        format!("-{grouped}")
    } else {
        grouped
    }
}

/// A dash stands for a missing count.
pub(super) fn counted(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), thousands)
}

/// A table in Markdown; the first column is text, the others are numbers.
pub(super) struct Table(String);

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        let line = format!(
            "| {} |\n| --- |{}\n",
            head.join(" | "),
            " ---: |".repeat(head.len() - 1)
        );
        Self(line)
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.0.push_str(&format!("| {} |\n", cells.join(" | ")));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}
