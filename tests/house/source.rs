//! The names that a source file takes from others, in its imports and in its code.

/// A file of a crate, without its comments and its tests.
pub(crate) struct File {
    /// From the crate's directory for sources on, like `policy/queue.rs`.
    pub(crate) path: String,
    /// Its module's path: empty for the crate itself.
    pub(crate) module: Vec<String>,
    pub(crate) imports: Vec<Import>,
    /// The paths in its code, single names too.
    pub(crate) names: Vec<Vec<String>>,
}

/// One name that a `use` brings.
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) path: Vec<String>,
    /// Whether others may have it from here.
    pub(crate) is_re_export: bool,
}

impl File {
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let mut module: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if matches!(module.last().map(String::as_str), Some("lib" | "main" | "mod")) {
            module.pop();
        }
        let (mut imports, mut code, mut used) = (Vec::new(), String::new(), String::new());
        let mut is_nested = false;
        for line in without_tests(text).lines() {
            // A module within the file is taken for the file itself.
            is_nested = (is_nested || line.starts_with("mod ") && line.ends_with('{')) && line != "}";
            let line = line.split("//").next().unwrap_or_default();
            let line = if is_nested { &line.replace("super::", "") } else { line };
            if used.is_empty() && !begins_use(line) {
                code.push_str(line);
                code.push('\n');
                continue;
            }
            used.push_str(line.trim());
            if let Some(statement) = used.strip_suffix(';') {
                let (before, tree) = statement.split_once("use ").unwrap_or_default();
                expand(&[], tree, !before.is_empty(), &mut imports);
                used.clear();
            }
        }
        Self { path: path.to_owned(), module, imports, names: names(&code) }
    }
}

/// The text before the file's modules of tests, which are its end.
fn without_tests(text: &str) -> &str {
    let begins_tests = |(at, _): &(usize, &str)| {
        let next = text[*at..].lines().nth(1).unwrap_or_default();
        next.contains("mod ") && next.ends_with('{')
    };
    let tests = text.match_indices("\n#[cfg(test)]").map(|(at, found)| (at + 1, found)).find(begins_tests);
    tests.map_or(text, |(at, _)| &text[..at])
}

fn begins_use(line: &str) -> bool {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let visible = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        visible.map_or(rest, |(_, rest)| rest).trim_start()
    });
    line.starts_with("use ")
}

/// `a::{b, c::D as E}` is `a::b` and `a::c::D`, which is called `E` here.
fn expand(before: &[String], tree: &str, is_re_export: bool, imports: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some(list) = tree.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        for part in split(list) {
            expand(before, part, is_re_export, imports);
        }
    } else if let Some((first, rest)) = tree.split_once("::")
        && !first.contains('{')
    {
        expand(&[before, &[first.to_owned()]].concat(), rest, is_re_export, imports);
    } else if !tree.is_empty() {
        let (last, name) = tree.split_once(" as ").unwrap_or((tree, tree));
        let path = if last == "self" { before.to_vec() } else { [before, &[last.to_owned()]].concat() };
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_owned() };
        imports.push(Import { name, path, is_re_export });
    }
}

/// The parts between commas that are in no braces.
fn split(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    list.split(move |c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    })
}

fn names(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c| !is_part(c)).map(|word| word.trim_matches(':'));
    let paths =
        words.filter(|word| !word.is_empty()).map(|word| word.split("::").map(str::to_owned).collect());
    paths.collect()
}
