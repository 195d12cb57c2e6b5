//! The storm as a picture: connects per second, and p99 from SYN to CONNACK, over time. A small SVG, without anybody's help.

use std::fmt::Write as _;

use troupemq::load::{Slice, show};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 40.0;
const TOP: f64 = 50.0;
/// Between the two panels, and below the second.
const GAP: f64 = 60.0;
const COLORS: [&str; 4] = ["#1f6feb", "#d1242f", "#1a7f37", "#8250df"];
/// Lines across a panel.
const LINES: usize = 4;

/// A storm, by the name of its broker.
pub struct Storm {
    pub name: String,
    pub slices: Vec<Slice>,
}

/// What a panel shows of a slice.
type Of = fn(&Slice) -> f64;

/// The picture; empty storms are left out.
pub fn svg(title: &str, storms: &[Storm]) -> String {
    let storms: Vec<(&str, Vec<&Slice>)> = storms.iter().map(|storm| (storm.name.as_str(), measured(&storm.slices))).collect();
    let span_ms = storms.iter().map(|(_, slices)| span_ms(slices)).fold(1.0, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    let panel = (HEIGHT - TOP - 2.0 * GAP) / 2.0;
    let panels: [(&str, Of); 2] =
        [("connects per second", |slice| slice.connects), ("SYN to CONNACK, p99, ms", |slice| slice.p99_ms)];
    for (number, (label, of)) in panels.into_iter().enumerate() {
        let top = TOP + number as f64 * (panel + GAP);
        draw(&mut text, label, of, &storms, span_ms, (top, panel));
    }
    for (number, (name, _)) in storms.iter().enumerate() {
        let (x, color) = (LEFT + 160.0 * number as f64, COLORS[number % COLORS.len()]);
        _ = writeln!(text, "<rect x=\"{x}\" y=\"{:.1}\" width=\"18\" height=\"4\" fill=\"{color}\"/>", HEIGHT - 20.0);
        _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 24.0, HEIGHT - 13.0, escaped(name));
    }
    text + "</svg>\n"
}

/// What belongs to the storm: from its first connect to its last.
fn measured(slices: &[Slice]) -> Vec<&Slice> {
    let Some(last) = slices.iter().rposition(|slice| slice.connects > 0.0) else { return Vec::new() };
    slices[..=last].iter().skip_while(|slice| slice.connects == 0.0).collect()
}

fn span_ms(slices: &[&Slice]) -> f64 {
    slices.first().zip(slices.last()).map_or(0.0, |(first, last)| last.at_ms - first.at_ms)
}

fn draw(text: &mut String, label: &str, of: Of, storms: &[(&str, Vec<&Slice>)], span_ms: f64, (top, height): (f64, f64)) {
    let most = storms.iter().flat_map(|(_, slices)| slices.iter().map(|slice| of(slice))).fold(0.0, f64::max);
    let most = rounded_up(most);
    let right = WIDTH - RIGHT;
    let y = |value: f64| top + height - value / most * height;
    _ = writeln!(text, "<text x=\"{LEFT}\" y=\"{:.1}\">{label}</text>", top - 6.0);
    for line in 0..=LINES {
        let value = most * line as f64 / LINES as f64;
        let y = y(value);
        _ = writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#d0d7de\"/>");
        _ = writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>", LEFT - 6.0, y + 4.0, show(value));
        let (x, ms) = (LEFT + (right - LEFT) * line as f64 / LINES as f64, span_ms * line as f64 / LINES as f64);
        _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} ms</text>",
            top + height + 18.0,
            show(ms.round())
        );
    }
    for (number, (_, slices)) in storms.iter().enumerate() {
        let began_ms = slices.first().map_or(0.0, |slice| slice.at_ms);
        let mut points = String::new();
        // A slice in which nobody came has no p99.
        for slice in slices.iter().filter(|slice| slice.connects > 0.0 || of(slice) == slice.connects) {
            let x = LEFT + (slice.at_ms - began_ms) / span_ms * (right - LEFT);
            _ = write!(points, "{x:.1},{:.1} ", y(of(slice)));
        }
        let color = COLORS[number % COLORS.len()];
        _ = writeln!(text, "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>", points.trim_end());
    }
}

/// The next number that starts with 1, 2 or 5 and has zeros behind.
fn rounded_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power).find(|number| *number >= value).unwrap_or(value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
