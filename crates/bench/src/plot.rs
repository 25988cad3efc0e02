//! Line charts, as SVG and as PNG.
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};
use std::path::Path;
use std::sync::OnceLock;

/// One line of a chart.
pub(crate) struct Line {
    /// In the legend.
    pub name: String,
    /// Places on both axes.
    pub points: Vec<(f64, f64)>,
    /// Colour, by its place in the palette: the same thing has the same colour in all charts.
    pub colour: usize,
    /// Drawn thin and without marks: a reference.
    pub reference: bool,
}

/// A chart.
pub(crate) struct Chart {
    /// Above it.
    pub title: String,
    /// Under the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// Names of the places 0, 1, 2, ... on the horizontal axis; where there are none, the axis is logarithmic.
    pub places: Vec<String>,
    /// The vertical axis is logarithmic.
    pub log_y: bool,
    /// What is drawn.
    pub lines: Vec<Line>,
}

const SIZE: (u32, u32) = (820, 480);
/// Easy to tell apart, also for those who see few colours (Okabe and Ito).
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
        let (x, y) = (self.range_x(), self.range_y());
        match (self.places.is_empty(), self.log_y) {
            (true, true) => self.draw_on(&area, x.log_scale(), y.log_scale()),
            (true, false) => self.draw_on(&area, x.log_scale(), y),
            (false, true) => self.draw_on(&area, x, y.log_scale()),
            (false, false) => self.draw_on(&area, x, y),
        }?;
        area.present().map_err(|e| e.to_string())
    }

    fn draw_on<B, X, Y>(&self, area: &DrawingArea<B, Shift>, x: X, y: Y) -> Result<(), String>
    where
        B: DrawingBackend,
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, (FONT, 19)).margin(12).x_label_area_size(44).y_label_area_size(70);
        let mut chart = builder.build_cartesian_2d(x, y).map_err(|e| e.to_string())?;
        let place = |value: &f64| self.place(*value);
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).axis_desc_style((FONT, 15)).label_style((FONT, 14));
        mesh.light_line_style(WHITE).bold_line_style(RGBColor(225, 225, 225)).max_light_lines(1);
        mesh.x_label_formatter(&place).y_label_formatter(&short).x_labels(12).y_labels(8);
        mesh.draw().map_err(|e| e.to_string())?;
        for line in &self.lines {
            let colour = PALETTE[line.colour % PALETTE.len()];
            let style = colour.stroke_width(if line.reference { 1 } else { 2 });
            let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), style));
            let drawn = drawn.map_err(|e| e.to_string())?;
            drawn.label(&line.name).legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
            if !line.reference {
                let marks = line.points.iter().map(|point| Circle::new(*point, 4, colour.filled()));
                chart.draw_series(marks).map_err(|e| e.to_string())?;
            }
        }
        let mut legend = chart.configure_series_labels();
        legend.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85));
        legend.border_style(RGBColor(200, 200, 200)).label_font((FONT, 14)).margin(6);
        legend.draw().map_err(|e| e.to_string())
    }

    /// The name of a place, or the number itself.
    fn place(&self, value: f64) -> String {
        if self.places.is_empty() {
            return short(&value);
        }
        let whole = (value - value.round()).abs() < 1e-6 && value >= 0.0;
        let name = self.places.get(value.round() as usize).filter(|_| whole);
        name.cloned().unwrap_or_default()
    }

    fn all(&self, pick: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = self.lines.iter().flat_map(|line| &line.points).map(pick).filter(|value| value.is_finite());
        values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
    }

    fn range_x(&self) -> std::ops::Range<f64> {
        if !self.places.is_empty() {
            return -0.3..self.places.len() as f64 - 0.7;
        }
        let (least, most) = self.all(|point| point.0);
        least / 1.3..most * 1.3
    }

    fn range_y(&self) -> std::ops::Range<f64> {
        let (least, most) = self.all(|point| point.1);
        // Room above for the legend, which is higher with more lines.
        let room = 1.15 + 0.06 * self.lines.len() as f64;
        let decade = |exponent: f64| 10f64.powf(exponent);
        // Whole decades, because only they get a number.
        if self.log_y { decade(least.log10().floor())..decade((most * 1.5).log10().ceil()) } else { 0.0..most * room }
    }
}

/// A number as short as it can be read: 0.000001 as 1e-6, 2000000 as 2M.
fn short(value: &f64) -> String {
    let magnitude = value.abs();
    let trim = |text: String| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    };
    match magnitude {
        0.0 => "0".into(),
        m if m < 0.001 => {
            let exponent = m.log10().floor();
            format!("{}e{exponent}", trim(format!("{:.1}", value / 10f64.powf(exponent))))
        }
        m if m >= 1e6 => format!("{}M", trim(format!("{:.1}", value / 1e6))),
        m if m >= 1e4 => format!("{}k", trim(format!("{:.1}", value / 1e3))),
        m if m >= 100.0 => format!("{value:.0}"),
        _ => trim(format!("{value:.3}")),
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

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 1e-6, 0.02, 1.5, 16.0, 128.0, 25_000.0, 2e6].iter().map(short).collect();
        assert_eq!(shown, ["0", "1e-6", "0.02", "1.5", "16", "128", "25k", "2M"]);
    }

    #[test]
    fn a_place_has_its_name_and_nothing_between() {
        let places = ["4/16".to_string(), "10/10".into()];
        let chart = Chart {
            title: String::new(),
            x: String::new(),
            y: String::new(),
            places: places.to_vec(),
            log_y: true,
            lines: Vec::new(),
        };
        assert_eq!([chart.place(1.0), chart.place(0.5), chart.place(2.0)], ["10/10", "", ""]);
    }
}
