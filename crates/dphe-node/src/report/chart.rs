//! Line plots as SVG. Colours are names that the page defines, so that a plot is clear in light and dark.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Drawn with plotters, whose colours are numbers; each is replaced by what the page calls it.
const INK: (RGBColor, &str) = (RGBColor(1, 1, 1), "currentColor");
const GRID: (RGBColor, &str) = (RGBColor(2, 2, 2), "var(--grid)");
const LINES: [(RGBColor, &str); 6] = [
    (RGBColor(3, 3, 3), "var(--line-1)"),
    (RGBColor(4, 4, 4), "var(--line-2)"),
    (RGBColor(5, 5, 5), "var(--line-3)"),
    (RGBColor(6, 6, 6), "var(--line-4)"),
    (RGBColor(7, 7, 7), "var(--line-5)"),
    (RGBColor(8, 8, 8), "var(--line-6)"),
];

/// Small enough that its letters can be read on a telephone, where it is drawn smaller still.
const SIZE: (u32, u32) = (520, 300);
/// Room for names.
const NAMES: u32 = 140;

/// What the numbers of an axis mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Shares of one, written in per cent.
    Percent,
    /// Bytes, by thousands.
    Bytes,
    /// Seconds, or parts of them.
    Seconds,
}

impl Unit {
    /// A number as a person reads it.
    pub fn write(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{:.2} %", 100.0 * value),
            Self::Seconds if value.abs() < 1e-3 && value != 0.0 => format!("{:.0} us", value * 1e6),
            Self::Seconds if value.abs() < 1.0 && value != 0.0 => format!("{:.0} ms", value * 1e3),
            Self::Seconds => format!("{value:.1} s"),
            Self::Bytes if value < 1e3 => format!("{value:.0} B"),
            Self::Bytes if value < 1e6 => format!("{:.0} kB", value / 1e3),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
        }
    }
}

/// One line of a plot.
pub struct Series {
    /// What stands at its end.
    pub name: String,
    /// One value a round, from round 1; a single value is a level that is drawn across, dashed.
    pub values: Vec<f64>,
}

impl Series {
    /// A line of this name.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), values }
    }
}

/// A plot over rounds.
pub struct Chart<'a> {
    /// For those who do not see it.
    pub title: &'a str,
    /// Of the values.
    pub unit: Unit,
    /// At most six lines.
    pub series: &'a [Series],
    /// Whether the axis begins at zero.
    pub from_zero: bool,
    /// The round of the first value.
    pub first: u64,
}

impl Chart<'_> {
    /// The plot, or nothing if there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        let rounds = self.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let first = self.first as f64;
        let lines = self.series.iter().map(|Series { name, values }| {
            let points = values.iter().enumerate().map(|(i, &value)| (first + i as f64, value));
            (name.as_str(), points.collect(), values.len() == 1 && rounds > 1)
        });
        let values = || self.series.iter().flat_map(|series| &series.values).filter(|v| v.is_finite());
        let spread = values().copied().fold(0.0, f64::max) - values().copied().fold(1.0, f64::min);
        let write = |value: f64| match self.unit {
            // close numbers need a digit more to be told apart
            Unit::Percent => format!("{:.*} %", usize::from(spread < 0.05), 100.0 * value),
            unit => unit.write(value),
        };
        let drawing = Drawing {
            x: "round",
            // values stand in the middle of their round
            range: (first - 0.5, first - 0.5 + rounds as f64),
            ticks: Ticks::Whole(rounds.min(12)),
            lines: lines.collect(),
            from_zero: self.from_zero,
            write: &write,
        };
        drawing.svg(self.title)
    }
}

/// A plot of lines through points.
pub struct PointPlot<'a> {
    /// For those who do not see it.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub x: &'a str,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// Whether the vertical axis begins at zero.
    pub from_zero: bool,
    /// How values are written.
    pub write: fn(f64) -> String,
    /// At most six lines: names, and points by increasing x.
    pub series: &'a [(String, Vec<(f64, f64)>)],
}

/// More places than this are not all named.
const MOST_TICKS: usize = 10;

impl PointPlot<'_> {
    /// The plot, or nothing if there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        let place = |x: f64| if self.logarithmic { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let mut xs: Vec<f64> = points().map(|(x, _)| *x).filter(|x| x.is_finite()).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (first, last) = (place(*xs.first()?), place(*xs.last()?));
        let margin = ((last - first) * 0.04).max(0.5 * f64::from(u8::from(first == last)));
        let step = xs.len().div_ceil(MOST_TICKS);
        let ticks = xs.iter().step_by(step).map(|&x| (place(x), format!("{x}")));
        let lines = self.series.iter().map(|(name, points)| {
            (name.as_str(), points.iter().map(|&(x, y)| (place(x), y)).collect(), false)
        });
        let drawing = Drawing {
            x: self.x,
            range: (first - margin, last + margin),
            ticks: Ticks::Named(ticks.collect()),
            lines: lines.collect(),
            from_zero: self.from_zero,
            write: &self.write,
        };
        drawing.svg(self.title)
    }

    /// The plot as a file of its own, in colours for white paper.
    pub fn standalone_svg(&self) -> Option<String> {
        let (width, height) = SIZE;
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" color=\"#1a1d21\" "
        );
        let mut svg =
            self.svg()?.replacen("<svg ", &head, 1).replace(" xmlns=\"http://www.w3.org/2000/svg\">", ">");
        let paper = ["#0b62c4", "#b3261e", "#1a7f37", "#8a4baf", "#9a6700", "#57606a"];
        for ((_, name), colour) in LINES.iter().zip(paper).chain([(&GRID, "#d9dee3")]) {
            svg = svg.replace(name, colour);
        }
        Some(svg)
    }
}

/// A name, its points, and whether it is a level that is drawn across.
type Line<'a> = (&'a str, Vec<(f64, f64)>, bool);

enum Ticks {
    /// At whole numbers, about so many.
    Whole(usize),
    /// At these places.
    Named(Vec<(f64, String)>),
}

/// What both kinds of plot have in common.
struct Drawing<'a> {
    x: &'a str,
    range: (f64, f64),
    ticks: Ticks,
    lines: Vec<Line<'a>>,
    from_zero: bool,
    write: &'a dyn Fn(f64) -> String,
}

impl Drawing<'_> {
    fn svg(&self, title: &str) -> Option<String> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = self.draw(&area);
        drop(area);
        drawn.ok().flatten()?;
        Some(named(&svg, title))
    }

    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
    ) -> Result<Option<()>, DrawingAreaErrorKind<DB::ErrorType>> {
        let values = || self.lines.iter().flat_map(|(_, points, _)| points).map(|(_, y)| *y);
        let values = || values().filter(|y| y.is_finite());
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low > high {
            return Ok(None);
        }
        let low = if self.from_zero { low.min(0.0) } else { low };
        let room = if high > low { 0.06 * (high - low) } else { (0.1 * high.abs()).max(1e-9) };
        let range = if self.from_zero { low..high + room } else { low - room..high + room };
        let bottom = range.start;

        let text = |size: i32| ("sans-serif", size).into_font().color(&INK.0);
        // names stand at the ends of the lines, so that nobody has to look up a legend
        let (plot, names) = area.split_horizontally(SIZE.0 - NAMES);
        let (left, right) = self.range;
        let mut chart = ChartBuilder::on(&plot)
            .margin(8)
            .margin_right(2)
            .x_label_area_size(40)
            .y_label_area_size(58)
            .build_cartesian_2d(left..right, range)?;
        let whole = |x: &f64| if x.fract() == 0.0 { format!("{x}") } else { String::new() };
        let (labels, name_of): (usize, &dyn Fn(&f64) -> String) = match &self.ticks {
            Ticks::Whole(count) => (*count, &whole),
            Ticks::Named(_) => (2, &|_| String::new()),
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.0)
            .axis_style(GRID.0)
            .label_style(text(14))
            .axis_desc_style(text(14))
            .x_desc(self.x)
            .x_labels(labels)
            .x_label_formatter(name_of)
            .y_labels(6)
            .y_label_formatter(&|y| (self.write)(*y))
            .draw()?;
        if let Ticks::Named(ticks) = &self.ticks {
            let style = text(14).pos(Pos::new(HPos::Center, VPos::Top));
            let mut free = i32::MIN;
            for (x, name) in ticks {
                let (x, y) = chart.backend_coord(&(*x, bottom));
                // names that would touch are left out
                let half = 4 * name.chars().count() as i32 + 3;
                if x - half >= free {
                    plot.draw(&Text::new(name.as_str(), (x, y + 6), style.clone()))?;
                    free = x + half;
                }
            }
        }
        let mut ends = Vec::new();
        for ((name, points, level), (colour, _)) in self.lines.iter().zip(LINES) {
            let points: Vec<(f64, f64)> =
                points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).copied().collect();
            let Some(&(_, last)) = points.last() else { continue };
            if *level {
                let across = [(left, last), (right, last)];
                chart.draw_series(DashedLineSeries::new(across, 6, 4, colour.stroke_width(2)))?;
            } else {
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
            let (_, y) = chart.backend_coord(&(left, last));
            ends.push((y, *name, colour));
        }
        // lines that end close to each other: their names keep their order and a line's distance
        ends.sort_by_key(|&(y, ..)| y);
        let mut next = i32::MIN;
        for (y, name, colour) in ends {
            let y = y.max(next);
            next = y + 17;
            let style = ("sans-serif", 15).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Center));
            names.draw(&Text::new(name, (8, y), style))?;
        }
        area.present()?;
        Ok(Some(()))
    }
}

/// The names of colours for their numbers, a size that follows the page, and a title for those who do not see.
fn named(svg: &str, title: &str) -> String {
    let mut svg = svg.to_owned();
    for (RGBColor(r, g, b), name) in [INK, GRID].into_iter().chain(LINES) {
        svg = svg.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"{name}\""));
    }
    let (width, height) = SIZE;
    let head = format!("<svg width=\"{width}\" height=\"{height}\"");
    let title = super::page::escaped(title);
    svg.replacen(&head, &format!("<svg role=\"img\" aria-label=\"{title}\""), 1)
        .replace("font-family=\"sans-serif\"", "font-family=\"system-ui, sans-serif\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_its_lines_and_no_colours_of_its_own() {
        let series = [Series::new("encrypted", vec![0.5, 0.7, 0.8]), Series::new("all data", vec![0.9])];
        let svg = Chart {
            title: "accuracy & <more>",
            unit: Unit::Percent,
            series: &series,
            from_zero: false,
            first: 1,
        }
        .svg();
        let svg = svg.unwrap();
        assert!(svg.starts_with("<svg role=\"img\" aria-label=\"accuracy &amp; &lt;more&gt;\""), "{svg}");
        assert!(
            svg.contains("var(--line-1)") && svg.contains("var(--line-2)") && svg.contains("currentColor")
        );
        assert!(svg.contains("encrypted") && svg.contains("all data"));
        assert!(!svg.contains("\"#0"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
    }

    #[test]
    fn points_stand_where_they_belong() {
        let series = [("few & many".to_owned(), vec![(5.0, 90.0), (25.0, 89.0), (100.0, 80.0)])];
        let plot = PointPlot {
            title: "users",
            x: "number of users",
            logarithmic: true,
            from_zero: false,
            write: |value| format!("{value:.0} %"),
            series: &series,
        };
        let svg = plot.svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        for text in ["number of users", "90 %", "few &amp; many", "var(--line-1)"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let tick = |name: &str| {
            let at = svg.find(&format!("\n{name}\n")).unwrap();
            let head = &svg[svg[..at].rfind("<text x=\"").unwrap() + 9..];
            head[..head.find('"').unwrap()].parse::<f64>().unwrap()
        };
        // five times as many are the same step, wherever it begins; four times are less
        let (first, second) = (tick("25") - tick("5"), tick("100") - tick("25"));
        assert!((first / second - 5f64.ln() / 4f64.ln()).abs() < 0.05, "{first} {second}");
        let alone = plot.standalone_svg().unwrap();
        assert!(alone.contains("xmlns=") && !alone.contains("var(--"), "{alone}");
        assert_eq!(alone.matches("xmlns=").count(), 1);
        assert!(PointPlot { series: &[], ..plot }.svg().is_none());
    }

    #[test]
    fn nothing_to_draw_and_odd_numbers() {
        let of = |values: Vec<f64>| {
            let series = [Series::new("x", values)];
            Chart { title: "t", unit: Unit::Bytes, series: &series, from_zero: true, first: 1 }.svg()
        };
        assert!(of(vec![]).is_none());
        assert!(of(vec![f64::NAN]).is_none());
        assert!(of(vec![0.0, 0.0]).is_some());
        assert!(of(vec![f64::INFINITY, 5.0, 5.0]).is_some());
    }
}
