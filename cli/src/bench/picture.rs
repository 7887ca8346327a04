//! The results of `tenure bench` as an SVG picture: a histogram of each workload's times.
//!
//! All workloads share one scale of time, so that they can be compared at a glance. It is logarithmic, because a
//! store's longest time is often a thousand times its median.

use super::{
    report::{Report, Row, millis, three_digits, time},
    workloads::{Figures, WORKLOADS},
};
use crate::people;
use hdrhistogram::Histogram;

// All lengths are pixels. The picture's width, and where its panels begin.
const WIDTH: u32 = 760;
const MARGIN: u32 = 24;
/// Where the scale of time begins and ends, how many bins it has, and how wide each is.
const LEFT: u32 = 40;
const RIGHT: u32 = LEFT + BINS * BIN;
const BINS: u32 = 136;
const BIN: u32 = 5;

// The top of the first panel, the height of each and the gap below it, and the height of the scale at the foot.
const FIRST: u32 = 100;
const HEIGHT: u32 = 136;
const GAP: u32 = 12;
const FOOT: u32 = 52;

// Within a panel: the lines of its title and of its figures, the histogram from its top to its base, and the strip
// below it, which shows the figures.
const TITLE: u32 = 26;
const FIGURES: u32 = 50;
const TOP: u64 = 62;
const BASE: u64 = 112;
const STRIP: u32 = 116;
const STRIP_END: u32 = STRIP + 8;
/// How far one figure is from the next.
const COLUMN: usize = 170;

/// The longest name of a store that fits into a line.
const LONGEST: usize = 72;

/// A figure of each workload.
struct Mark {
    name: &'static str,
    quantile: f64,
    look: &'static str,
    /// How high the strip is up to there. The fewer times a part of it has, the thinner it is.
    height: u32,
}

const MARKS: [Mark; 4] = [
    Mark { name: "median", quantile: 0.5, look: "half", height: 8 },
    Mark { name: "90 %", quantile: 0.9, look: "most", height: 6 },
    Mark { name: "99 %", quantile: 0.99, look: "late", height: 4 },
    Mark { name: "max", quantile: 1.0, look: "last", height: 2 },
];

impl Mark {
    fn of(&self, times: &Histogram<u64>) -> String {
        format!("{} {}", self.name, time(millis(times.value_at_quantile(self.quantile))))
    }
}

const FONT: &str = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
const SHAPES: &str = "\
text { font-size: 13px; }
.strong { font-size: 15px; font-weight: 600; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.bare { stroke-width: 1.5; stroke-dasharray: 5 4; }";
/// The colour of each part, on a light page and on a dark one: those of `docs/pictures`.
const COLOURS: [(&str, &str, [&str; 2]); 11] = [
    (".ground", "fill", ["#ffffff", "#0d1117"]),
    (".panel", "fill", ["#f6f8fa", "#151b23"]),
    (".grid", "stroke", ["#d1d9e0", "#3d444d"]),
    ("text", "fill", ["#1f2328", "#f0f6fc"]),
    (".faint", "fill", ["#59636e", "#9198a1"]),
    (".bare", "stroke", ["#1f2328", "#f0f6fc"]),
    (".counts", "fill", ["#818b98", "#656c76"]),
    (".half", "fill", ["#1a7f37", "#3fb950"]),
    (".most", "fill", ["#0969da", "#4493f8"]),
    (".late", "fill", ["#9a6700", "#d29922"]),
    (".last", "fill", ["#d1242f", "#f85149"]),
];

/// The whole picture.
pub(super) fn draw(report: &Report, figures: &[Figures; WORKLOADS]) -> String {
    let guards: Vec<_> = figures.iter().map(Figures::times).collect();
    let times: Vec<&Histogram<u64>> = guards.iter().map(|guard| &**guard).collect();
    let scale = Scale::over(&times);
    let bare = (!times[0].is_empty()).then(|| times[0].value_at_quantile(0.5));
    let store = people::plain(&report.store);
    let (mut shapes, mut told) = (head(report, &store, bare), Vec::new());
    let mut top = FIRST;
    for ((title, row), times) in report.rows().into_iter().zip(times) {
        let panel = panel(&title, row, times, scale, bare);
        shapes.push(format!("<g transform=\"translate(0 {top})\">\n{panel}\n</g>"));
        told.push(format!("{title}: {}.", in_words(times)));
        top += HEIGHT + GAP;
    }
    for power in scale.powers() {
        shapes.push(text(scale.x(10_u64.pow(power)), top + 8, "faint middle", &power_of_ten(power)));
    }
    let foot = "time on a logarithmic scale; the height shows how often it took that long";
    shapes.push(text(WIDTH / 2, top + 29, "faint middle", foot));
    let (style, shapes, height) = (style(), shapes.join("\n"), top + FOOT - GAP);
    let ground = rectangle("ground", 0, 0, WIDTH, height, 12);
    let (title, told) = (escaped(&format!("How long locks take: {store}")), escaped(&told.join(" ")));
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
  font-family="{FONT}" role="img" aria-labelledby="title description">
<title id="title">{title}</title>
<desc id="description">{told}</desc>
<style>
{style}
</style>
{ground}
{shapes}
</svg>
"#
    )
}

/// The colours for light pages and for dark ones.
fn style() -> String {
    let [light, dark] = [0, 1].map(|shade| {
        let rule = |(selector, property, colours): (&str, &str, [&str; 2])| {
            format!("{selector} {{ {property}: {}; }}", colours[shade])
        };
        COLOURS.map(rule).join("\n")
    });
    format!("{SHAPES}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")
}

/// The store, the settings, and the key to the dashed line.
fn head(report: &Report, store: &str, bare: Option<u64>) -> Vec<String> {
    let Report { seconds, tasks, .. } = report;
    let caption = format!("tenure bench: {seconds} s for each workload, {tasks} tasks");
    let mut shapes = vec![text(LEFT, 40, "strong", &shortened(store)), text(LEFT, 62, "faint", &caption)];
    match bare {
        Some(nanos) => {
            let key = format!("the median of the round trip: {}", time(millis(nanos)));
            shapes.push(format!(r#"<path class="bare" d="M {LEFT} 80 H {}"/>"#, LEFT + 24));
            shapes.push(text(LEFT + 34, 84, "faint", &key));
        }
        None => shapes.push(text(LEFT, 84, "faint", "the round trip was not measured")),
    }
    shapes
}

/// One workload.
fn panel(title: &str, row: Option<Row>, times: &Histogram<u64>, scale: Scale, bare: Option<u64>) -> String {
    let ground = rectangle("panel grid", MARGIN, 0, WIDTH - 2 * MARGIN, HEIGHT, 10);
    let mut shapes = vec![ground, text(LEFT, TITLE, "strong", title)];
    let Some(row) = row else {
        shapes.push(text(RIGHT, TITLE, "faint end", "not measured"));
        return shapes.join("\n");
    };
    shapes.push(text(RIGHT, TITLE, "faint end", &note(row)));
    shapes.extend(scale.powers().map(|power| upright("grid", scale.x(10_u64.pow(power)))));
    shapes.push(counts(times, scale));
    let mut from = scale.x(times.min());
    for (mark, column) in MARKS.iter().zip((LEFT..).step_by(COLUMN)) {
        let until = scale.x(times.value_at_quantile(mark.quantile));
        let y = STRIP + (STRIP_END - STRIP - mark.height) / 2;
        // Two equal figures are both visible.
        shapes.push(rectangle(mark.look, from, y, (until - from).max(1.0), mark.height, 1));
        shapes.push(rectangle(mark.look, column, FIGURES - 11, 12, 12, 3));
        shapes.push(text(column + 20, FIGURES, "", &mark.of(times)));
        from = until;
    }
    shapes.extend(bare.map(|nanos| upright("bare", scale.x(nanos))));
    shapes.join("\n")
}

fn note(row: Row) -> String {
    let rate = row.per_second.map(|rate| format!("{} a second", three_digits(rate)));
    let trips = row.round_trips.map(|trips| format!("median: {} round trips", three_digits(trips)));
    rate.into_iter().chain(trips).collect::<Vec<_>>().join("; ")
}

/// The histogram: how often each time was measured. The most frequent one has the full height.
fn counts(times: &Histogram<u64>, scale: Scale) -> String {
    let bins = times.iter_log(10_u64.pow(scale.from), scale.bin());
    // The first one ends where the scale begins.
    let counts: Vec<u64> = bins.skip(1).map(|bin| bin.count_since_last_iteration()).collect();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let steps: Vec<String> = (1..)
        .zip(counts)
        .map(|(end, count)| format!("V {} H {}", BASE - count * (BASE - TOP) / most, LEFT + end * BIN))
        .collect();
    format!(r#"<path class="counts" d="M {LEFT} {BASE} {} V {BASE} Z"/>"#, steps.join(" "))
}

/// The figures as text, for screen readers.
fn in_words(times: &Histogram<u64>) -> String {
    if times.is_empty() {
        return "not measured".to_owned();
    }
    MARKS.each_ref().map(|mark| mark.of(times)).join(", ")
}

/// A logarithmic scale from one power of ten to another, in nanoseconds.
#[derive(Clone, Copy)]
struct Scale {
    from: u32,
    until: u32,
}

impl Scale {
    /// One that has room for all these times.
    fn over(all: &[&Histogram<u64>]) -> Self {
        let measured = || all.iter().copied().filter(|times| !times.is_empty());
        let shortest = measured().map(Histogram::min).min().unwrap_or(1);
        let longest = measured().map(Histogram::max).max().unwrap_or(1);
        // Zero has no place on it.
        Self { from: shortest.max(1).ilog10(), until: longest.max(1).ilog10() + 1 }
    }

    fn powers(self) -> impl Iterator<Item = u32> {
        self.from..=self.until
    }

    fn decades(self) -> f64 {
        f64::from(self.until - self.from)
    }

    /// A bin's end divided by its beginning.
    fn bin(self) -> f64 {
        10_f64.powf(self.decades() / f64::from(BINS))
    }

    /// Where a time is.
    fn x(self, nanos: u64) -> f64 {
        // A millisecond has 10^6 of them.
        let power = millis(nanos.max(1)).log10() + 6.0;
        f64::from(LEFT) + f64::from(RIGHT - LEFT) * (power - f64::from(self.from)) / self.decades()
    }
}

/// A power of ten, in nanoseconds, as a label.
fn power_of_ten(power: u32) -> String {
    let (power, unit) = match power {
        ..3 => (power, "ns"),
        3..6 => (power - 3, "µs"),
        6..9 => (power - 6, "ms"),
        _ => (power - 9, "s"),
    };
    format!("{} {unit}", 10_u64.pow(power))
}

fn text(x: impl Into<f64>, y: u32, look: &str, words: &str) -> String {
    let x = x.into();
    format!(r#"<text class="{look}" x="{x:.1}" y="{y}">{}</text>"#, escaped(words))
}

fn rectangle(
    look: &str,
    x: impl Into<f64>,
    y: u32,
    width: impl Into<f64>,
    height: u32,
    radius: u32,
) -> String {
    let (x, width) = (x.into(), width.into());
    format!(r#"<rect class="{look}" x="{x:.1}" y="{y}" width="{width:.1}" height="{height}" rx="{radius}"/>"#)
}

/// A line through a panel's histogram and its strip.
fn upright(look: &str, x: f64) -> String {
    format!(r#"<path class="{look}" d="M {x:.1} {TOP} V {STRIP_END}"/>"#)
}

/// Drops the middle of a text that is too long for a line.
fn shortened(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= LONGEST {
        return text.to_owned();
    }
    let (begin, end) = (&chars[..LONGEST / 2], &chars[chars.len() - LONGEST / 2..]);
    begin.iter().chain(&['…']).chain(end).collect()
}

/// As the text of an element.
fn escaped(text: &str) -> String {
    // XML has no place for these two, not even escaped. There are no control characters here.
    let text = text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use std::time::Duration;

    /// The picture of a store of this name, of which so many workloads were measured. The first one took 1 to 100 µs,
    /// and each of the others ten times as long as the one before.
    fn picture(store: &str, measured: usize) -> String {
        let args = args::Bench { seconds: Duration::from_secs(2), tasks: 8, json: false, svg: None };
        let mut figures: [Figures; WORKLOADS] = Default::default();
        for (power, figures) in (3..).zip(&mut figures[..measured]) {
            (1..=100).for_each(|time| figures.times().record(time * 10_u64.pow(power)).unwrap());
            figures.elapsed = Duration::from_secs(1);
        }
        draw(&Report::new(store, &args, &figures), &figures)
    }

    /// How many elements have this look.
    fn count(svg: &str, look: &str) -> usize {
        svg.matches(&format!("class=\"{look}\"")).count()
    }

    #[test]
    fn each_workload_has_a_panel_with_its_figures() {
        let svg = picture("a store", WORKLOADS - 1);
        assert_eq!((count(&svg, "panel grid"), count(&svg, "counts")), (WORKLOADS, WORKLOADS - 1));
        // The line of the round trip is in each of these, and in the key.
        assert_eq!(count(&svg, "bare"), WORKLOADS);
        // The longest time is not told from a bit more than 100 ms, so the scale goes on to 1 s.
        for words in [
            ">8 tasks, 8 names<",
            ">tenure bench: 2 s for each workload, 8 tasks<",
            ">the median of the round trip: 50.0 µs<",
            ">90 % 90.0 µs<",
            "round trip: median 50.0 µs, 90 % 90.0 µs, 99 % 99.0 µs, max 100 µs.",
            ">100 a second; median: 10.0 round trips<",
            ">1 µs<",
            ">1 s<",
        ] {
            assert!(svg.contains(words), "{words:?} is not in {svg}");
        }
    }

    #[test]
    fn unmeasured_workload_is_not_drawn() {
        let svg = picture("a store", WORKLOADS - 1);
        assert_eq!(svg.matches(">not measured<").count(), 1, "{svg}");
        assert!(svg.contains("hand-off between two clients: not measured."), "{svg}");
        let svg = picture("a store", 0);
        assert_eq!(svg.matches(">not measured<").count(), WORKLOADS, "{svg}");
        assert_eq!((count(&svg, "counts"), count(&svg, "bare")), (0, 0), "{svg}");
    }

    #[test]
    fn store_name_is_escaped_and_shortened() {
        let svg = picture("sqlite:a<&\"b>\u{1}\u{ffff}]]>", 1);
        assert_eq!(svg.matches("sqlite:a&lt;&amp;\"b&gt;\\u{1}\u{fffd}]]&gt;").count(), 2, "{svg}");
        let long = picture(&format!("sqlite:/{}/end.db", "é/".repeat(200)), 1);
        let line = long.lines().find(|line| line.contains("class=\"strong\"")).unwrap();
        assert!(line.contains(">sqlite:/é") && line.contains('…') && line.contains("/end.db<"), "{line}");
        assert!(line.chars().count() < 130, "{line}");
    }

    #[test]
    fn every_time_is_on_the_scale() {
        let figures = Figures::default();
        for nanos in [0, 1, 999, 1_000, u64::MAX] {
            figures.times().saturating_record(nanos);
        }
        let scale = Scale::over(&[&figures.times()]);
        // The longest time that is told from longer ones is ten minutes, 6 * 10^11 ns.
        assert_eq!((scale.from, scale.until), (0, 12));
        let is_at = |nanos, x: u32| (scale.x(nanos) - f64::from(x)).abs() < 1e-6;
        assert!(is_at(0, LEFT) && is_at(1, LEFT) && is_at(1_000_000, LEFT.midpoint(RIGHT)));
        assert!(is_at(10_u64.pow(12), RIGHT) && scale.x(figures.times().max()) < f64::from(RIGHT));
        let labels = [0, 2, 3, 5, 6, 8, 9, 11, 13].map(power_of_ten);
        let are = ["1 ns", "100 ns", "1 µs", "100 µs", "1 ms", "100 ms", "1 s", "100 s", "10000 s"];
        assert_eq!(labels, are);
    }
}
