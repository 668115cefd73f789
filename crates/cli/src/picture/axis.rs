//! The axes of a chart.

use crate::figures::{grouped, moment};

/// An axis.
#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) words: String,
    least: f64,
    most: f64,
    is_logarithmic: bool,
    labels: Labels,
}

/// The form of the numbers at an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    Numbers,
    Percents,
    /// Microseconds since 1970.
    Moments,
}

impl Axis {
    /// From nothing to this, in equal steps.
    pub(crate) fn up_to(most: f64, labels: Labels, words: impl Into<String>) -> Self {
        Self::between(0.0, most, labels, words)
    }

    /// Between these, in equal steps.
    pub(crate) fn between(least: f64, most: f64, labels: Labels, words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            least,
            most: if most > least { most } else { least + 1.0 },
            is_logarithmic: false,
            labels,
        }
    }

    /// Between the powers of ten around these, each as far from the next.
    pub(crate) fn powers(least: f64, most: f64, words: impl Into<String>) -> Self {
        let least = least.max(1e-9).log10().floor();
        let most = most.max(1e-9).log10().ceil();
        Self {
            words: words.into(),
            least,
            most: if most > least { most } else { least + 1.0 },
            is_logarithmic: true,
            labels: Labels::Numbers,
        }
    }

    /// The place of a value: 0 at the beginning, 1 at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let value = match self.is_logarithmic {
            true => value.max(1e-9).log10(),
            false => value,
        };
        ((value - self.least) / (self.most - self.least)).clamp(0.0, 1.0)
    }

    /// The values that are written at the axis.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        if self.is_logarithmic {
            let decades = self.most - self.least;
            let step = (decades / 8.0).ceil().max(1.0);
            return steps(self.least, self.most, step)
                .map(|power| 10_f64.powf(power))
                .map(|value| (value, number(value)))
                .collect();
        }
        if self.labels == Labels::Moments {
            let third = (self.most - self.least) / 3.0;
            let ticks = steps(self.least, self.most + third / 2.0, third);
            return ticks.map(|value| (value, time(value))).collect();
        }
        // One, two or five times a power of ten, four to eight of them.
        let wanted = (self.most - self.least) / 4.0;
        let power = 10_f64.powf(wanted.log10().floor());
        let step = [5.0, 2.0, 1.0].map(|times| times * power);
        let step = step.into_iter().find(|step| *step <= wanted);
        let ticks = steps(self.least, self.most * 1.000_001, step.unwrap_or(power));
        ticks.map(|value| (value, self.label(value))).collect()
    }

    fn label(&self, value: f64) -> String {
        match self.labels {
            Labels::Percents => format!("{} %", number(value)),
            _ => number(value),
        }
    }
}

fn steps(from: f64, to: f64, step: f64) -> impl Iterator<Item = f64> {
    let next = move |value: &f64| Some(value + step);
    std::iter::successors(Some(from), next)
        .take(20)
        .take_while(move |value| *value <= to)
}

/// `1,000`, `0.05`.
fn number(value: f64) -> String {
    let whole = value.round();
    if (value - whole).abs() < 1e-6 * value.abs().max(1.0) && whole >= 0.0 {
        let digits = format!("{whole:.0}");
        return digits.parse().map_or(digits, grouped);
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').to_owned()
}

/// A moment without its seconds.
fn time(value: f64) -> String {
    let text = format!("{value:.0}").parse().map(moment);
    let text = text.unwrap_or_default();
    text.get(..16).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_numbers_that_people_read() {
        let words = |axis: &Axis| {
            axis.ticks()
                .into_iter()
                .map(|(_, words)| words)
                .collect::<Vec<_>>()
        };
        let percents = Axis::up_to(100.0, Labels::Percents, "");
        assert_eq!(
            words(&percents),
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
        let small = Axis::up_to(0.1, Labels::Numbers, "");
        assert_eq!(words(&small), ["0", "0.02", "0.04", "0.06", "0.08", "0.1"]);
        let powers = Axis::powers(0.02, 5_000.0, "");
        assert_eq!(
            words(&powers),
            ["0.01", "0.1", "1", "10", "100", "1,000", "10,000"]
        );
        let day = Axis::between(1.7e15, 1.7e15 + 86_400e6, Labels::Moments, "");
        assert_eq!(words(&day).len(), 4);
        assert_eq!(words(&day)[0], "2023-11-14 22:13");
        // Nothing at all has an axis, too.
        assert!(words(&Axis::up_to(0.0, Labels::Numbers, "")).len() > 1);
    }
}
