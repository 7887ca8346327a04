//! The files in `deploy/` fit the command: it accepts their command lines, and exits with the codes that they expect.

use crate::stage::Stage;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// All files in these directories, and what is in them.
fn files(directories: &[&str]) -> Vec<(PathBuf, String)> {
    let entries = directories.iter().flat_map(|directory| fs::read_dir(path(directory)).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|is| is == "yaml" || is == "yml")
}

/// A file of YAML, by Python's parser.
fn parsed(path: &Path) -> Value {
    // `on` is a word of GitHub's and a truth of YAML's, which no JSON has for a key.
    let program = "import json, sys, yaml; print(json.dumps(yaml.load(open(sys.argv[1]), yaml.BaseLoader)))";
    let output =
        Command::new("python3").args(["-c", program]).arg(path).output().expect("python3 reads YAML");
    let (json, error) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {error}", path.display());
    serde_json::from_slice(&json).unwrap()
}

/// The values of a setting of a unit.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let line = |line: &'a str| line.strip_prefix(name)?.strip_prefix('=');
    unit.lines().filter_map(line).flat_map(|values| values.split_whitespace()).collect()
}

/// A port that is another one for each test.
const ANY_PORT: &str = "127.0.0.1:0";

/// The arguments for `tenure`, without the command at their end.
fn options(line: Vec<String>) -> Vec<String> {
    let mut words = line.into_iter().skip_while(|word| !word.ends_with("tenure")).skip(1).collect::<Vec<_>>();
    if let Some(option) = words.iter().position(|word| word == "--ready-port") {
        ANY_PORT.clone_into(&mut words[option + 1]);
    }
    let mut words = words.into_iter();
    let options: Vec<String> = words.by_ref().take_while(|word| word != "--").collect();
    assert!(!options.is_empty() && words.next().is_some(), "no command is run under `tenure`");
    options
}

/// The command lines in `deploy`, each with its file.
fn command_lines() -> Vec<(PathBuf, Vec<String>)> {
    let mut lines = Vec::new();
    for (path, text) in files(&["deploy/systemd", "deploy/kubernetes"]) {
        let line: Vec<String> = if is_yaml(&path) {
            let manifest = parsed(&path);
            let pods = ["/spec/template", "/spec/jobTemplate/spec/template"];
            let pod = pods.iter().find_map(|pod| manifest.pointer(pod)).expect("it has pods");
            let words = pod["spec"]["containers"][0]["command"].as_array().expect("and they a command");
            words.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
        } else {
            settings(&text, "ExecStart").into_iter().map(str::to_owned).collect()
        };
        if !line.is_empty() {
            lines.push((path, options(line)));
        }
    }
    lines
}

/// `options` with this script in place of the command.
fn with_script<'a>(options: &'a [String], script: &'a str) -> Vec<&'a str> {
    options.iter().map(String::as_str).chain(["--", "sh", "-c", script]).collect()
}

/// systemd counts 75 as a success; Kubernetes knows 0 alone.
#[test]
fn deployed_command_lines_exit_as_their_files_expect() {
    let lines = command_lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (path, options) in lines {
        println!("{}", path.display());
        let (stage, name) = (Stage::new(), options[1].as_str());
        let done = stage.done(&with_script(&options, "echo $TENURE_NAME; exit 7")).expect(7);
        assert_eq!(done.out.trim(), name);
        let running = stage.start(&with_script(&options, "echo $$; exec sleep 1000"));
        running.line();
        if options[0] == "run" {
            // While another machine holds the lock.
            stage.done(&with_script(&options, "true")).expect(if is_yaml(&path) { 0 } else { 75 });
        }
        running.signal(Signal::SIGTERM);
        running.end().expect(143);
        // Released.
        stage.done(&["show", name]).expect(1);
    }
}

/// Otherwise no pod is ever ready, or each is restarted.
#[test]
fn probes_match_the_ready_port() {
    let manifest = parsed(&path("deploy/kubernetes/scheduler.yaml"));
    let container = &manifest["spec"]["template"]["spec"]["containers"][0];
    let words: Vec<&str> =
        container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let option = words.iter().position(|word| *word == "--ready-port").unwrap();
    for (probe, asked) in [("livenessProbe", "/live"), ("readinessProbe", "/ready")] {
        let probe = &container[probe];
        assert_eq!(probe["httpGet"]["path"], asked);
        assert_eq!(format!("0.0.0.0:{}", probe["httpGet"]["port"].as_str().unwrap()), words[option + 1]);
        assert_eq!(probe["timeoutSeconds"], "3", "longer than a silent client may take");
    }
}

/// A candidate that is frozen for longer than the watchdog waits dies before its lease ends.
#[test]
fn watchdog_kills_before_the_lease_ends() {
    let unit = fs::read_to_string(path("deploy/systemd/scheduler.service")).unwrap();
    assert_eq!(settings(&unit, "Type"), ["notify"]);
    assert_eq!(
        (settings(&unit, "WatchdogSec"), settings(&unit, "WatchdogSignal")),
        (vec!["10s"], vec!["SIGKILL"])
    );
    assert!(!settings(&unit, "ExecStart").contains(&"--lease"), "the default is 30 s");
}

#[test]
fn units_list_their_success_codes() {
    for (unit, codes) in [("nightly", &["75", "143"][..]), ("scheduler", &["143"])] {
        let unit = fs::read_to_string(path(&format!("deploy/systemd/{unit}.service"))).unwrap();
        assert_eq!(settings(&unit, "SuccessExitStatus"), codes);
    }
}

#[test]
fn deployed_files_begin_with_their_purpose() {
    let files =
        files(&["deploy", "deploy/systemd", "deploy/kubernetes", "deploy/prometheus", ".github/workflows"]);
    assert_eq!(files.len(), 9);
    for (path, text) in files {
        assert_eq!(text.lines().take_while(|line| line.starts_with("# ")).count(), 3, "{}", path.display());
    }
}

#[test]
fn workflows_are_valid_and_use_one_rust() {
    let steps = |file: &str, job: &str| {
        let workflow = parsed(&path(".github/workflows").join(file));
        assert!(!workflow["on"].is_null(), "{file}");
        let steps = workflow["jobs"][job]["steps"].as_array().unwrap().clone();
        steps.iter().filter_map(|step| step["run"].as_str()).collect::<Vec<_>>().join("\n")
    };
    assert!(steps("test.yml", "test").contains(".ci/run"));
    let ways = &parsed(&path(".github/workflows/test.yml"))["jobs"]["test"]["strategy"]["matrix"]["servers"];
    assert_eq!(*ways, serde_json::json!(["local", "docker"]));
    assert!(steps("release.yml", "build").contains("cargo +"));
    // CI, releases and the image use one version of Rust, and no crate needs a newer one.
    let docker = fs::read_to_string(path("deploy/Dockerfile")).unwrap();
    let (rust, _) = docker.split_once("rust:").unwrap().1.split_once('-').unwrap();
    for (file, named) in [
        (".github/workflows/test.yml", format!("rust:{rust}-")),
        (".github/workflows/release.yml", format!("cargo +{rust} build")),
    ] {
        assert!(fs::read_to_string(path(file)).unwrap().contains(&named), "{file} does not name Rust {rust}");
    }
    for folder in ["", "lock-core", "backend-redis", "backend-sql", "backend-zk", "conformance", "cli"] {
        let manifest = fs::read_to_string(path(folder).join("Cargo.toml")).unwrap();
        for needed in manifest.lines().filter_map(|line| line.strip_prefix("rust-version = ")) {
            let minor =
                |version: &str| version.trim_matches('"').split('.').nth(1).unwrap().parse::<u32>().unwrap();
            assert!(minor(needed) <= minor(rust), "{folder}: {needed}");
        }
    }
}

#[test]
fn release_archive_has_pages_and_completions() {
    let workflow = parsed(&path(".github/workflows/release.yml"));
    let steps = workflow["jobs"]["build"]["steps"].as_array().unwrap();
    let script =
        steps.iter().filter_map(|step| step["run"].as_str()).find(|run| run.contains("tar ")).unwrap();
    let stage = Stage::new();
    fs::create_dir_all(stage.path("target/here/release")).unwrap();
    symlink(env!("CARGO_BIN_EXE_tenure"), stage.path("target/here/release/tenure")).unwrap();
    fs::create_dir(stage.path("cli")).unwrap();
    for file in ["cli/README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(path(file), stage.path(file)).unwrap();
    }
    let mut sh = Command::new("bash");
    sh.args(["-e", "-c", script]).current_dir(stage.dir());
    let done = sh.env("TARGET", "here").env("VERSION", "v1.2.3").status().unwrap();
    assert!(done.success());
    let mut tar = Command::new("tar");
    let listed = tar.args(["tzf", "tenure-v1.2.3-here.tar.gz"]).current_dir(stage.dir()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for file in [
        "tenure",
        "README.md",
        "man/tenure.1",
        "man/tenure-latch-wait.1",
        "completions/_tenure",
        "completions/tenure.bash",
        "completions/tenure.elv",
        "completions/tenure.fish",
        "completions/tenure.ps1",
    ] {
        let entry = format!("tenure-v1.2.3-here/{file}");
        assert!(listed.lines().any(|line| line == entry), "no {file}:\n{listed}");
    }
}
