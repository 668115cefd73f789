//! Requests and refusals over time, in a bounded number of equal spans.

/// The most spans that are kept. With more, two become one.
const MOST: usize = 4_096;

/// Widths that people read easily, in microseconds: seconds, minutes, hours, days.
const WIDTHS_S: &[u64] = &[
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200,
    86_400,
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
            self.widen(2 * self.width_us);
        }
        let spans = self.place(time_us) + 1;
        self.spans.resize(spans, Span::default());
        self.present_end_us = self.start_us + spans as u64 * self.width_us;
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
        let all_us = self.spans.len() as u64 * self.width_us;
        let widths = WIDTHS_S.iter().map(|seconds| seconds * 1_000_000);
        let fits = |width_us: &u64| *width_us >= self.width_us && all_us / width_us < most as u64;
        let day_us = 86_400_000_000;
        let days = all_us.div_ceil(most as u64).div_ceil(day_us).max(1);
        let width_us = widths.clone().find(fits).unwrap_or(days * day_us);
        if width_us != copy.width_us {
            copy.widen(width_us);
        }
        (copy.start_us, copy.width_us, copy.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
