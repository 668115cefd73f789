//! Requests and refusals over time, in a bounded number of equal spans.

/// The most spans that are kept. With more, several become one.
const MOST: usize = 4_096;

/// Widths of columns that people read easily, in seconds.
const WIDTHS_S: &[u64] = &[
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400,
];

const DAY_US: u64 = 86_400_000_000;

/// Widths of the spans that are kept, in seconds. Each divides the next one, so that each column of a picture is of whole spans.
const KEPT_S: &[u64] = &[
    1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400,
];

/// Requests and refusals of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) requests: u64,
    pub(crate) refused: u64,
}

impl Span {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.refused += other.refused;
    }
}

/// Requests and refusals over time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// The beginning of the first span, a multiple of its width.
    start_us: u64,
    width_us: u64,
    /// The end of the present span, which nearly every request is in.
    present_end_us: u64,
    spans: Vec<Span>,
}

impl Timeline {
    /// Counts a request. Times do not step back.
    #[inline]
    pub(crate) fn count(&mut self, time_us: u64, is_refused: bool) {
        if time_us >= self.present_end_us {
            self.go_on(time_us);
        }
        if let Some(span) = self.spans.last_mut() {
            span.requests += 1;
            span.refused += u64::from(is_refused);
        }
    }

    fn go_on(&mut self, time_us: u64) {
        if self.spans.is_empty() {
            self.width_us = 1_000_000;
            self.start_us = time_us - time_us % self.width_us;
        }
        while self.place(time_us) >= MOST {
            self.widen(wider(self.width_us));
        }
        let spans = self.place(time_us) + 1;
        self.spans.resize(spans, Span::default());
        let all_us = self.width_us.saturating_mul(spans as u64);
        self.present_end_us = self.start_us.saturating_add(all_us);
    }

    fn place(&self, time_us: u64) -> usize {
        usize::try_from((time_us - self.start_us) / self.width_us).unwrap_or(usize::MAX)
    }

    fn widen(&mut self, width_us: u64) {
        let start_us = self.start_us - self.start_us % width_us;
        let mut spans: Vec<Span> = Vec::new();
        for (number, span) in self.spans.iter().enumerate() {
            let at_us = self.start_us + number as u64 * self.width_us;
            let place = usize::try_from((at_us - start_us) / width_us).unwrap_or(usize::MAX);
            spans.resize(spans.len().max(place + 1), Span::default());
            spans[place].add(*span);
        }
        (self.start_us, self.width_us, self.spans) = (start_us, width_us, spans);
    }

    /// The beginning of the first span, the width of each, and all of them: as many as fit, in a width that people read.
    pub(crate) fn columns(&self, most: usize) -> (u64, u64, Vec<Span>) {
        let mut copy = Self {
            spans: self.spans.clone(),
            ..*self
        };
        let all_us = self.width_us.saturating_mul(self.spans.len() as u64);
        let mut widths = WIDTHS_S.iter().map(|seconds| seconds * 1_000_000);
        let fits = |width_us: &u64| {
            width_us.is_multiple_of(self.width_us) && all_us / width_us < most as u64
        };
        let by_days = || {
            let unit_us = self.width_us.max(DAY_US);
            all_us.div_ceil(most as u64).next_multiple_of(unit_us)
        };
        let width_us = widths.find(fits).unwrap_or_else(by_days);
        if width_us != copy.width_us {
            copy.widen(width_us);
        }
        (copy.start_us, copy.width_us, copy.spans)
    }
}

/// The next width of spans that are kept; beyond days, twice as many days.
fn wider(width_us: u64) -> u64 {
    let mut widths = KEPT_S.iter().map(|seconds| seconds * 1_000_000);
    let next = widths.find(|wider_us| *wider_us > width_us);
    next.unwrap_or(2 * width_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_traffic_is_as_much_in_each_column() {
        // Midnight, so that the first column and the last one are whole.
        let start_us = 20_780 * DAY_US;
        for (days, step) in [(1, 1), (7, 1), (30, 600), (400, 600), (9_000, 3_600)] {
            let mut timeline = Timeline::default();
            for request in 0..days * 86_400 / step {
                timeline.count(start_us + request * step * 1_000_000, true);
            }
            for most in [7, 40, 60, 1_000] {
                let (_, width_us, spans) = timeline.columns(most);
                let in_each = width_us / 1_000_000 / step;
                let inner = &spans[1..spans.len() - 1];
                assert!(
                    inner.iter().all(|span| span.requests == in_each),
                    "{days} days in {most} columns of {width_us} us: {spans:?}"
                );
            }
        }
    }

    #[test]
    fn the_last_of_all_times_has_its_place() {
        let mut timeline = Timeline::default();
        for time_us in [0, 1, u64::MAX - 1, u64::MAX, u64::MAX] {
            timeline.count(time_us, false);
        }
        let (_, _, spans) = timeline.columns(40);
        assert_eq!(spans.iter().map(|span| span.requests).sum::<u64>(), 5);
    }

    #[test]
    fn every_request_is_counted_once_however_long_the_log_is() {
        let mut timeline = Timeline::default();
        let mut time_us = 1_700_000_000_123_456;
        for number in 0..100_000_u64 {
            timeline.count(time_us, number % 10 == 0);
            time_us += 7_000_000;
        }
        for most in [1, 2, 60, 4_096] {
            let (start_us, width_us, spans) = timeline.columns(most);
            assert!(start_us <= 1_700_000_000_123_456 && start_us % width_us == 0);
            assert!(spans.len() <= most + 1, "{} of {most}", spans.len());
            assert_eq!(spans.iter().map(|span| span.requests).sum::<u64>(), 100_000);
            assert_eq!(spans.iter().map(|span| span.refused).sum::<u64>(), 10_000);
        }
    }
}
