//! Checks that the files of a crate, and its rooms, need each other in one direction only: then they can be read, and
//! understood, from the bottom up.
//!
//! What is seen is what a file names: its imports, and the paths in its code. That a file calls a method which another one
//! adds to a type is not seen.

mod circles;
mod source;

use circles::{Arrows, arrows, between_rooms, circles};
use source::File;
use std::{collections::BTreeSet, fs, path::Path};

/// Files that need each other today. What is mended goes out, and nothing comes in.
const KNOWN: [(&str, &[&str]); 0] = [];

/// Rooms that need each other today: folders, each with the file of its name, and files beside them.
const KNOWN_ROOMS: [(&str, &[&str]); 0] = [];

/// The folders of the crates' sources: this one's, and those beside it.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap());
    let crates = folders.filter(|folder| folder.path().join("Cargo.toml").exists());
    let sources = crates.map(|folder| format!("{}/src", folder.file_name().to_str().unwrap()));
    sources.chain(["src".to_owned()]).collect()
}

/// Who needs whom in a crate.
fn read(sources: &str) -> Arrows {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(sources);
    let (mut files, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
                let within = path.strip_prefix(&root).unwrap().to_str().unwrap();
                files.push(File::read(within, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!files.is_empty(), "no file in {sources}");
    arrows(&files)
}

/// Fails when others need each other than those that are known to, and when these do not any more.
fn check(known: &[(&str, &[&str])], arrows: impl Fn(Arrows) -> Arrows) {
    let mut found = BTreeSet::new();
    for sources in crates() {
        let circles = circles(&arrows(read(&sources)));
        found.extend(circles.into_iter().map(|circle| (sources.clone(), circle)));
    }
    let owned = |circle: &[&str]| circle.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    let known = known.iter().map(|(sources, circle)| ((*sources).to_owned(), owned(circle))).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(
        new.is_empty(),
        "these need each other: {new:#?}\n(of those that are known, these need each other no more: {gone:#?})"
    );
    assert!(gone.is_empty(), "these need each other no more, so they are not known circles: {gone:#?}");
}

#[test]
fn no_files_need_each_other() {
    check(&KNOWN, |arrows| arrows);
}

#[test]
fn no_rooms_need_each_other() {
    check(&KNOWN_ROOMS, |arrows| between_rooms(&arrows));
}
