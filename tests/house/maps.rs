//! The map that a file gives of its folder: a table of its content, whose rows need each other in one direction only.

use crate::circles::Arrows;
use std::cmp::Ordering;

/// A file's table of `layer`s or `file`s.
pub(crate) struct Map {
    /// Where the named are: empty, or like `policy/`.
    folder: String,
    /// The names, each with its row.
    places: Vec<(String, usize)>,
    /// Modules that are there for tests only.
    tests: Vec<String>,
}

impl Map {
    /// The map in a file's first lines, if there is one.
    pub(crate) fn read(path: &str, text: &str) -> Option<Self> {
        let heads = ["layer", "file"].map(|word| format!("//! | {word} |"));
        let is_head = |line: &&str| heads.iter().any(|head| line.starts_with(head));
        let table =
            text.lines().skip_while(|line| !is_head(line)).take_while(|line| line.starts_with("//! |"));
        let is_name = |word: &&str| {
            word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-/".contains(c))
        };
        let mut places = Vec::new();
        for (row, line) in table.enumerate().skip(1) {
            let names = line.split('`').skip(1).step_by(2).filter(is_name);
            places.extend(names.map(|name| (name.to_owned(), row)));
        }
        let module = path.trim_end_matches(".rs");
        let folder = if is_root(module) { String::new() } else { format!("{module}/") };
        let tests = text.split("#[cfg(test)]\nmod ").skip(1);
        let tests = tests.filter_map(|rest| Some(rest.split_once(';')?.0.to_owned())).collect();
        (!places.is_empty()).then_some(Self { folder, places, tests })
    }

    /// Its faults, given the arrows of the crate.
    pub(crate) fn faults(&self, arrows: &Arrows) -> Vec<String> {
        let within =
            |path: &String| Some(path.strip_prefix(&self.folder)?.trim_end_matches(".rs").to_owned());
        let files: Vec<String> = arrows.keys().filter_map(within).collect();
        let missing = self.places.iter().filter(|(name, _)| !files.iter().any(|file| is_in(file, name)));
        let mut faults: Vec<String> = missing.map(|(name, _)| format!("{name} is not there")).collect();
        let is_for_tests = |file: &String| self.tests.iter().any(|name| is_in(file, name));
        let placed = |file: &String| is_root(file) || is_for_tests(file) || self.row(file).is_some();
        faults.extend(files.iter().filter(|file| !placed(file)).map(|file| format!("{file} is on no map")));
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for (file, other) in
            arrows.iter().flat_map(|(file, needed)| needed.iter().map(move |other| (file, other)))
        {
            let (Some(file), Some(other)) = (within(file), within(other)) else { continue };
            let (Some(from), Some(to)) = (self.row(&file), self.row(&other)) else { continue };
            let arrow = format!("{file} needs {other}");
            match from.cmp(&to) {
                Ordering::Less => down.push(arrow),
                Ordering::Greater => up.push(arrow),
                Ordering::Equal => {}
            }
        }
        if !down.is_empty() && !up.is_empty() {
            faults.extend(if down.len() < up.len() { down } else { up });
        }
        faults
    }

    /// The row that says most of the file's path.
    fn row(&self, file: &str) -> Option<usize> {
        let rows = self.places.iter().filter(|(name, _)| is_in(file, name));
        rows.max_by_key(|(name, _)| name.len()).map(|(_, row)| *row)
    }
}

/// Whether a module is the crate itself.
fn is_root(module: &str) -> bool {
    ["lib", "main"].contains(&module)
}

/// Whether a file is the one of this name, or in the folder of this name.
fn is_in(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{circles::arrows, source::File};

    /// `a` needs a file of `b`, and `b` needs `d`.
    fn faults(rows: &[&str]) -> Vec<String> {
        let rows = rows.join(" |\n//! | what | ");
        let root = format!(
            "//! | layer | files |\n//! |---|---|\n//! | what | {rows} |\nmod a;\n#[cfg(test)]\nmod t;\n"
        );
        let files = [
            ("lib.rs", &*root),
            ("a.rs", "use crate::b::c::C;"),
            ("b.rs", "use crate::d::D;"),
            ("b/c.rs", ""),
            ("d.rs", ""),
            ("t.rs", ""),
        ];
        let files: Vec<File> = files.iter().map(|(path, text)| File::read(path, text)).collect();
        Map::read("lib.rs", &root).unwrap().faults(&arrows(&files))
    }

    #[test]
    fn map_names_existing_files() {
        assert_eq!(faults(&["`a`", "`b`, `d`"]), [""; 0]);
        assert_eq!(faults(&["`a`", "`d`"]), ["b is on no map", "b/c is on no map"]);
        assert_eq!(faults(&["`a`, `b`", "`d`, `e`"]), ["e is not there"]);
    }

    #[test]
    fn map_rows_need_each_other_in_one_direction() {
        assert_eq!(faults(&["`a`", "`b`", "`d`"]), [""; 0]);
        assert_eq!(faults(&["`d`", "`b`", "`a`"]), [""; 0]);
        assert_eq!(faults(&["`d`", "`a`", "`b`"]), ["b needs d"]);
        assert_eq!(faults(&["`a`, `b`", "`b/c`, `d`"]), [""; 0]);
    }
}
