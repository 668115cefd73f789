//! The plots, as SVG.

use std::error::Error;
use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::report::{InFlight, Keys, Pace, Report};
use crate::Result;

/// Legible on white and apart for those who see no red or no green; ours first.
const COLOURS: [RGBColor; 3] = [
    RGBColor(0, 90, 181),
    RGBColor(213, 94, 0),
    RGBColor(110, 110, 110),
];

const GRID: RGBColor = RGBColor(225, 225, 225);

const WIDTH: u32 = 960;
const HEIGHT: u32 = 400;

pub(super) const REDIS: &str = "redis.svg";
pub(super) const KEYS: &str = "keys.svg";

/// Writes those for which there is something to show.
pub(super) fn write(report: &Report, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    if !report.redis.is_empty() {
        fs::write(folder.join(REDIS), drawn(&redis(&report.redis))?)?;
    }
    if !report.growth.keys.is_empty() {
        fs::write(folder.join(KEYS), drawn(&keys(&report.growth.keys))?)?;
    }
    Ok(())
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// One system of axes, logarithmic across.
struct Panel {
    title: &'static str,
    across: &'static str,
    /// By what factor the marks across are apart.
    apart: f64,
    up: Up,
    lines: Vec<Line>,
}

#[derive(Clone, Copy)]
enum Up {
    Linear,
    Logarithmic,
}

struct Line {
    who: String,
    points: Vec<(f64, f64)>,
}

fn redis(points: &[InFlight]) -> [Panel; 2] {
    let across = "requests in flight";
    let of = |figure: fn(&Pace) -> f64| {
        // The hot key has no place on a line over keys in turn.
        let many = points.iter().filter(|point| point.callers > 1);
        let flat = many.flat_map(|point| {
            let x = point.in_flight as f64;
            point
                .by
                .iter()
                .map(move |pace| (&*pace.who, (x, figure(pace))))
        });
        lines(flat)
    };
    [
        Panel {
            title: "decisions per second",
            across,
            apart: 4.0,
            up: Up::Logarithmic,
            lines: of(|pace| pace.per_second),
        },
        Panel {
            title: "median latency, µs",
            across,
            apart: 4.0,
            up: Up::Logarithmic,
            lines: of(|pace| pace.p50_us),
        },
    ]
}

fn keys(points: &[Keys]) -> [Panel; 2] {
    let across = "keys";
    let of = |figure: fn(&Keys) -> f64, from: u32| {
        let many = points.iter().filter(|point| point.keys >= from);
        lines(many.map(|point| (&*point.who, (f64::from(point.keys), figure(point)))))
    };
    [
        Panel {
            title: "one check, ns",
            across,
            apart: 10.0,
            up: Up::Logarithmic,
            lines: of(|point| point.nanos, 0),
        },
        Panel {
            title: "resident bytes per key",
            across,
            apart: 10.0,
            up: Up::Linear,
            // Below, it is the pages of an empty process that count.
            lines: of(|point| point.bytes_per_key, 100_000),
        },
    ]
}

fn lines<'a>(points: impl Iterator<Item = (&'a str, (f64, f64))>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (who, point) in points {
        match lines.iter_mut().find(|line| line.who == who) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                who: who.to_owned(),
                points: vec![point],
            }),
        }
    }
    lines
}

fn drawn(panels: &[Panel; 2]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE).map_err(told)?;
        for (panel, area) in panels.iter().zip(area.split_evenly((1, 2))) {
            panel.draw(&area)?;
        }
        area.present().map_err(told)?;
    }
    Ok(svg)
}

impl Panel {
    fn draw<'b>(&self, area: &DrawingArea<SVGBackend<'b>, Shift>) -> Result<()> {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let (left, right) = bounds(all().map(|point| point.0));
        let (low, high) = bounds(all().map(|point| point.1));
        let across = (left..right).log_scale().base(self.apart);
        let mut chart = ChartBuilder::on(area);
        chart
            .caption(self.title, ("sans-serif", 18))
            .margin(16)
            .x_label_area_size(40)
            .y_label_area_size(64);
        match self.up {
            // Whole decades, so that every mark stands at one.
            Up::Logarithmic => {
                let decade = |value: f64| 10_f64.powf(value);
                let up = decade(low.log10().floor())..decade(high.log10().ceil());
                let chart = chart.build_cartesian_2d(across, up.log_scale());
                self.draw_lines(chart.map_err(told)?)
            }
            Up::Linear => {
                let chart = chart.build_cartesian_2d(across, 0.0..high * 1.4);
                self.draw_lines(chart.map_err(told)?)
            }
        }
    }

    fn draw_lines<'a, 'b: 'a, X, Y>(&self, mut chart: Chart<'a, 'b, X, Y>) -> Result<()>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(self.across)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .label_style(("sans-serif", 13))
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .draw()
            .map_err(told)?;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), style))
                .map_err(told)?
                .label(&*line.who)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let dots = line.points.iter();
            chart
                .draw_series(dots.map(|point| Circle::new(*point, 3, colour.filled())))
                .map_err(told)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font(("sans-serif", 13))
            .background_style(WHITE)
            .draw()
            .map_err(told)?;
        Ok(())
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (value.min(least), value.max(most))
    })
}

/// 1k rather than 1000.
fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", value / 1e6)
    } else if value >= 1e3 {
        // Also 1,024.
        format!("{}k", (value / 1e3).round())
    } else {
        format!("{value}")
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn told<E: Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> String {
    format!("the plot cannot be drawn: {error}")
}
