//! The commands on the pages for a shell are understood.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The `tenure` commands in a page's code: lines of blocks, also after a prompt or cron's times, and table cells that
/// run a command.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2).flat_map(str::lines);
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|code| code.contains(" -- "));
    let command = |code: &str| {
        let code = code.trim_start_matches("$ ").trim_start_matches("*/5 * * * *").trim_start();
        code.starts_with("tenure ").then(|| code.to_owned())
    };
    // A message begins with the program's name as well, and then a colon.
    blocks.chain(cells).filter_map(command).collect()
}

#[test]
fn commands_on_pages_are_valid() {
    let program = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path =
        std::env::join_paths([program.to_owned(), PathBuf::from("/usr/bin"), PathBuf::from("/bin")]).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    for page in ["README.md", "docs/quick-start-shell.md", "docs/cli.md", "docs/stuck.md"] {
        for command in commands(&fs::read_to_string(root.join(page)).unwrap()) {
            // An unknown store is refused only after the whole command line was understood.
            let done = Command::new("sh")
                .args(["-c", &command])
                .env_clear()
                .env("PATH", &path)
                .env("TENURE_STORE", "unknown:")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            assert_eq!(done.status.code(), Some(64), "{page}: {command}: {said}");
            assert!(said.contains("unknown:"), "{page}: {command}: {said}");
            checked += 1;
        }
    }
    assert!(checked > 25, "only {checked} commands were found");
}

#[test]
fn page_of_sql_databases_shows_the_schema() {
    let schema = Command::new(env!("CARGO_BIN_EXE_tenure")).args(["schema", "postgres"]).output().unwrap();
    let schema = String::from_utf8(schema.stdout).unwrap();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sql.md")).unwrap();
    assert!(
        schema.contains("CREATE TABLE") && page.contains(&schema),
        "docs/sql.md does not show:\n{schema}"
    );
}
