//! The documentation is whole: its links lead somewhere, and its pictures and tables are what their scripts make.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// All files below a directory whose names end in this, and their texts.
fn files(directory: &Path, ending: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            found.append(&mut files(&path, ending));
        } else if path.extension().is_some_and(|is| is == ending) {
            found.insert(path.clone(), fs::read_to_string(path).unwrap());
        }
    }
    found
}

/// The pages that readers see: those at the root, and those of `docs`.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = files(&Path::new(ROOT).join("docs"), "md");
    for page in ["CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"] {
        let path = Path::new(ROOT).join(page);
        let text = fs::read_to_string(&path).unwrap();
        pages.insert(path, text);
    }
    pages
}

/// The lines that are not code.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Where the links and pictures of a page lead.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    prose(page).flat_map(|line| {
        line.split("](").skip(1).map(|rest| rest.split_once(')').expect("the link ends in its line").0)
    })
}

/// The anchors of a page's headings, as GitHub makes them: a heading that comes again has a number.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let heading = |line: &str| -> Option<String> {
        let words = line.trim_start_matches('#').strip_prefix(' ')?;
        line.starts_with('#').then(|| words.to_lowercase())
    };
    let mut anchor = |words: String| {
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let plain: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let earlier = seen.entry(plain.clone()).or_default();
        *earlier += 1;
        if *earlier == 1 { plain } else { format!("{plain}-{}", *earlier - 1) }
    };
    prose(page).filter_map(heading).map(&mut anchor).collect()
}

/// Those of the book lead to its own pages: outside of the folder `docs` it has nothing.
#[test]
fn links_lead_somewhere() {
    let (pages, docs) = (pages(), Path::new(ROOT).join("docs").canonicalize().unwrap());
    let mut checked = 0;
    let mut broken = Vec::new();
    for (path, page) in &pages {
        for target in targets(page).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let found = there.canonicalize().is_ok_and(|there| {
                let leaves = path.starts_with(&docs) && !there.starts_with(&docs);
                let has_anchor = || pages.get(&there).is_some_and(|page| anchors(page).contains(anchor));
                !leaves && (anchor.is_empty() || has_anchor())
            });
            checked += 1;
            if !found {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(checked > 300, "only {checked} links were found");
    assert!(broken.is_empty(), "broken links, or links that leave the book:\n{}", broken.join("\n"));
}

#[test]
fn comments_name_existing_pages() {
    let mut checked = 0;
    for folder in [
        "backend-etcd",
        "backend-nats",
        "backend-object",
        "backend-redis",
        "backend-sql",
        "backend-zk",
        "benches",
        "cli",
        "conformance",
        "deploy",
        "examples",
        "lock-core",
        "src",
        "testbed",
    ] {
        for ending in ["rs", "sql", "lua", "toml", "yaml", "service", "timer", "py", "json"] {
            for (path, text) in files(&Path::new(ROOT).join(folder), ending) {
                for rest in text.split("docs/").skip(1) {
                    let page =
                        rest.split(|c: char| !(c.is_alphanumeric() || "./-_".contains(c))).next().unwrap();
                    let Some((page, _)) = page.split_once(".md") else { continue };
                    checked += 1;
                    let there = Path::new(ROOT).join(format!("docs/{page}.md"));
                    assert!(there.exists(), "{} names docs/{page}.md, which is not there", path.display());
                }
            }
        }
    }
    assert!(checked > 15, "only {checked} pages were named");
}

#[test]
fn alerts_link_existing_sections() {
    let alerts = page("deploy/prometheus/tenure.yaml");
    let mut checked = 0;
    for target in alerts.lines().filter_map(|line| line.trim().strip_prefix("runbook: ")) {
        checked += 1;
        let (file, anchor) = target.split_once('#').expect("a section");
        assert!(anchors(&page(file)).contains(anchor), "deploy/prometheus/tenure.yaml leads to {target}");
    }
    assert_eq!(checked, alerts.matches("- alert: ").count());
}

#[test]
fn book_has_every_page_once() {
    let docs = Path::new(ROOT).join("docs").canonicalize().unwrap();
    let summary = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).unwrap();
    let found = |target| {
        let found = docs.join(target).canonicalize();
        found.unwrap_or_else(|error| panic!("docs/SUMMARY.md leads to {target}: {error}"))
    };
    let mut listed = BTreeSet::new();
    for target in targets(&text) {
        assert!(listed.insert(found(target)), "docs/SUMMARY.md lists {target} twice");
    }
    let mut pages: BTreeSet<_> = files(&docs, "md").into_keys().collect();
    pages.remove(&summary);
    let missing: Vec<_> = pages.difference(&listed).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not list {missing:?}");
    let foreign: Vec<_> = listed.difference(&pages).collect();
    assert!(foreign.is_empty(), "docs/SUMMARY.md lists what is no page of docs: {foreign:?}");
}

#[test]
fn pictures_match_their_script() {
    let pictures = Path::new(ROOT).join("docs/pictures");
    let anew = tempfile::tempdir().unwrap();
    let drawn = Command::new("python3")
        .args([pictures.join("draw.py").as_path(), anew.path()])
        .status()
        .expect("python3 draws the pictures");
    assert!(drawn.success(), "the script failed: {drawn}");
    let by_name = |directory: &Path| -> BTreeMap<_, _> {
        let name = |path: PathBuf| path.file_name().unwrap().to_owned();
        files(directory, "svg").into_iter().map(|(path, svg)| (name(path), svg)).collect()
    };
    let (committed, anew) = (by_name(&pictures), by_name(anew.path()));
    let (names, names_anew): (Vec<_>, Vec<_>) = (committed.keys().collect(), anew.keys().collect());
    assert_eq!(names, names_anew);
    for (name, svg) in &committed {
        assert!(*svg == anew[name], "{name:?} is not what docs/pictures/draw.py draws: run it");
    }
}

#[test]
fn tables_match_results() {
    let script = Path::new(ROOT).join("docs/pictures/results.py");
    let printed = Command::new("python3").arg(script).output().expect("python3 prints the tables");
    assert!(printed.status.success(), "the script failed: {}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).expect("it prints UTF-8");
    let tables: Vec<_> = printed.trim_end().split("\n\n").collect();
    assert!(tables.len() > 5, "only {} tables were printed", tables.len());
    let pages = pages();
    for table in tables {
        // With the empty lines around it, so that no page shows a row more.
        let whole = format!("\n\n{table}\n\n");
        assert!(pages.values().any(|page| page.contains(&whole)), "no page shows this table:\n{table}");
    }
}

#[test]
fn each_picture_is_shown_and_described() {
    let shown: BTreeSet<PathBuf> = pages()
        .iter()
        .flat_map(|(path, page)| targets(page).map(|target| path.parent().unwrap().join(target)))
        .filter_map(|target| target.canonicalize().ok())
        .collect();
    for (path, svg) in files(&Path::new(ROOT).join("docs/pictures"), "svg") {
        assert!(shown.contains(&path.canonicalize().unwrap()), "no page shows {}", path.display());
        assert!(svg.contains("<title") && svg.contains("<desc"), "{} is not described", path.display());
    }
}

#[test]
fn decisions_are_listed_and_name_existing_code() {
    let (design, decisions) = (page("docs/contributing/design.md"), page("docs/contributing/decisions.md"));
    let mut listed: Vec<_> = targets(&design)
        .filter_map(|target| target.strip_prefix("decisions.md#"))
        .map(str::to_owned)
        .collect();
    let mut sections = Vec::new();
    for section in decisions.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        sections.extend(anchors(&format!("## {title}")));
        let (_, rest) = section.split_once("\nCode: ").unwrap_or_else(|| panic!("{title} names no code"));
        let paragraph = rest.split("\n\n").next().unwrap();
        // Every second part is between backticks. A short path goes on where the last whole one left its `src`.
        let mut source = PathBuf::new();
        for code in paragraph.split('`').skip(1).step_by(2) {
            let whole = Path::new(ROOT).join(code);
            if let Some((package, _)) = code.split_once("/src/") {
                source = Path::new(ROOT).join(package).join("src");
            }
            assert!(whole.exists() || source.join(code).exists(), "{title} names {code}, which is not there");
        }
    }
    assert!(sections.len() >= 20, "only {} decisions were found", sections.len());
    sections.sort();
    listed.sort();
    assert_eq!(listed, sections, "docs/contributing/design.md lists each decision once");
}

#[test]
fn walk_names_existing_code() {
    let page = page("docs/contributing/walk.md");
    // As the page says, short paths are in the last folder that was named.
    let (mut source, mut checked) = (PathBuf::new(), 0);
    for code in page.split('`').skip(1).step_by(2) {
        let whole = Path::new(ROOT).join(code);
        if code.ends_with("/src") {
            assert!(whole.is_dir(), "the walk names {code}, which is not there");
            source = whole;
        } else if whole.extension().is_some_and(|end| end == "rs" || end == "lua") {
            checked += 1;
            assert!(
                whole.exists() || source.join(code).exists(),
                "the walk names {code}, which is not there"
            );
        }
    }
    assert!(checked > 50, "only {checked} paths were found");
}

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

const QUICK_STARTS: [&str; 2] = ["docs/quick-start-rust.md", "docs/quick-start-shell.md"];

#[test]
fn front_pages_keep_to_700_words() {
    for path in ["README.md"].into_iter().chain(QUICK_STARTS) {
        let words = page(path).split_whitespace().count();
        assert!(words <= 700, "{path} has {words} words");
    }
}

#[test]
fn front_pages_announce_missing_release() {
    let changelog = page("CHANGELOG.md");
    let released = changelog.lines().any(|line| line.starts_with("## ") && !line.ends_with("(unreleased)"));
    for path in ["README.md"].into_iter().chain(QUICK_STARTS) {
        let says_so = page(path).split_whitespace().collect::<Vec<_>>().join(" ").contains("no release yet");
        assert_eq!(says_so, !released, "{path}");
    }
    if !released {
        for (path, text) in pages() {
            let works = |line: &str| {
                !line.contains("cargo install tenure-cli") && {
                    line.split_once("cargo add tenure").is_none_or(|(_, rest)| rest.contains("--path"))
                }
            };
            let line = text.lines().find(|line| !works(line));
            assert_eq!(line, None, "{}: this works only after a release", path.display());
        }
    }
}

#[test]
fn readme_names_stores_tested_with_fair() {
    let subjects = files(&Path::new(ROOT).join("tests/conformance"), "rs").into_values().collect::<String>();
    let fair: BTreeSet<_> = subjects.split('"').filter_map(|text| text.strip_suffix("-fair")).collect();
    let readme = page("README.md");
    let (_, rest) = readme.split_once("in every client, tested on").expect("the README says where");
    let named = rest.split("\n\n").next().unwrap();
    for (subject, store) in [
        ("sqlite", "SQLite"),
        ("redis", "Redis"),
        ("postgres", "PostgreSQL"),
        ("mysql", "MySQL"),
        ("mariadb", "MariaDB"),
    ] {
        assert_eq!(named.contains(store), fair.contains(subject), "{store}: {named}");
    }
    assert!(fair.len() == 4, "unknown among {fair:?}");
}

#[test]
fn trouble_page_names_every_lock_error() {
    let errors = page("lock-core/src/contract/error.rs");
    let (_, variants) = errors.split_once("pub enum Error {").expect("the enum");
    let variants = variants.split("\n}").next().unwrap();
    let names = variants.lines().filter_map(|line| line.strip_prefix("    ")).filter_map(|line| {
        let (name, _) = line.split_once([' ', '('])?;
        name.starts_with(char::is_uppercase).then_some(name)
    });
    let (mut checked, trouble) = (0, page("docs/stuck.md"));
    for name in names {
        checked += 1;
        assert!(trouble.contains(&format!("`{name}`")), "docs/stuck.md does not name {name}");
    }
    assert!(checked > 9, "only {checked} errors were found");
}

/// An installed program has no `docs` beside it.
#[test]
fn messages_name_no_page_of_the_repository() {
    for folder in [
        "src",
        "lock-core/src",
        "backend-etcd/src",
        "backend-nats/src",
        "backend-object/src",
        "backend-redis/src",
        "backend-sql/src",
        "backend-zk/src",
        "cli/src",
    ] {
        for (path, source) in files(&Path::new(ROOT).join(folder), "rs") {
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|line| !line.contains("include_str!")) {
                assert!(!(line.contains("docs/") && line.contains(".md")), "{}: {line}", path.display());
            }
        }
    }
    assert!(!page("deploy/grafana/tenure.json").contains("docs/"), "the dashboard names a page");
}

#[test]
fn errors_and_mode_table_name_same_stores() {
    let (code, choose) = (page("lock-core/src/contract/capabilities.rs"), page("docs/choose.md"));
    for (capability, row) in [
        ("Shared", "readers and writers, downgrade and upgrade"),
        ("Permits", "semaphores"),
        ("Latches", "latches"),
    ] {
        let row =
            choose.lines().find_map(|line| line.strip_prefix(&format!("| {row} | all but "))).expect(row);
        let but = row.split(" |").next().unwrap();
        let (_, said) = code.split_once(&format!("Self::{capability} => ")).expect(capability);
        let said = said.lines().next().unwrap();
        assert!(said.contains(&format!("(all built-in stores except {but} do)")), "{said}");
    }
}

#[test]
fn peers_are_compared_in_measured_version() {
    let (compared, measured) = (page("docs/compare.md"), page("benches/peers/README.md"));
    for peer in ["rslock", "distributed-lock"] {
        let row = compared
            .lines()
            .find(|line| line.starts_with(&format!("| {peer} |")) && line.contains("(version "));
        let (_, version) = row.and_then(|row| row.split_once("(version ")).expect(peer);
        let version = version.split(')').next().unwrap();
        assert!(measured.contains(&format!("| {peer} {version}")), "{peer} {version} was not measured");
    }
}

/// Each case of the suite shows a clause, by itself or with its group, and each that a page names is there.
#[test]
fn contract_cites_every_case() {
    let cases = tenure_conformance::cases();
    let groups: BTreeSet<&str> = cases.iter().map(|case| case.group).collect();
    let names: BTreeSet<String> = cases.iter().map(|case| format!("{}::{}", case.group, case.name)).collect();
    let contract = page("docs/contract.md");
    let quoted: BTreeSet<&str> = contract.split('`').skip(1).step_by(2).collect();
    // A case without a group belongs to the one before it.
    let is_cited =
        |case: &str| quoted.iter().any(|words| *words == case || words.ends_with(&format!("::{case}")));
    let silent: Vec<_> = cases
        .iter()
        .filter(|case| !is_cited(case.group) && !is_cited(case.name))
        .map(|case| case.name)
        .collect();
    assert!(silent.is_empty(), "no clause is shown by {silent:?}");
    for path in ["docs/contract.md", "docs/prove.md", "docs/contributing/write-a-store.md"] {
        let page = page(path);
        for words in page.split('`').skip(1).step_by(2) {
            let group = words.split("::").next().unwrap();
            let is_other = words == group || words.ends_with('…') || !groups.contains(group);
            assert!(is_other || names.contains(words), "{path}: {words}");
        }
    }
}
