//! Line charts as SVG. On a page, colours are CSS variables that the page defines, so a chart follows its light or dark
//! theme. A standalone chart has fixed colours for a white background.

use core::fmt::Write as _;

use crate::html::escaped;

/// The size of the view box. Text stays legible on a phone, where the chart is scaled down.
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
/// The plot area's distances to the edges. The right one depends on the names of the lines.
const LEFT: f64 = 66.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 48.0;

/// The approximate width of a character, and the distance between two lines of text.
const CHARACTER: f64 = 7.6;
const TEXT_LINE: f64 = 17.0;

/// The unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Fractions of one, written as percentages.
    Percent,
    /// Bytes, in powers of 1000.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// Formats a number for people.
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

/// One line of a chart over rounds.
pub struct Series {
    /// The name, written at the end of the line.
    pub name: String,
    /// One value per round. A single value in a chart of several rounds is a reference level, drawn dashed from edge to
    /// edge. Values that are not finite are left out.
    pub values: Vec<f64>,
}

impl Series {
    /// Creates a series.
    pub fn new(name: impl Into<String>, values: Vec<f64>) -> Self {
        Self { name: name.into(), values }
    }
}

/// A chart over rounds.
pub struct Chart<'a> {
    /// The title for screen readers.
    pub title: &'a str,
    /// The unit of the values.
    pub unit: Unit,
    /// The lines, at most six.
    pub series: &'a [Series],
    /// Whether the vertical axis includes zero.
    pub from_zero: bool,
    /// The round of the first value.
    pub first: u64,
}

impl Chart<'_> {
    /// Draws the chart for a page. Returns `None` if there is no value to draw.
    pub fn svg(&self) -> Option<String> {
        let rounds = self.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let first = self.first as f64;
        let lines = self.series.iter().map(|Series { name, values }| Curve {
            name,
            points: values.iter().enumerate().map(|(i, &value)| (first + i as f64, value)).collect(),
            is_level: values.len() == 1 && rounds > 1,
        });
        // each value is drawn in the middle of its round
        let range = (first - 0.5, first - 0.5 + rounds as f64);
        let ticks = nice_ticks(range, rounds.min(12)).into_iter().filter(|x| x.fract() == 0.0);
        let drawing = Drawing {
            title: self.title,
            x_title: "round",
            x_range: range,
            x_ticks: ticks.map(|x| (x, format!("{x}"))).collect(),
            lines: finite(lines),
            from_zero: self.from_zero,
            write: &|value, step| match self.unit {
                Unit::Percent => format!("{:.*} %", decimals(100.0 * step), 100.0 * value),
                unit => unit.write(value),
            },
        };
        drawing.svg(&Palette::PAGE)
    }
}

/// A chart of lines through points.
pub struct PointPlot<'a> {
    /// The title for screen readers.
    pub title: &'a str,
    /// The label of the horizontal axis.
    pub x: &'a str,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// Whether the vertical axis includes zero.
    pub from_zero: bool,
    /// Formats a value of the vertical axis.
    pub write: fn(f64) -> String,
    /// The lines, at most six: a name, and points by increasing x.
    pub series: &'a [(String, Vec<(f64, f64)>)],
}

/// The most labels on a horizontal axis.
const MAX_X_TICKS: usize = 10;

impl PointPlot<'_> {
    /// Draws the chart for a page. Returns `None` if there is no point to draw.
    pub fn svg(&self) -> Option<String> {
        self.draw(&Palette::PAGE)
    }

    /// Draws the chart as a file of its own, for a white background.
    pub fn standalone_svg(&self) -> Option<String> {
        self.draw(&Palette::PAPER)
    }

    fn draw(&self, palette: &Palette) -> Option<String> {
        let place = |x: f64| if self.logarithmic { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let mut xs: Vec<f64> = points().map(|(x, _)| *x).filter(|x| x.is_finite()).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let (first, last) = (place(*xs.first()?), place(*xs.last()?));
        let margin = if first == last { 0.5 } else { (last - first) * 0.04 };
        let step = xs.len().div_ceil(MAX_X_TICKS);
        let lines = self.series.iter().map(|(name, points)| Curve {
            name,
            points: points.iter().map(|&(x, y)| (place(x), y)).collect(),
            is_level: false,
        });
        let drawing = Drawing {
            title: self.title,
            x_title: self.x,
            x_range: (first - margin, last + margin),
            x_ticks: xs.iter().step_by(step).map(|&x| (place(x), format!("{x}"))).collect(),
            lines: finite(lines),
            from_zero: self.from_zero,
            write: &|value, _| (self.write)(value),
        };
        drawing.svg(palette)
    }
}

struct Palette {
    ink: &'static str,
    grid: &'static str,
    lines: [&'static str; 6],
    /// Attributes of the root element that only a file of its own needs.
    root: &'static str,
}

impl Palette {
    const PAGE: Self = Self {
        ink: "currentColor",
        grid: "var(--grid)",
        lines: [
            "var(--line-1)",
            "var(--line-2)",
            "var(--line-3)",
            "var(--line-4)",
            "var(--line-5)",
            "var(--line-6)",
        ],
        root: "",
    };

    const PAPER: Self = Self {
        ink: "#1a1d21",
        grid: "#d9dee3",
        lines: ["#0b62c4", "#b3261e", "#1a7f37", "#8a4baf", "#9a6700", "#57606a"],
        root: " width=\"520\" height=\"300\"",
    };
}

struct Curve<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
    /// Whether the line has one value that is drawn from edge to edge.
    is_level: bool,
}

/// Drops points that cannot be drawn, and lines without points. Differences of the others do not overflow.
fn finite<'a>(lines: impl Iterator<Item = Curve<'a>>) -> Vec<Curve<'a>> {
    let mut lines: Vec<Curve<'a>> = lines.collect();
    lines.iter_mut().for_each(|line| line.points.retain(|(x, y)| x.abs() < 1e150 && y.abs() < 1e150));
    lines.retain(|line| !line.points.is_empty());
    lines
}

/// A chart in data coordinates.
struct Drawing<'a> {
    title: &'a str,
    x_title: &'a str,
    x_range: (f64, f64),
    x_ticks: Vec<(f64, String)>,
    lines: Vec<Curve<'a>>,
    from_zero: bool,
    /// Formats a value of the vertical axis, given the distance between ticks.
    write: &'a dyn Fn(f64, f64) -> String,
}

impl Drawing<'_> {
    fn svg(&self, palette: &Palette) -> Option<String> {
        let y_range = self.y_range()?;
        let names = self.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
        let right = WIDTH - (CHARACTER * names as f64 + 14.0).clamp(60.0, 200.0);
        let x = Scale { from: self.x_range, to: (LEFT, right) };
        let y = Scale { from: y_range, to: (HEIGHT - BOTTOM, TOP) };
        let (title, description, root) = (escaped(self.title), escaped(&self.description()), palette.root);
        // writing to a string does not fail
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {WIDTH} \
             {HEIGHT}\"{root} font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"{}\">\n\
             <desc>{description}</desc>\n",
            palette.ink
        );
        self.draw_axes(&mut out, palette, &x, &y);
        for (line, colour) in self.lines.iter().zip(palette.lines) {
            draw_line(&mut out, line, colour, &x, &y);
        }
        self.draw_names(&mut out, palette, right, &y);
        out.push_str("</svg>");
        Some(out)
    }

    /// The values with a margin, so that no line touches the edge.
    fn y_range(&self) -> Option<(f64, f64)> {
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|&(_, y)| y);
        let (low, high) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        let low = if self.from_zero { low.min(0.0) } else { low };
        let margin = if high > low { 0.06 * (high - low) } else { (0.1 * high.abs()).max(1e-9) };
        Some((if self.from_zero { low } else { low - margin }, high + margin))
    }

    /// Says where each line begins and ends, for screen readers.
    fn description(&self) -> String {
        let lines = self.lines.iter().filter_map(|line| {
            let (first, last) = (line.points.first()?.1, line.points.last()?.1);
            let (first, last) = ((self.write)(first, 1e-3), (self.write)(last, 1e-3));
            Some(if first == last {
                format!("{}: {last}.", line.name)
            } else {
                format!("{}: from {first} to {last}.", line.name)
            })
        });
        lines.collect::<Vec<_>>().join(" ")
    }

    fn draw_axes(&self, out: &mut String, palette: &Palette, x: &Scale, y: &Scale) {
        let ((left, right), bottom, grid) = (x.to, y.to.0, palette.grid);
        for (value, label) in self.y_ticks(y.from) {
            let at = y.place(value);
            let _ = writeln!(
                out,
                "<path d=\"M{left} {at:.1}H{right:.1}\" stroke=\"{grid}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 5.0,
                escaped(&label)
            );
        }
        let _ =
            writeln!(out, "<path d=\"M{left} {bottom}H{right:.1}\" stroke=\"{grid}\" stroke-width=\"2\"/>");
        let mut free = f64::NEG_INFINITY;
        for (value, label) in &self.x_ticks {
            let (at, half) = (x.place(*value), 0.5 * CHARACTER * label.chars().count() as f64 + 3.0);
            // a label that would touch the one before is left out
            if at - half >= free {
                free = at + half;
                let _ = writeln!(
                    out,
                    "<path d=\"M{at:.1} {bottom}v5\" stroke=\"{grid}\"/>\
                     <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    bottom + 19.0,
                    escaped(label)
                );
            }
        }
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            0.5 * (left + right),
            HEIGHT - 8.0,
            escaped(self.x_title)
        );
    }

    /// At most six ticks, few enough that no two have the same label.
    fn y_ticks(&self, range: (f64, f64)) -> Vec<(f64, String)> {
        let ticks = |most| {
            let ticks = nice_ticks(range, most);
            let step = ticks.get(1).zip(ticks.first()).map_or(range.1 - range.0, |(b, a)| b - a);
            ticks.into_iter().map(|y| (y, (self.write)(y, step))).collect::<Vec<_>>()
        };
        let differ = |ticks: &Vec<(f64, String)>| ticks.windows(2).all(|pair| pair[0].1 != pair[1].1);
        (2..=6).rev().map(ticks).find(differ).unwrap_or_default()
    }

    /// Writes each name at the end of its line, so that no legend is needed.
    fn draw_names(&self, out: &mut String, palette: &Palette, right: f64, y: &Scale) {
        let ends = self.lines.iter().zip(palette.lines);
        let ends =
            ends.filter_map(|(line, colour)| Some((y.place(line.points.last()?.1), line.name, colour)));
        let mut ends: Vec<(f64, &str, &str)> = ends.collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        // names of lines that end close together keep their order: down from the top, then up from the bottom
        let mut free = TOP;
        for end in &mut ends {
            end.0 = end.0.max(free);
            free = end.0 + TEXT_LINE;
        }
        let mut free = HEIGHT - BOTTOM;
        for end in ends.iter_mut().rev() {
            end.0 = end.0.min(free);
            free = end.0 - TEXT_LINE;
        }
        for (at, name, colour) in ends {
            let (x, y, name) = (right + 8.0, at + 5.0, escaped(name));
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{name}</text>");
        }
    }
}

fn draw_line(out: &mut String, line: &Curve<'_>, colour: &str, x: &Scale, y: &Scale) {
    let place = |&(px, py): &(f64, f64)| (x.place(px), y.place(py));
    let points: Vec<(f64, f64)> = line.points.iter().map(place).collect();
    let stroke = format!("stroke=\"{colour}\" stroke-width=\"2\"");
    if let (true, Some((_, at))) = (line.is_level, points.last()) {
        let (left, right) = x.to;
        let _ = writeln!(out, "<path d=\"M{left} {at:.1}H{right:.1}\" {stroke} stroke-dasharray=\"6 4\"/>");
        return;
    }
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" {stroke} fill=\"none\" stroke-linejoin=\"round\"/>",
        path.join(" ")
    );
    // markers that overlap would hide the line
    if points.len() as f64 * 4.0 <= x.to.1 - x.to.0 {
        for (x, y) in points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

/// A linear map from data to the view box.
struct Scale {
    from: (f64, f64),
    to: (f64, f64),
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        let share = (value - self.from.0) / (self.from.1 - self.from.0);
        self.to.0 + share * (self.to.1 - self.to.0)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten within a range, at most `most` of them (or one, if the range is short).
fn nice_ticks((low, high): (f64, f64), most: usize) -> Vec<f64> {
    let rough = (high - low) / most.max(1) as f64;
    if !rough.is_normal() || !low.is_finite() {
        return Vec::new();
    }
    let power = 10f64.powf(rough.log10().floor());
    let fits = |step: f64| (high / step).floor() - (low / step).ceil() < most.max(1) as f64;
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    let Some(step) = steps.into_iter().find(|&step| step >= 0.999 * rough && fits(step)) else {
        return Vec::new();
    };
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last)
        .map(|i| if step < 1.0 { i as f64 / (1.0 / step).round() } else { i as f64 * step })
        .collect()
}

/// The number of decimals that tell multiples of `step` apart.
fn decimals(step: f64) -> usize {
    (0..6).find(|&digits| step * 10f64.powi(digits) >= 0.999).unwrap_or(6) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[f64], from_zero: bool) -> Option<String> {
        let series = [Series::new("x", values.to_vec())];
        Chart { title: "t", unit: Unit::Bytes, series: &series, from_zero, first: 1 }.svg()
    }

    /// The value of an attribute of the element whose text is `text`.
    fn attribute(svg: &str, text: &str, name: &str) -> f64 {
        let at = svg.find(&format!(">{text}</text>")).unwrap();
        let element = &svg[svg[..at].rfind("<text ").unwrap()..at];
        let value = &element[element.find(&format!(" {name}=\"")).unwrap() + name.len() + 3..];
        value[..value.find('"').unwrap()].parse().unwrap()
    }

    #[test]
    fn chart_draws_lines_levels_and_names_in_the_colours_of_the_page() {
        let series = [Series::new("encrypted", vec![0.5, 0.7, 0.8]), Series::new("all <data>", vec![0.9])];
        let title = "accuracy & <more>";
        let svg =
            Chart { title, unit: Unit::Percent, series: &series, from_zero: false, first: 1 }.svg().unwrap();
        assert!(svg.contains("role=\"img\" aria-label=\"accuracy &amp; &lt;more&gt;\""), "{svg}");
        assert!(
            svg.contains("<desc>encrypted: from 50.0 % to 80.0 %. all &lt;data&gt;: 90.0 %.</desc>"),
            "{svg}"
        );
        for text in ["var(--line-1)", "var(--line-2)", "currentColor", ">encrypted<", ">all &lt;data&gt;<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("\"#"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
    }

    #[test]
    fn point_plot_places_points_on_a_logarithmic_axis() {
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
        let tick = |name: &str| attribute(&svg, name, "x");
        let (first, second) = (tick("25") - tick("5"), tick("100") - tick("25"));
        assert!((first / second - 5f64.ln() / 4f64.ln()).abs() < 0.05, "{first} {second}");
        let alone = plot.standalone_svg().unwrap();
        assert!(alone.contains("width=\"520\"") && !alone.contains("var(--"), "{alone}");
        assert_eq!(alone.matches("xmlns=").count(), 1);
        assert!(PointPlot { series: &[], ..plot }.svg().is_none());
    }

    #[test]
    fn chart_without_finite_values_is_not_drawn() {
        assert!(chart(&[], true).is_none());
        assert!(chart(&[f64::NAN], true).is_none());
        assert!(chart(&[f64::MAX, f64::MIN], true).is_none());
        for values in
            [&[0.0, 0.0][..], &[f64::INFINITY, 5.0, 5.0], &[1e149, -1e149], &[1e-320], &[1e20, 1e20 + 2e4]]
        {
            for from_zero in [true, false] {
                let svg = chart(values, from_zero).unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{values:?}: {svg}");
            }
        }
    }

    #[test]
    fn names_of_lines_that_end_together_do_not_overlap() {
        let names = ["a", "b", "c", "d", "e", "f"];
        for ends in [[0.0; 6], [1.0; 6], [0.0, 0.01, 0.02, 0.5, 0.51, 1.0]] {
            let series: Vec<Series> =
                names.iter().zip(ends).map(|(name, end)| Series::new(*name, vec![0.0, 1.0, end])).collect();
            let svg =
                Chart { title: "t", unit: Unit::Seconds, series: &series, from_zero: true, first: 1 }.svg();
            let svg = svg.unwrap();
            let mut places: Vec<f64> = names.iter().map(|name| attribute(&svg, name, "y")).collect();
            places.sort_by(f64::total_cmp);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= TEXT_LINE - 0.2), "{places:?}");
            assert!(places[0] > 0.0 && places[5] < HEIGHT, "{places:?}");
        }
    }

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(nice_ticks((0.0, 1.06), 6), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(nice_ticks((0.5, 12.5), 12), (1..=12).map(f64::from).collect::<Vec<_>>());
        assert_eq!(nice_ticks((0.5, 100.5), 12), (1..=10).map(|i| 10.0 * f64::from(i)).collect::<Vec<_>>());
        assert_eq!(nice_ticks((0.8971, 0.9044), 6), [0.898, 0.9, 0.902, 0.904]);
        assert_eq!(nice_ticks((3.0, 3.0), 6), [0.0; 0]);
        let series = [Series::new("x", vec![0.9001, 0.9002])];
        let svg =
            Chart { title: "t", unit: Unit::Percent, series: &series, from_zero: false, first: 7 }.svg();
        let svg = svg.unwrap();
        assert!(svg.contains(">90.010 %<") || svg.contains(">90.01 %<"), "{svg}");
        assert!(svg.contains(">7<") && svg.contains(">8<"), "{svg}");
    }
}
