//! Which files need each other.

use crate::source::File;
use std::collections::{BTreeMap, BTreeSet};

/// Arrows from each file to those that it needs.
pub(crate) type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The arrows between a crate's files. A name counts where it is defined, wherever it is imported from.
pub(crate) fn arrows(files: &[File]) -> Arrows {
    let places = files.iter().map(|file| (file.module.clone(), file)).collect();
    let house = House { files: places };
    files.iter().map(|file| (file.path.clone(), house.needed_by(file))).collect()
}

/// The arrows between rooms: the folders, each with the file of its name, and the files beside them.
pub(crate) fn between_rooms(arrows: &Arrows) -> Arrows {
    let room = |path: &String| path.split('/').next().unwrap_or_default().trim_end_matches(".rs").to_owned();
    let mut rooms = Arrows::new();
    for (file, needed) in arrows {
        rooms
            .entry(room(file))
            .or_default()
            .extend(needed.iter().map(room).filter(|other| *other != room(file)));
    }
    rooms
}

/// The files that need each other, directly or through others.
pub(crate) fn circles(arrows: &Arrows) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> = arrows.keys().map(|from| (from, reached_from(from, arrows))).collect();
    let circle = |one| {
        let is_mutual = |other: &&String| reached[one].contains(*other) && reached[*other].contains(one);
        arrows.keys().filter(is_mutual).cloned().collect::<Vec<_>>()
    };
    arrows.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reached_from(from: &String, arrows: &Arrows) -> BTreeSet<String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(at) = open.pop() {
        open.extend(arrows[at].iter().filter(|next| reached.insert((*next).clone())));
    }
    reached
}

/// The files of a crate by their modules.
struct House<'a> {
    files: BTreeMap<Vec<String>, &'a File>,
}

impl<'a> House<'a> {
    fn needed_by(&self, file: &File) -> BTreeSet<String> {
        let is_used = |name: &String| file.names.iter().any(|path| path[0] == *name);
        // A name that is only passed on is a need of its importers.
        let imported = file.imports.iter().filter(|import| !import.is_re_export || is_used(&import.name));
        let imported = imported.map(|import| import.path.clone());
        let named = file.names.iter().filter(|path| path.len() > 1).map(|path| {
            let import = file.imports.iter().find(|import| import.name == path[0]);
            import.map_or_else(|| path.clone(), |import| [&import.path[..], &path[1..]].concat())
        });
        let needed = imported.chain(named).filter_map(|path| self.defined_in(&file.module, &path));
        needed.map(|needed| needed.path.clone()).filter(|path| *path != file.path).collect()
    }

    /// The file that defines what a module calls by this path. `None` if that is in another crate, or a module that has
    /// others in it: the names used from those say more.
    fn defined_in(&self, module: &[String], path: &[String]) -> Option<&'a File> {
        let (mut at, mut rest) = match path[0].as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (module.to_vec(), &path[1..]),
            "super" => (module.split_last()?.1.to_vec(), &path[1..]),
            _ if self.files.contains_key(&[module, &path[..1]].concat()) => (module.to_vec(), path),
            _ => return None,
        };
        while let Some((next, others)) = rest.split_first() {
            if next == "super" {
                at.pop();
            } else {
                at.push(next.clone());
                if !self.files.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
            rest = others;
        }
        let file = self.files.get(&at)?;
        let Some(name) = rest.first() else {
            let has_others = self.files.keys().any(|other| other.len() > at.len() && other.starts_with(&at));
            return (!has_others).then_some(file);
        };
        // A macro is imported where it is defined, to be seen from elsewhere.
        match file.imports.iter().find(|import| import.name == *name && import.path.len() > 1) {
            Some(import) => self.defined_in(&at, &[&import.path[..], &rest[1..]].concat()),
            None => Some(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::read(path, text)).collect();
        circles(&arrows(&files)).into_iter().collect()
    }

    #[test]
    fn circle_is_found_in_any_notation() {
        let circle = [["a.rs", "b.rs"]];
        for (a, b) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{b::{self, B}, c::C};", "pub struct B(crate::a::A);"),
            ("fn f() { crate::b::g() }", "use crate::a::{f as h};"),
            ("use crate::c::B;", "use crate::A;"),
            ("use crate::{\n    c::{\n        B,\n    },\n};", "pub(crate) use crate::A;\nfn g(_: A) {}"),
        ] {
            let root = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;");
            let files =
                [root, ("a.rs", a), ("b.rs", b), ("c.rs", "pub(crate) use crate::b::B;\npub struct C;")];
            assert_eq!(found(&files), circle, "{a} {b}");
        }
    }

    #[test]
    fn long_circle_and_circle_in_room_are_found() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::two::Two;"),
            ("b.rs", "pub(crate) mod one;\npub(crate) mod two;"),
            ("b/one.rs", "use crate::a::A;"),
            ("b/two.rs", "use super::one::One;"),
        ];
        assert_eq!(found(&files), [["a.rs", "b/one.rs", "b/two.rs"]]);
    }

    #[test]
    fn re_export_makes_no_circle() {
        let files = [
            ("lib.rs", "mod a;\npub use a::{One, Two};"),
            ("a.rs", "mod one;\nmod two;\npub use one::One;\npub use two::Two;"),
            ("a/one.rs", "use super::Two;\n// crate::a::Three is in no code"),
            ("a/two.rs", "pub struct Two;\n\n#[cfg(test)]\nmod tests {\n    use super::super::One;\n}\n"),
        ];
        assert_eq!(found(&files), [[""; 0]; 0]);
    }

    #[test]
    fn rooms_may_need_each_other_where_no_files_do() {
        let files = [
            ("a.rs", "mod low; mod high;"),
            ("a/low.rs", ""),
            ("a/high.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::low::Low;"),
        ];
        let files = files.map(|(path, text)| File::read(path, text));
        let arrows = arrows(&files);
        assert!(circles(&arrows).is_empty());
        assert_eq!(circles(&between_rooms(&arrows)).into_iter().collect::<Vec<_>>(), [["a", "b"]]);
    }
}
