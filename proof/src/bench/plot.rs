//! Two plots, drawn by hand: bars of throughput by kind, lines of latency over load.

use super::latency::Latency;
use super::meter::median;
use super::throughput::Throughput;

/// A line of the plot: its name, its values, how it is dashed.
type Curve = (&'static str, fn(&Latency) -> f64, &'static str);

const WIDTH: f64 = 720.0;
const LEFT: f64 = 170.0;
const COLOURS: [(&str, &str); 2] = [("direct", "#2a78b5"), ("outbox", "#d9722e")];

fn colour(kind: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| kind.starts_with(name)).map_or("#8a8a8a", |(_, colour)| colour)
}

fn svg(height: f64, title: &str, inner: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"16\" y=\"26\" font-size=\"16\">{title}</text>\n{inner}</svg>\n"
    )
}

pub fn throughput(all: &Throughput) -> String {
    let bars: Vec<(&str, f64)> =
        all.rounds.keys().map(|kind| (*kind, median(&all.of(kind, |window| window.per_second)))).collect();
    let most = bars.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let mut inner = String::new();
    for (index, (kind, rate)) in bars.iter().enumerate() {
        let y = 44.0 + index as f64 * 28.0;
        let width = rate / most * (WIDTH - LEFT - 100.0);
        inner.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{kind}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.0}\" height=\"20\" fill=\"{}\"/>\
             <text x=\"{:.0}\" y=\"{}\">{rate:.0}/s</text>\n",
            LEFT - 8.0,
            y + 15.0,
            colour(kind),
            LEFT + width + 6.0,
            y + 15.0
        ));
    }
    svg(60.0 + bars.len() as f64 * 28.0, "Events per second at saturation, median of all rounds", &inner)
}

pub fn latency(all: &[Latency]) -> String {
    let (top, bottom, left, right) = (60.0, 330.0, 70.0, WIDTH - 150.0);
    let rates: Vec<u64> = COLOURS
        .iter()
        .flat_map(|(kind, _)| all.iter().filter(move |one| one.kind == *kind).map(|one| one.rate))
        .collect();
    let (first, last) = (rates.iter().min().copied().unwrap_or(1), rates.iter().max().copied().unwrap_or(2));
    let most = all.iter().map(|one| one.p99_ms).fold(1.0, f64::max).log10().ceil();
    let x = |rate: u64| {
        let share = (rate as f64 / first as f64).ln() / (last as f64 / first as f64).ln().max(0.01);
        left + share * (right - left)
    };
    // From a tenth of a millisecond up, by powers of ten.
    let y = |ms: f64| bottom - (ms.max(0.1).log10() + 1.0) / (most + 1.0) * (bottom - top);
    let mut inner = String::new();
    for power in -1..=most as i32 {
        let ms = 10_f64.powi(power);
        inner.push_str(&format!(
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{y:.0}\" y2=\"{y:.0}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.0}\" text-anchor=\"end\">{ms} ms</text>\n",
            left - 6.0,
            y(ms) + 4.0,
            y = y(ms)
        ));
    }
    let mut marked: Vec<u64> = rates.clone();
    marked.dedup();
    marked.sort_unstable();
    marked.dedup();
    for rate in marked {
        inner.push_str(&format!(
            "<text x=\"{:.0}\" y=\"{}\" text-anchor=\"middle\">{rate}/s</text>\n",
            x(rate),
            bottom + 20.0
        ));
    }
    let curves: [Curve; 2] = [("p50", |one| one.p50_ms, ""), ("p99", |one| one.p99_ms, "6 4")];
    for (kind, colour) in COLOURS {
        for (name, value, dashes) in curves {
            let points: Vec<(f64, f64)> =
                all.iter().filter(|one| one.kind == kind).map(|one| (x(one.rate), y(value(one)))).collect();
            let text: Vec<String> = points.iter().map(|(x, y)| format!("{x:.0},{y:.0}")).collect();
            inner.push_str(&format!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>\n",
                text.join(" ")
            ));
            if let Some((x, y)) = points.last() {
                inner.push_str(&format!(
                    "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"{colour}\">{kind} {name}</text>\n",
                    x + 8.0,
                    y + 4.0
                ));
            }
        }
    }
    svg(370.0, "From record to receiver, over load", &inner)
}
