//! `docs/contributing/write-a-store.md` quotes this crate: each of its snippets stands in the code, line by line.

use std::{fs, path::Path};

#[test]
fn snippets_are_the_code() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["src/lib.rs", "tests/conformance.rs"];
    let code = files.map(|file| unindented(&fs::read_to_string(here.join(file)).unwrap()));
    let page = fs::read_to_string(here.join("../../docs/contributing/write-a-store.md")).unwrap();
    let snippets: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!snippets.is_empty());
    for snippet in snippets {
        let quoted = unindented(snippet);
        assert!(code.iter().any(|code| code.contains(&quoted)), "not in the code any more:\n{snippet}");
    }
}

/// The lines without the white space around them.
fn unindented(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}
