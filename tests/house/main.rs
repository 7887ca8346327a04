//! Checks that the files of a crate, and its rooms, need each other in one direction only: then they can be read, and
//! understood, from the bottom up. That the maps which some of them give of their folders are true. And that tests on
//! servers depend on no clock.
//!
//! Only names are seen: imports, and paths in code. A call of a method that another file adds to a type is not seen.

mod circles;
mod maps;
mod pauses;
mod source;

use circles::{Arrows, arrows, between_rooms, circles};
use maps::Map;
use source::File;
use std::{fs, path::Path};

/// The folders of the crates' sources: this one's, and those beside it.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|entry| entry.unwrap());
    let crates = folders.filter(|folder| folder.path().join("Cargo.toml").exists());
    let sources = crates.map(|folder| format!("{}/src", folder.file_name().to_str().unwrap()));
    sources.chain(["src".to_owned()]).collect()
}

/// The files of Rust in a folder, at any depth: the path of each from the root, and its text.
fn texts(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut folders) = (Vec::new(), vec![root.join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let within = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.push((within.to_owned(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

/// A crate's files: the path of each, and its text.
fn files(sources: &str) -> Vec<(String, String)> {
    let within = |path: String| path.strip_prefix(&format!("{sources}/")).map(str::to_owned).unwrap();
    let files = texts(sources).into_iter().filter(|(path, _)| !path.ends_with("/tests.rs"));
    let files: Vec<_> = files.map(|(path, text)| (within(path), text)).collect();
    assert!(!files.is_empty(), "no file in {sources}");
    files
}

/// The arrows between the files of a crate.
fn read(sources: &str) -> Arrows {
    let files: Vec<_> = files(sources).iter().map(|(path, text)| File::read(path, text)).collect();
    arrows(&files)
}

/// Fails when some need each other.
fn check(arrows: impl Fn(Arrows) -> Arrows) {
    let circles_in = |sources: String| {
        let circles = circles(&arrows(read(&sources)));
        (sources, circles)
    };
    let found: Vec<_> =
        crates().into_iter().map(circles_in).filter(|(_, circles)| !circles.is_empty()).collect();
    assert!(found.is_empty(), "these need each other: {found:#?}");
}

#[test]
fn files_have_no_circle() {
    check(|arrows| arrows);
}

/// Rooms: folders, each with the file of its name, and files beside them.
#[test]
fn rooms_have_no_circle() {
    check(|arrows| between_rooms(&arrows));
}

#[test]
fn maps_match_their_folders() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for sources in crates() {
        let arrows = read(&sources);
        for (path, text) in files(&sources) {
            let Some(map) = Map::read(&path, &text) else { continue };
            faults.extend(map.faults(&arrows).into_iter().map(|fault| format!("{sources}/{path}: {fault}")));
            count += 1;
        }
    }
    // Or the words at the head of a map are no longer those that are looked for.
    assert!(count >= 20, "only {count} maps");
    assert!(faults.is_empty(), "maps that are not true: {faults:#?}");
}

#[test]
fn tests_on_servers_sleep_only_through_named_pauses() {
    let suite = ["cases", "oracle"].map(|room| format!("conformance/src/{room}"));
    let tests = crates().into_iter().map(|sources| sources.replace("src", "tests"));
    let folders = tests.filter(|tests| Path::new(env!("CARGO_MANIFEST_DIR")).join(tests).exists());
    // The core and broken stores are tested on virtual clocks.
    let on_servers = |tests: &String| !["lock-core/tests", "conformance/tests"].contains(&tests.as_str());
    let meet_servers = folders.filter(on_servers).chain(suite);
    let files: Vec<_> = meet_servers.flat_map(|folder| texts(&folder)).collect();
    let files: Vec<_> = files.into_iter().filter(|(path, _)| !path.starts_with("tests/house/")).collect();
    let faults = pauses::faults(&files);
    assert!(files.len() > 150 && faults.is_empty(), "in {} files: {faults:#?}", files.len());
}
