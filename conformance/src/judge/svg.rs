//! A timeline as a drawing.

use super::{
    Event, Stamp, Timeline,
    timeline::{Lane, Sign},
};
use std::fmt::Write as _;

const GUTTER: usize = 110;
const WIDTH: usize = 900;
const LANE: usize = 34;
const TOP: usize = 96;
const TICKS: u32 = 6;
/// Colours of holds, by the order of their tokens: neighbours differ, also for the colour-blind
/// (Okabe and Ito, [Color Universal Design](https://jfly.uni-koeln.de/color/)).
const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];

impl Timeline {
    /// The drawing: a self-contained SVG document, without scripts and links.
    #[must_use]
    pub fn svg(&self) -> String {
        let rows = self.faults.len() + self.lanes.len();
        let (bottom, width) = (TOP + rows * LANE, GUTTER + WIDTH + 20);
        let legend = bottom + 48;
        let height = legend + 20 * (self.signs().count().div_ceil(4) + self.notes.len()) + 40;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        text(&mut out, 16, 26, &self.title, "font-size=\"17\" font-weight=\"bold\" fill=\"#b00020\"");
        text(&mut out, 16, 48, &self.what, "");
        self.draw_axis(&mut out, bottom);
        self.draw_break(&mut out, bottom);
        for (row, _) in self.faults.iter().enumerate() {
            self.draw_fault(&mut out, row, TOP + row * LANE);
        }
        for (row, lane) in self.lanes.iter().enumerate() {
            self.draw_lane(&mut out, lane, TOP + (self.faults.len() + row) * LANE);
        }
        let below = self.draw_legend(&mut out, legend);
        self.draw_notes(&mut out, below + 12);
        out.push_str("</svg>\n");
        out
    }

    fn x(&self, at: Stamp) -> usize {
        GUTTER + self.place(at, WIDTH)
    }

    fn rect(&self, out: &mut String, (from, to): (Stamp, Stamp), (y, height): (usize, usize), style: &str) {
        let (from, to) = (self.x(from), self.x(to));
        let width = (to - from).max(2);
        let _ = writeln!(out, "<rect x=\"{from}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {style}/>");
    }

    fn draw_axis(&self, out: &mut String, bottom: usize) {
        for part in 0..=TICKS {
            let x = GUTTER + WIDTH * part as usize / TICKS as usize;
            let label = self.tick(part, TICKS).to_string();
            let anchor = if part == TICKS { "end" } else { "start" };
            let _ = writeln!(out, "<path d=\"M{x} {} V{bottom}\" stroke=\"#ddd\"/>", TOP - 8);
            text(
                out,
                x,
                TOP - 14,
                &label,
                &format!("fill=\"#777\" font-size=\"11\" text-anchor=\"{anchor}\""),
            );
        }
    }

    fn draw_break(&self, out: &mut String, bottom: usize) {
        self.rect(out, self.broken, (TOP - 8, bottom + 8 - TOP), "fill=\"#b00020\" fill-opacity=\"0.12\"");
        let x = self.x(self.broken.0).min(GUTTER + WIDTH - 170);
        text(out, x, bottom + 16, "▲ the contract is broken", "fill=\"#b00020\" font-weight=\"bold\"");
    }

    fn draw_fault(&self, out: &mut String, row: usize, y: usize) {
        let fault = &self.faults[row];
        text(out, 16, y + 21, &format!("fault {}", fault.letter), "fill=\"#8a5a00\"");
        self.rect(out, (fault.from, fault.to), (y + 6, LANE - 14), "fill=\"#ffe0a3\" stroke=\"#8a5a00\"");
        let label = format!("{}: {}", fault.whom, fault.kind);
        let x = (self.x(fault.from) + 6).min((GUTTER + WIDTH).saturating_sub(label.len() * 7));
        text(out, x, y + 20, &label, "fill=\"#5a3a00\"");
        for (lane, at) in self.lanes.iter().zip(0..) {
            if fault.whom != Event::STORE && Event::means(&fault.whom, &lane.client) {
                let y = TOP + (self.faults.len() + at) * LANE;
                self.rect(out, (fault.from, fault.to), (y, LANE), "fill=\"#ffe0a3\" fill-opacity=\"0.5\"");
            }
        }
    }

    fn draw_lane(&self, out: &mut String, lane: &Lane, y: usize) {
        text(out, 16, y + 21, &lane.client, "font-weight=\"bold\"");
        let _ = writeln!(out, "<path d=\"M{GUTTER} {0} h{WIDTH}\" stroke=\"#eee\"/>", y + LANE);
        let mut tokens: Vec<u64> =
            self.lanes.iter().flat_map(|lane| &lane.bars).filter_map(|bar| bar.token).collect();
        tokens.sort_unstable();
        for bar in &lane.bars {
            let Some(token) = bar.token else {
                self.rect(out, (bar.from, bar.to), (y + 14, 6), "fill=\"#bbb\"");
                continue;
            };
            let order = tokens.partition_point(|other| *other < token);
            let colour = COLOURS[order % COLOURS.len()];
            self.rect(out, (bar.from, bar.to), (y + 5, LANE - 10), &format!("fill=\"{colour}\" rx=\"3\""));
            let (from, label) = (self.x(bar.from.max(self.from)), format!("token {token}"));
            if self.x(bar.to) > from + 12 + label.len() * 7 {
                text(out, from + 8, y + 21, &label, "fill=\"#fff\" font-size=\"12\"");
            }
        }
        for mark in &lane.marks {
            let (x, letter) = (self.x(mark.at), mark.sign.letter());
            let small = matches!(mark.sign, Sign::Reads | Sign::Writes);
            let (radius, size) = if small { (5, 8) } else { (8, 11) };
            let colour = if small { "#777" } else { "#222" };
            // Small ones on the edge, clear of the bar's text.
            let at = if small { y + LANE - 5 } else { y + LANE / 2 };
            let _ = writeln!(
                out,
                "<circle cx=\"{x}\" cy=\"{at}\" r=\"{radius}\" fill=\"#fff\" stroke=\"{colour}\"/>"
            );
            let style = format!("text-anchor=\"middle\" font-size=\"{size}\" fill=\"{colour}\"");
            text(out, x, at + size / 3, &letter.to_string(), &style);
        }
    }

    fn draw_legend(&self, out: &mut String, y: usize) -> usize {
        let bars = ["thick bar: believes that it holds".to_owned(), "thin bar: waits".to_owned()];
        let signs = self.signs().map(|sign| format!("{} {}", sign.letter(), sign.words()));
        let mut line = y;
        let items: Vec<String> = bars.into_iter().chain(signs).collect();
        for four in items.chunks(4) {
            text(out, 16, line, &four.join("   ·   "), "fill=\"#555\"");
            line += 20;
        }
        line
    }

    fn draw_notes(&self, out: &mut String, y: usize) {
        for (row, note) in self.notes.iter().enumerate() {
            let y = y + row * 20;
            let colour = if note.at >= self.broken.0 { "fill=\"#b00020\"" } else { "fill=\"#222\"" };
            let right = format!("{colour} text-anchor=\"end\"");
            text(out, 90, y, &self.relative(note.at).to_string(), &right);
            text(out, GUTTER, y, &note.client, &format!("{colour} font-weight=\"bold\""));
            text(out, GUTTER + 70, y, &note.text, colour);
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(out: &mut String, x: usize, y: usize, text: &str, style: &str) {
    let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" {style}>{}</text>", escaped(text));
}
