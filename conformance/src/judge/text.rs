//! A timeline for a terminal.

use super::{
    Timeline,
    stamp::Span,
    timeline::{Track, WIDTH},
};
use std::fmt;

const HOLD: char = '█';
const WAIT: char = '░';
const FAULT: char = '▒';
const TICKS: u32 = 4;

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n", self.title, self.what)?;
        let gutter = self.tracks.iter().map(|track| track.client.chars().count()).max().unwrap_or(0).max(8);
        self.write_axis(f, gutter)?;
        for fault in &self.faults {
            let mut row = Row::default();
            row.fill(self.place(fault.from), self.place(fault.to), FAULT);
            row.put(self.place(fault.from.max(self.from)), fault.letter);
            writeln!(f, "  {:<gutter$}  {row}", format!("fault {}", fault.letter))?;
        }
        for track in &self.tracks {
            writeln!(f, "  {:<gutter$}  {}", track.client, self.row_of(track))?;
        }
        let mut row = Row::default();
        row.fill(self.place(self.broken.0), self.place(self.broken.1), '^');
        writeln!(f, "  {:<gutter$}  {row}\n", "BROKEN")?;
        self.write_legend(f)?;
        writeln!(f)?;
        self.write_notes(f)
    }
}

impl Timeline {
    fn write_axis(&self, f: &mut fmt::Formatter<'_>, gutter: usize) -> fmt::Result {
        let mut labels = format!("  {:<gutter$}  ", "");
        let mut ticks = Row::default();
        for part in 0..TICKS {
            let column = WIDTH * part as usize / TICKS as usize;
            let label = self.relative(self.from + self.to.since(self.from) * part / TICKS).to_string();
            let width = WIDTH / TICKS as usize;
            labels.extend(format!("{label:<width$}").chars());
            ticks.put(column, '|');
        }
        writeln!(f, "{}", labels.trim_end())?;
        writeln!(f, "  {:<gutter$}  {ticks}", "")
    }

    fn row_of(&self, track: &Track) -> Row {
        let mut row = Row::default();
        for (from, to, holds) in &track.bars {
            row.fill(self.place(*from), self.place(*to), if *holds { HOLD } else { WAIT });
        }
        for (at, sign) in &track.marks {
            row.put(self.place(*at), *sign);
        }
        row
    }

    fn write_legend(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bars = [format!("{HOLD} believes that it holds"), format!("{WAIT} waits")];
        let signs = self.signs().map(|(sign, words)| format!("{sign} {words}"));
        let mut line = String::new();
        for item in bars.into_iter().chain(signs) {
            if line.chars().count() + item.chars().count() > WIDTH {
                writeln!(f, "  {}", line.trim_end())?;
                line.clear();
            }
            line += &item;
            line += "   ";
        }
        writeln!(f, "  {}", line.trim_end())?;
        for fault in &self.faults {
            let (from, lasts) = (self.relative(fault.from), Span(fault.to.since(fault.from)));
            writeln!(f, "  {} {}: {}, from {from} for {lasts}", fault.letter, fault.whom, fault.kind)?;
        }
        Ok(())
    }

    fn write_notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.notes.iter().map(|(_, client, _)| client.chars().count());
        let width = clients.max().unwrap_or_default();
        let mut told = false;
        for (at, client, text) in &self.notes {
            if !told && *at >= self.broken.0 {
                told = true;
                writeln!(f, "  --- from here on the contract is broken ---")?;
            }
            writeln!(f, "  {:>12}  {client:<width$}  {text}", self.relative(*at))?;
        }
        if self.more > 0 {
            writeln!(f, "  … and {} notes more", self.more)?;
        }
        Ok(())
    }
}

/// One row of characters.
struct Row(Vec<char>);

impl Default for Row {
    fn default() -> Self {
        Self(vec![' '; WIDTH])
    }
}

impl Row {
    /// At least one column, however short it is.
    fn fill(&mut self, from: usize, to: usize, with: char) {
        let from = from.min(WIDTH - 1);
        let to = to.clamp(from + 1, WIDTH);
        self.0[from..to].fill(with);
    }

    fn put(&mut self, at: usize, what: char) {
        self.0[at.min(WIDTH - 1)] = what;
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iter().collect::<String>().trim_end())
    }
}
