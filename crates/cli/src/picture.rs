//! Pictures: charts as SVG, and a page with them that opens without a network.
//!
//! Tones differ in brightness and in their dashes as well as in colour, so that a page printed in grey says the same.

#![allow(
    clippy::float_arithmetic,
    reason = "places on a page, and nothing that decides"
)]

mod axis;
mod escape;
mod page;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::arguments::PictureArguments;
use crate::failure::Failure;
use crate::figures::{duration, millionths};
use crate::timeline::Timeline;

pub(crate) use self::axis::{Axis, Labels};
pub(crate) use self::page::{Page, Section};

use self::escape::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 280.0;
/// The frame of the plot: left, top, right, bottom.
const FRAME: [f64; 4] = [70.0, 44.0, WIDTH - 20.0, HEIGHT - 44.0];

/// Spans over time.
const SPANS: usize = 120;

/// The most points of a line. More would not be seen.
const POINTS: usize = 400;

/// A colour with its dashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Dark,
    Middle,
    Light,
}

impl Tone {
    fn colour(self) -> &'static str {
        match self {
            Self::Dark => "#12406b",
            Self::Middle => "#c4581b",
            Self::Light => "#e9b44c",
        }
    }

    fn dashes(self) -> &'static str {
        match self {
            Self::Dark => "none",
            Self::Middle => "7 3",
            Self::Light => "2 3",
        }
    }
}

/// The content of a chart.
#[derive(Debug)]
pub(crate) enum Marks {
    /// Columns, each from one place to another, and so high.
    Columns(Vec<(f64, f64, f64)>),
    /// A line through points.
    Line(Vec<(f64, f64)>),
    /// Points with words.
    Notes(Vec<(f64, f64, String)>),
}

/// A chart.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) marks: Vec<(String, Tone, Marks)>,
}

impl Chart {
    /// The chart as an element that stands alone or in a page.
    pub(crate) fn svg(&self) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n<title>{}</title>\n{}</svg>\n",
            escape(&self.title),
            self.body()
        )
    }

    fn body(&self) -> String {
        let [left, top, right, bottom] = FRAME;
        let mut svg = String::new();
        let mut put = |element: String| {
            svg.push_str(&element);
            svg.push('\n');
        };
        put(format!(
            "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"
        ));
        put(text(left, 18.0, "start", 15, &self.title));
        for (value, words) in self.y.ticks() {
            let at = self.at_y(value);
            put(format!(
                "<path d=\"M{left:.1} {at:.1}H{right:.1}\" stroke=\"#ddd\"/>"
            ));
            put(text(left - 6.0, at + 4.0, "end", 11, &words));
        }
        let ticks = self.x.ticks();
        for (place, (value, words)) in ticks.iter().enumerate() {
            let at = self.at_x(*value);
            put(format!(
                "<path d=\"M{at:.1} {bottom:.1}v4\" stroke=\"#444\"/>"
            ));
            // Long words at the ends stay within the picture.
            let anchor = match (place, ticks.len() - place) {
                _ if words.len() < 8 => "middle",
                (0, _) => "start",
                (_, 1) => "end",
                _ => "middle",
            };
            put(text(at, bottom + 17.0, anchor, 11, words));
        }
        for (_, tone, marks) in &self.marks {
            put(self.marks(*tone, marks));
        }
        put(format!(
            "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#444\"/>"
        ));
        put(text(right, bottom + 34.0, "end", 11, &self.x.words));
        put(text(left, top - 8.0, "start", 11, &self.y.words));
        let mut at = right;
        for (name, tone, marks) in self.marks.iter().rev() {
            if name.is_empty() {
                continue;
            }
            put(text(at, top - 8.0, "end", 11, name));
            // Characters of this size are some six units wide.
            at -= 6.2 * characters(name) + 6.0;
            put(swatch(at - 20.0, top - 12.0, *tone, marks));
            at -= 34.0;
        }
        svg
    }

    fn marks(&self, tone: Tone, marks: &Marks) -> String {
        let [_, _, _, bottom] = FRAME;
        let colour = tone.colour();
        match marks {
            Marks::Columns(columns) => {
                let mut path = String::new();
                for (from, to, height) in columns.iter().filter(|(_, _, height)| *height > 0.0) {
                    let (from, to) = (self.at_x(*from), self.at_x(*to));
                    // Every height above 0 is seen.
                    let top = self.at_y(*height).min(bottom - 1.0);
                    let wide = (to - from - 0.5).max(0.5);
                    let _written = write!(
                        path,
                        "M{from:.1} {bottom:.1}V{top:.1}h{wide:.1}V{bottom:.1}z"
                    );
                }
                format!("<path d=\"{path}\" fill=\"{colour}\"/>")
            }
            Marks::Line(points) => {
                let mut path = String::new();
                for (place, (x, y)) in thin(points).into_iter().enumerate() {
                    let letter = if place == 0 { 'M' } else { 'L' };
                    let (x, y) = (self.at_x(x), self.at_y(y));
                    let _written = write!(path, "{letter}{x:.1} {y:.1}");
                }
                let dashes = tone.dashes();
                format!(
                    "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>"
                )
            }
            Marks::Notes(notes) => {
                let mut all = String::new();
                for (x, y, words) in notes {
                    let (x, y) = (self.at_x(*x), self.at_y(*y));
                    let _written = write!(
                        all,
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\" stroke=\"#fff\"/>"
                    );
                    let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
                    let aside = if x > WIDTH / 2.0 { -7.0 } else { 7.0 };
                    all.push_str(&text(x + aside, y - 7.0, anchor, 11, words));
                }
                all
            }
        }
    }

    fn at_x(&self, value: f64) -> f64 {
        let [left, _, right, _] = FRAME;
        left + self.x.share(value) * (right - left)
    }

    fn at_y(&self, value: f64) -> f64 {
        let [_, top, _, bottom] = FRAME;
        bottom - self.y.share(value) * (bottom - top)
    }
}

fn text(x: f64, y: f64, anchor: &str, size: u8, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{size}\" fill=\"#222\">{}</text>",
        escape(words)
    )
}

fn swatch(x: f64, y: f64, tone: Tone, marks: &Marks) -> String {
    let colour = tone.colour();
    match marks {
        Marks::Line(_) => format!(
            "<path d=\"M{x:.1} {:.1}h20\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
            y + 8.0,
            tone.dashes()
        ),
        Marks::Columns(_) => {
            format!(
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>",
                x + 6.0
            )
        }
        Marks::Notes(_) => format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\" fill=\"{colour}\"/>",
            x + 12.0,
            y + 7.0
        ),
    }
}

/// Fewer points of a line, with the first and the last.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let step = points.len().div_ceil(POINTS).max(1);
    let mut thin: Vec<_> = points.iter().copied().step_by(step).collect();
    if let Some(last) = points.last().filter(|last| thin.last() != Some(last)) {
        thin.push(*last);
    }
    thin
}

fn characters(text: &str) -> f64 {
    f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX))
}

/// A number as a place. Beyond 2^53 it is rounded, which no eye sees.
pub(crate) fn place(number: u64) -> f64 {
    number as f64
}

/// A part of a whole as a place.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    place(part) / place(whole.max(1))
}

/// Refused shares over time: columns of one set of limits, or a line for each of several.
pub(crate) fn over_time(title: &str, limits: Vec<(String, Tone, &Timeline)>) -> Chart {
    let is_one = limits.len() == 1;
    let (mut start, mut end, mut most, mut width_us) = (f64::MAX, 0.0_f64, 0.1_f64, 0);
    let marks = limits.into_iter().map(|(name, tone, timeline)| {
        let (start_us, each_us, spans) = timeline.columns(SPANS);
        width_us = each_us;
        let columns = spans.iter().enumerate().map(|(number, span)| {
            let from_us = start_us + number as u64 * each_us;
            let share = place(millionths(span.refused, span.requests)) / 10_000.0;
            (place(from_us), place(from_us + each_us), share)
        });
        let columns: Vec<_> = columns.collect();
        for (from, to, share) in &columns {
            start = start.min(*from);
            end = end.max(*to);
            most = most.max(*share);
        }
        let middles = columns
            .iter()
            .map(|(from, to, share)| ((from + to) / 2.0, *share));
        let marks = match is_one {
            false => Marks::Line(middles.collect()),
            true => Marks::Columns(columns),
        };
        (name, tone, marks)
    });
    let marks = marks.collect();
    Chart {
        title: title.to_owned(),
        x: Axis::between(start, end, Labels::Moments, "time (UTC)"),
        y: Axis::up_to(
            most,
            Labels::Percents,
            format!("refused of the requests in {}", duration(width_us)),
        ),
        marks,
    }
}

/// All charts below each other, in one file.
fn document<'c>(charts: impl Iterator<Item = &'c Chart> + Clone) -> String {
    let all = HEIGHT * f64::from(u32::try_from(charts.clone().count()).unwrap_or(u32::MAX));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {all}\" width=\"{WIDTH}\" height=\"{all}\">\n"
    );
    let mut at = 0.0;
    for chart in charts {
        let _written = write!(
            svg,
            "<g transform=\"translate(0 {at})\">\n{}</g>\n",
            chart.body()
        );
        at += HEIGHT;
    }
    svg + "</svg>\n"
}

/// Writes the pictures that are asked for: the charts of a page, or the page.
pub(crate) fn write_asked(
    asked: &PictureArguments,
    page: impl FnOnce() -> Page,
) -> Result<(), Failure> {
    if asked.plot.is_none() && asked.html.is_none() {
        return Ok(());
    }
    let page = page();
    if let Some(path) = &asked.plot {
        write(path, &document(page.charts()))?;
    }
    asked
        .html
        .as_deref()
        .map_or(Ok(()), |path| write(path, &page.html()))
}

fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let written = fs::write(path, content);
    written.map_err(|error| Failure::invalid(format_args!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The brightness of a colour in grey, of 255.
    fn brightness(colour: &str) -> u32 {
        let part = |from: usize| u32::from_str_radix(&colour[from..from + 2], 16).unwrap();
        (299 * part(1) + 587 * part(3) + 114 * part(5)) / 1_000
    }

    #[test]
    fn tones_differ_in_grey_and_in_their_dashes() {
        let tones = [Tone::Dark, Tone::Middle, Tone::Light];
        let grey = tones.map(|tone| brightness(tone.colour()));
        assert!(
            grey.windows(2).all(|pair| pair[0] + 50 <= pair[1]),
            "{grey:?}"
        );
        assert!(grey[2] < 200, "white paper");
        let dashes = tones.map(Tone::dashes);
        assert!(dashes[0] != dashes[1] && dashes[1] != dashes[2]);
    }
}
