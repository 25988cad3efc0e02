//! Charts, as SVG and as PNG: lines over numbers, bars over places.
mod axis;

pub(crate) use axis::Unit;

use axis::{Axis, written};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use std::sync::OnceLock;

/// Line style of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LineStyle {
    /// With marks.
    #[default]
    Full,
    /// A second figure of a series that has the same colour: dashed lines with hollow marks, paler bars.
    Second,
    /// What others published, or measured elsewhere: thin, dotted, and without marks.
    Reference,
}

/// One series of a chart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    /// In the legend.
    pub name: String,
    /// Places on both axes.
    pub points: Vec<(f64, f64)>,
    /// The least and the most of the repetitions, at places that had some.
    pub spread: Spread,
    /// Colour, by its place in the palette: the same thing has the same colour in all charts.
    pub colour: usize,
    /// How it is drawn.
    pub stroke: LineStyle,
}

/// Places, and the least and the most there.
pub(crate) type Spread = Vec<(f64, [f64; 2])>;

/// A chart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chart {
    /// Above it.
    pub title: String,
    /// Under the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// Names of the places 0, 1, 2, ... on the horizontal axis: bars stand there. Where there are none, the axis is
    /// logarithmic, and has lines.
    pub places: Vec<String>,
    /// The vertical axis is logarithmic.
    pub log_y: bool,
    /// What the vertical axis measures.
    pub unit: Unit,
    /// No value can be beyond this.
    pub end: Option<f64>,
    /// Lines.
    pub lines: Vec<Line>,
}

/// A series of the figure at each point: `at` gives the place of a point, `of` the figures of its repetitions, whose
/// median counts.
pub(crate) fn series(
    count: usize,
    at: impl Fn(usize) -> Option<f64>,
    of: impl Fn(usize) -> Vec<f64>,
) -> (Vec<(f64, f64)>, Spread) {
    let (mut points, mut spread) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut values: Vec<f64> = of(number).into_iter().filter(|value| value.is_finite() && *value > 0.0).collect();
        values.sort_by(f64::total_cmp);
        let (Some(place), Some(middle)) = (at(number), crate::report::middle(values.clone())) else { continue };
        points.push((place, middle));
        if values.len() > 1 {
            spread.push((place, [values[0], values[values.len() - 1]]));
        }
    }
    (points, spread)
}

const SIZE: (u32, u32) = (820, 480);
/// Easy to distinguish, also for readers who see few colours (Okabe and Ito).
const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];
const FONT: &str = "sans-serif";
/// Where Debian and its relatives keep a plain font.
const FONTS: [&str; 4] = [
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
    "/usr/share/fonts/truetype/freefont/FreeSans.ttf",
];

impl Chart {
    /// Writes `DIRECTORY/NAME.svg` and `.png`.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> Result<(), String> {
        font()?;
        let [svg, png] = ["svg", "png"].map(|kind| directory.join(format!("{name}.{kind}")));
        std::fs::create_dir_all(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
        let failed = |path: &Path, e: String| format!("cannot draw {}: {e}", path.display());
        self.draw(SVGBackend::new(&svg, SIZE).into_drawing_area()).map_err(|e| failed(&svg, e))?;
        self.draw(BitMapBackend::new(&png, SIZE).into_drawing_area()).map_err(|e| failed(&png, e))
    }

    /// As a picture to be put into a page.
    pub(crate) fn svg(&self) -> Result<String, String> {
        font()?;
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
            .map_err(|e| format!("cannot draw {}: {e}", self.title))?;
        Ok(text)
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        area.fill(&WHITE).map_err(text)?;
        let below = area.margin(10, 0, 0, 0).titled(&self.title, (FONT, 19)).map_err(text)?;
        let below = self.legend(&below)?;
        let mut builder = ChartBuilder::on(&below);
        builder.margin(12).x_label_area_size(46).y_label_area_size(76);
        let mut chart = builder.build_cartesian_2d(self.axis_x(), self.axis_y()).map_err(text)?;
        let (place, value) = (|at: &f64| self.place(*at), |value: &f64| written(*value, self.unit));
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).axis_desc_style((FONT, 15)).label_style((FONT, 14));
        mesh.bold_line_style(RGBColor(225, 225, 225)).x_label_formatter(&place).y_label_formatter(&value);
        if !self.places.is_empty() {
            mesh.disable_x_mesh();
        }
        mesh.draw().map_err(text)?;
        for (at, line) in self.lines.iter().enumerate() {
            if self.places.is_empty() { curve(&mut chart, line)? } else { self.bars(&mut chart, line, at)? }
        }
        area.present().map_err(text)
    }

    /// Draws a row or more of names under the title; returns what is left below.
    fn legend<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<DrawingArea<B, Shift>, String> {
        const ROW: i32 = 21;
        const SAMPLE: i32 = 26;
        let style = TextStyle::from((FONT, 14).into_font());
        let most = area.dim_in_pixel().0 as i32 - 24;
        let (mut x, mut y) = (24, 4);
        for line in &self.lines {
            let (width, _) = area.estimate_text_size(&line.name, &style).map_err(text)?;
            if x > 24 && x + SAMPLE + width as i32 > most {
                (x, y) = (24, y + ROW);
            }
            let middle = y + ROW / 2 - 2;
            if self.places.is_empty() {
                let drawn: Vec<(i32, i32)> = (x..=x + SAMPLE - 6).map(|x| (x, middle)).collect();
                match line.stroke {
                    LineStyle::Full => area.draw(&PathElement::new(drawn, line.style())),
                    stroke => area.draw(&DashedPathElement::new(
                        drawn.iter().copied(),
                        dash(stroke).0,
                        dash(stroke).1,
                        line.style(),
                    )),
                }
                .map_err(text)?;
            } else {
                area.draw(&Rectangle::new([(x, y + 3), (x + SAMPLE - 8, y + ROW - 6)], line.fill())).map_err(text)?;
            }
            area.draw_text(&line.name, &style, (x + SAMPLE, y + 1)).map_err(text)?;
            x += SAMPLE + width as i32 + 18;
        }
        Ok(area.split_vertically(y + ROW + 2).1)
    }

    /// Bars of a series, side by side with those of the others at each place.
    fn bars<B: DrawingBackend>(&self, chart: &mut Drawn<'_, B>, line: &Line, number: usize) -> Result<(), String> {
        let width = 0.8 / self.lines.len() as f64;
        let (left, base) = (number as f64 * width - 0.4, self.axis_y().base());
        let bar = |(x, y): &(f64, f64)| {
            Rectangle::new([(x + left + width * 0.06, base), (x + left + width * 0.94, *y)], line.fill())
        };
        chart.draw_series(line.points.iter().map(bar)).map_err(text)?;
        whiskers(chart, line, left + width / 2.0)
    }

    /// The name of a place, or the number itself.
    fn place(&self, value: f64) -> String {
        if self.places.is_empty() {
            return written(value, Unit::Number);
        }
        self.places.get(value.round().max(0.0) as usize).cloned().unwrap_or_default()
    }

    fn axis_x(&self) -> Axis {
        if self.places.is_empty() {
            Axis::log_of(self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect())
        } else {
            Axis::places(self.places.len())
        }
    }

    fn axis_y(&self) -> Axis {
        let spread = self.lines.iter().flat_map(|line| line.spread.iter().flat_map(|(_, ends)| *ends));
        let points = self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
        let values = points.chain(spread).filter(|value| value.is_finite() && (!self.log_y || *value > 0.0));
        let (least, most) =
            values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        if self.log_y { Axis::log(least, most) } else { Axis::linear(most, self.end) }
    }
}

type Drawn<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Length of dashes and of the gaps between them.
fn dash(stroke: LineStyle) -> (i32, i32) {
    if stroke == LineStyle::Reference { (2, 4) } else { (8, 5) }
}

fn curve<B: DrawingBackend>(chart: &mut Drawn<'_, B>, line: &Line) -> Result<(), String> {
    let (points, style) = (line.points.iter().copied(), line.style());
    match line.stroke {
        LineStyle::Full => chart.draw_series(LineSeries::new(points.clone(), style)).map_err(text)?,
        stroke => {
            let (length, gap) = dash(stroke);
            chart.draw_series(DashedLineSeries::new(points.clone(), length, gap, style)).map_err(text)?
        }
    };
    if line.stroke != LineStyle::Reference {
        let mark = if line.stroke == LineStyle::Full { line.colour().filled() } else { line.style() };
        chart.draw_series(points.map(|point| Circle::new(point, 4, mark))).map_err(text)?;
    }
    whiskers(chart, line, 0.0)
}

/// Lines from the least to the most of the repetitions.
fn whiskers<B: DrawingBackend>(chart: &mut Drawn<'_, B>, line: &Line, right: f64) -> Result<(), String> {
    let style = RGBColor(60, 60, 60).stroke_width(1);
    let whisker =
        |(x, [least, most]): &(f64, [f64; 2])| PathElement::new([(x + right, *least), (x + right, *most)], style);
    chart.draw_series(line.spread.iter().map(whisker)).map_err(text).map(|_| ())
}

impl Line {
    fn colour(&self) -> RGBColor {
        PALETTE[self.colour % PALETTE.len()]
    }

    fn style(&self) -> ShapeStyle {
        self.colour().stroke_width(if self.stroke == LineStyle::Reference { 1 } else { 2 })
    }

    fn fill(&self) -> ShapeStyle {
        if self.stroke == LineStyle::Full { self.colour().filled() } else { self.colour().mix(0.45).filled() }
    }
}

/// Registers a font with the plotting library, once.
fn font() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        let bytes = FONTS.iter().find_map(|path| std::fs::read(path).ok());
        let missing = "plots need a font, and none was found: apt-get install fonts-dejavu-core";
        // The library keeps it until the process ends.
        let bytes: &'static [u8] = bytes.ok_or(missing)?.leak();
        register_font(FONT, FontStyle::Normal, bytes).map_err(|_| "the font cannot be read".to_string())
    };
    FOUND.get_or_init(load).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line { name: name.into(), points: points.to_vec(), ..Line::default() }
    }

    #[test]
    fn places_have_bars_and_names() {
        let chart = Chart {
            places: ["4/16", "10/10"].map(String::from).to_vec(),
            lines: vec![line("OpenTOE", &[(0.0, 0.9), (1.0, 0.5)]), line("Linux", &[(0.0, 0.4), (1.0, 0.3)])],
            end: Some(1.0),
            ..Chart::default()
        };
        assert_eq!([chart.place(1.0), chart.place(0.0), chart.place(7.0)], ["10/10", "4/16", ""]);
        let svg = chart.svg().unwrap();
        // Four bars, and two beside the names.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 6, "{svg}");
        assert!(["OpenTOE", "Linux", "4/16", "10/10"].iter().all(|name| svg.contains(name)));
        assert!(!svg.contains("<circle"));
    }

    #[test]
    fn lines_have_marks_and_references_none() {
        let stroke = LineStyle::Reference;
        let mut chart = Chart { lines: vec![line("a", &[(1.0, 5.0), (100.0, 50.0)])], ..Chart::default() };
        chart.lines.push(Line { stroke, ..line("b", &[(1.0, 7.0), (100.0, 7.0)]) });
        let svg = chart.svg().unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
    }

    #[test]
    fn a_series_has_medians_and_what_they_lie_between() {
        let values = [vec![3.0, 1.0, 2.0], vec![f64::NAN], vec![5.0]];
        let (points, spread) = series(3, |at| Some(at as f64), |at| values[at].clone());
        assert_eq!((points, spread), (vec![(0.0, 2.0), (2.0, 5.0)], vec![(0.0, [1.0, 3.0])]));
    }
}
