//! A chart as SVG: curves and points over two axes, in colours that can be read on light and on dark pages.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// The frame of the plot.
const LEFT: f64 = 80.0;
const TOP: f64 = 44.0;
const RIGHT: f64 = WIDTH - 24.0;
const BOTTOM: f64 = HEIGHT - 56.0;
/// The height of a line of the legend.
const LINE: f64 = 17.0;

/// Colours with their dashes. On a page printed in grey the dashes tell them apart.
const TONES: [(&str, &str); 5] = [
    ("one", "none"),
    ("two", "8 3"),
    ("three", "3 3"),
    ("four", "10 3 2 3"),
    ("five", "1 4"),
];

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.grid{stroke:#ddd}.frame{stroke:#888}rect{fill:#fff}\
.one{stroke:#12406b;fill:#12406b}.two{stroke:#c4581b;fill:#c4581b}.three{stroke:#2f7d32;fill:#2f7d32}\
.four{stroke:#7b3fa0;fill:#7b3fa0}.five{stroke:#555;fill:#555}.curve{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#333}.frame{stroke:#888}rect{fill:#111}\
.one{stroke:#7db7ee;fill:#7db7ee}.two{stroke:#f2a15f;fill:#f2a15f}.three{stroke:#82c986;fill:#82c986}\
.four{stroke:#cfa0ee;fill:#cfa0ee}.five{stroke:#bbb;fill:#bbb}.curve{fill:none}}";

/// The scale of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scale {
    Log,
    Linear,
}

/// An axis: its words, its scale, and its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) scale: Scale,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Axis {
    /// The part of the way from one end to the other.
    fn part(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
        };
        part.clamp(0.0, 1.0)
    }

    fn marks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => (0..=5)
                .map(|step| self.from + (self.to - self.from) * f64::from(step) / 5.0)
                .collect(),
            Scale::Log => {
                let decades = self.from.log10().ceil() as i32..=self.to.log10().floor() as i32;
                decades.map(|power| 10_f64.powi(power)).collect()
            }
        }
    }
}

/// A curve, with the points that were measured beside it.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) measured: Vec<(f64, f64)>,
}

/// Draws a chart.
pub(crate) fn draw(title: &str, [x, y]: [Axis; 2], curves: &[Curve]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>{STYLE}</style>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"
    );
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    let at = |(a, b): (f64, f64)| {
        let left = LEFT + x.part(a) * (RIGHT - LEFT);
        let top = BOTTOM - y.part(b) * (BOTTOM - TOP);
        (tenth(left), tenth(top))
    };
    line(format!(
        "<text x=\"{LEFT}\" y=\"24\" style=\"font-weight:bold\">{title}</text>"
    ));
    for mark in x.marks() {
        let (left, _) = at((mark, y.from));
        line(format!(
            "<path class=\"grid\" d=\"M{left} {TOP}V{BOTTOM}\"/>"
        ));
        let below = BOTTOM + 18.0;
        line(format!(
            "<text x=\"{left}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            figure(mark)
        ));
    }
    for mark in y.marks() {
        let (_, top) = at((x.from, mark));
        line(format!(
            "<path class=\"grid\" d=\"M{LEFT} {top}H{RIGHT}\"/>"
        ));
        let (left, middle) = (LEFT - 8.0, top + 4.0);
        line(format!(
            "<text x=\"{left}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            figure(mark)
        ));
    }
    line(format!(
        "<path class=\"frame\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>"
    ));
    let (across, below) = ((LEFT + RIGHT) / 2.0, HEIGHT - 14.0);
    line(format!(
        "<text x=\"{across}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
        x.label
    ));
    let middle = (TOP + BOTTOM) / 2.0;
    line(format!(
        "<text transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        y.label
    ));
    for (curve, (tone, dashes)) in curves.iter().zip(TONES) {
        let mut way = String::new();
        for (place, point) in curve.points.iter().enumerate() {
            let (left, top) = at(*point);
            let letter = if place == 0 { 'M' } else { 'L' };
            let _infallible = write!(way, "{letter}{left} {top}");
        }
        line(format!(
            "<path class=\"curve {tone}\" stroke-dasharray=\"{dashes}\" d=\"{way}\"/>"
        ));
        for point in &curve.measured {
            let (left, top) = at(*point);
            line(format!(
                "<circle class=\"{tone}\" cx=\"{left}\" cy=\"{top}\" r=\"5\"/>"
            ));
        }
    }
    legend(&mut line, curves);
    svg.push_str("</svg>\n");
    svg
}

fn legend(line: &mut impl FnMut(String), curves: &[Curve]) {
    let is_measured = curves.iter().any(|curve| !curve.measured.is_empty());
    for (place, (curve, (tone, dashes))) in curves.iter().zip(TONES).enumerate() {
        let middle = TOP + 8.0 + LINE * place as f64;
        let [from, to, words] = [RIGHT - 250.0, RIGHT - 216.0, RIGHT - 208.0];
        line(format!(
            "<path class=\"curve {tone}\" stroke-dasharray=\"{dashes}\" d=\"M{from} {middle}H{to}\"/>"
        ));
        line(format!(
            "<text x=\"{words}\" y=\"{}\">{}</text>",
            middle + 4.0,
            curve.name
        ));
    }
    if is_measured {
        let middle = TOP + 8.0 + LINE * curves.len() as f64;
        line(format!(
            "<circle class=\"five\" cx=\"{}\" cy=\"{middle}\" r=\"5\"/>",
            RIGHT - 233.0
        ));
        line(format!(
            "<text x=\"{}\" y=\"{}\">measured, in the curve's colour</text>",
            RIGHT - 208.0,
            middle + 4.0
        ));
    }
}

fn tenth(place: f64) -> f64 {
    (place * 10.0).round() / 10.0
}

/// A figure at an axis.
fn figure(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", tenth(value / 1e6))
    } else if value >= 1e4 {
        format!("{}k", tenth(value / 1e3))
    } else {
        format!("{}", (value * 1e4).round() / 1e4)
    }
}
