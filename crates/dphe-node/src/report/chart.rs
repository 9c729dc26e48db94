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
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = self.draw(&area);
        drop(area);
        drawn.ok().flatten()?;
        Some(self.named(&svg))
    }

    fn draw<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
    ) -> Result<Option<()>, DrawingAreaErrorKind<DB::ErrorType>> {
        let rounds = self.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let values = || self.series.iter().flat_map(|series| &series.values).filter(|v| v.is_finite());
        let low = values().copied().fold(f64::INFINITY, f64::min);
        let high = values().copied().fold(f64::NEG_INFINITY, f64::max);
        if rounds == 0 || low > high {
            return Ok(None);
        }
        let low = if self.from_zero { low.min(0.0) } else { low };
        let room = if high > low { 0.06 * (high - low) } else { (0.1 * high.abs()).max(1e-9) };
        let range = if self.from_zero { low..high + room } else { low - room..high + room };

        // the left edge: values stand in the middle of their round
        let before = self.first as f64 - 0.5;
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK.0);
        // names stand at the ends of the lines, so that nobody has to look up a legend
        let (plot, names) = area.split_horizontally(SIZE.0 - NAMES);
        let mut chart = ChartBuilder::on(&plot)
            .margin(8)
            .margin_right(2)
            .x_label_area_size(40)
            .y_label_area_size(58)
            .build_cartesian_2d(before..before + rounds as f64, range)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.0)
            .axis_style(GRID.0)
            .label_style(text(14))
            .axis_desc_style(text(14))
            .x_desc("round")
            .x_labels(rounds.min(12))
            .x_label_formatter(&|x| if x.fract() == 0.0 { format!("{x}") } else { String::new() })
            .y_labels(6)
            .y_label_formatter(&|y| match self.unit {
                // close numbers need a digit more to be told apart
                Unit::Percent => format!("{:.*} %", usize::from(high - low < 0.05), 100.0 * y),
                unit => unit.write(*y),
            })
            .draw()?;
        let mut ends = Vec::new();
        for (series, (colour, _)) in self.series.iter().zip(LINES) {
            let Some(&last) = series.values.iter().rfind(|value| value.is_finite()) else { continue };
            if let ([level], true) = (&series.values[..], rounds > 1) {
                let across = [(before, *level), (before + rounds as f64, *level)];
                chart.draw_series(DashedLineSeries::new(across, 6, 4, colour.stroke_width(2)))?;
            } else {
                let points =
                    series.values.iter().enumerate().map(|(i, &value)| (before + 0.5 + i as f64, value));
                let points: Vec<(f64, f64)> = points.filter(|(_, value)| value.is_finite()).collect();
                chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
                chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
            }
            let (_, y) = chart.backend_coord(&(before, last));
            ends.push((y, &series.name, colour));
        }
        // lines that end close to each other: their names keep their order and a line's distance
        ends.sort_by_key(|&(y, ..)| y);
        let mut next = i32::MIN;
        for (y, name, colour) in ends {
            let y = y.max(next);
            next = y + 17;
            let style = ("sans-serif", 15).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Center));
            names.draw(&Text::new(name.as_str(), (8, y), style))?;
        }
        area.present()?;
        Ok(Some(()))
    }

    /// The names of colours for their numbers, a size that follows the page, and a title for those who do not see.
    fn named(&self, svg: &str) -> String {
        let mut svg = svg.to_owned();
        for (RGBColor(r, g, b), name) in [INK, GRID].into_iter().chain(LINES) {
            svg = svg.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"{name}\""));
        }
        let (width, height) = SIZE;
        let head = format!("<svg width=\"{width}\" height=\"{height}\"");
        let title = super::page::escaped(self.title);
        svg.replacen(&head, &format!("<svg role=\"img\" aria-label=\"{title}\""), 1)
            .replace("font-family=\"sans-serif\"", "font-family=\"system-ui, sans-serif\"")
    }
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
