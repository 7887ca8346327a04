//! `tenure bench`.

use crate::stage::{Stage, until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::{fs, path::Path, process::Command};

const SHORT: [&str; 3] = ["bench", "--seconds", "0.1"];
/// The figures of each workload.
const ROWS: [&str; 5] = ["round_trip", "uncontended", "many_names", "one_name", "two_clients"];

#[test]
fn bench_prints_a_table() {
    let stage = Stage::new();
    let holder = stage.holder("a");
    holder.line();
    let done = stage.done(&[&SHORT[..], &["--tasks", "8"]].concat()).expect(0);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines[0].starts_with("sqlite:") && lines[0].ends_with("locks.db"), "{}", done.out);
    let cells = |line: &&str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let rows: Vec<Vec<String>> = lines[2..].iter().map(cells).collect();
    let first: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let titles = [
        "WORKLOAD",
        "round trip",
        "acquire and release",
        "8 tasks, 8 names",
        "16 tasks, one name",
        "hand-off between two clients",
    ];
    assert_eq!(first, titles, "{}", done.out);
    assert!(rows.iter().all(|row| row.len() == 7), "{}", done.out);
    assert!(lines[3..].iter().all(|line| line.len() > 50 && !line.ends_with(' ')), "{}", done.out);
    // It says beforehand what it is going to do, and where.
    assert!(done.err.contains(lines[0]) && done.err.contains("tenure-bench/"), "{}", done.err);
    // Only names of its own were touched: each task's, and three more. All are free again.
    assert_eq!(stage.rows("tenure-bench/"), 11);
    assert_eq!(stage.done(&["ls"]).expect(0).out.lines().count(), 2);
}

#[test]
fn bench_prints_json() {
    let stage = Stage::new();
    for store in ["sqlite:locks.db?fair=true", "memory:"] {
        let args = [&["--store", store, "--quiet"], &SHORT[..], &["--json"]].concat();
        let done = stage.done(&args).expect(0);
        assert_eq!(done.err, "");
        let json: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!((&json["seconds"], &json["tasks"]), (&0.1.into(), &64.into()), "{json}");
        for workload in ROWS {
            let row = &json[workload];
            let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field}: {json}"));
            assert!(number("count") >= 1.0, "{json}");
            let times = ["median_ms", "p90_ms", "p99_ms", "max_ms"].map(number);
            assert!(0.0 < times[0] && times.is_sorted(), "{workload}: {json}");
            assert!(number("round_trips") > 0.0, "{workload}: {json}");
            assert_eq!(row["per_second"].is_f64(), workload != "two_clients", "{json}");
        }
        // Each task had its turn, in each round.
        assert!(json["many_names"]["count"].as_u64() >= Some(5 * 64), "{json}");
        assert!(json["one_name"]["count"].as_u64() >= Some(5 * 16), "{json}");
        assert_eq!(json["round_trip"]["round_trips"], 1.0, "{json}");
    }
    assert_eq!(stage.done(&["ls"]).expect(0).out, "");
}

/// The file keeps its content until there is a picture, which replaces all of it.
#[test]
fn bench_writes_a_picture() {
    let stage = Stage::new();
    let picture = stage.path("picture.svg");
    fs::write(&picture, "x".repeat(1_000_000)).unwrap();
    let bench = stage.start(&["bench", "--seconds", "600", "--svg", "picture.svg"]);
    bench.says("measuring");
    bench.signal(Signal::SIGINT);
    bench.end().expect(130);
    assert_eq!(fs::metadata(&picture).unwrap().len(), 1_000_000);
    for (more, begin) in [(&[] as &[&str], "sqlite:"), (&["--json"][..], "{")] {
        let args = [&SHORT[..], &["--tasks", "8", "--svg", "picture.svg"], more].concat();
        let done = stage.done(&args).expect(0);
        assert!(done.out.starts_with(begin) && !done.out.contains("<svg"), "{}", done.out);
        let texts = texts(&picture);
        let store = texts.iter().find(|text| text.starts_with("sqlite:")).expect("the store's name");
        assert!(store.ends_with("locks.db"), "{store}");
        for text in ["8 tasks, 8 names", "tenure bench: 0.1 s for each workload, 8 tasks"] {
            assert!(texts.iter().any(|found| found == text), "{text:?} is not in {texts:?}");
        }
        let medians = texts.iter().filter(|text| text.starts_with("median ")).count();
        assert_eq!(medians, ROWS.len(), "{texts:?}");
    }
}

/// The words of a picture, by Python's parser.
fn texts(picture: &Path) -> Vec<String> {
    let program = "import sys, xml.etree.ElementTree as tree
for text in tree.parse(sys.argv[1]).getroot().iter('{http://www.w3.org/2000/svg}text'): print(ascii(text.text)[1:-1])";
    let output =
        Command::new("python3").args(["-c", program]).arg(picture).output().expect("python3 reads XML");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// That is said before anything is measured.
#[test]
fn unwritable_picture_is_an_error() {
    let stage = Stage::new();
    for file in ["no-such-directory/picture.svg", "."] {
        let done = stage.done(&["bench", "--seconds", "600", "--svg", file]).expect(74);
        let says = format!("cannot write the picture to {file:?}");
        assert!(done.out.is_empty() && done.err.contains(&says), "{}", done.err);
        assert!(done.err.contains("because: ") && !done.err.contains("measuring"), "{}", done.err);
    }
    assert!(!stage.path("locks.db").exists(), "no store is opened");
}

/// If it is killed, others wait for as long as the URL's lease.
#[test]
fn bench_uses_the_lease_of_the_url_and_releases_on_ctrl_c() {
    let stage = Stage::new();
    // Without a table, `ls` would create it.
    stage.done(&["ls"]).expect(0);
    let bench = stage.start(&["--store", "sqlite:locks.db?lease=1h", "bench", "--seconds", "600"]);
    let mut left = None;
    until("many names are held", || {
        let list = stage.done(&["ls", "tenure-bench/", "--json"]).expect(0).out;
        let held: Value = serde_json::from_str(&list).unwrap();
        left = held[0]["left_ms"].as_u64();
        held.as_array().unwrap().len() > 2
    });
    assert!(left > Some(60_000), "{left:?}");
    bench.signal(Signal::SIGINT);
    assert_eq!(bench.end().expect(130).out, "");
    assert_eq!(stage.done(&["ls"]).expect(0).out, "");
}

#[test]
fn bench_fails_without_an_answer() {
    let stage = Stage::new();
    let done = stage.done(&["--store", "redis://127.0.0.1:1/", "bench"]).expect(69);
    assert_eq!(done.out, "");
    for wrong in ["0", "-1", "NaN", "inf", "2s"] {
        let done = stage.done(&["bench", "--seconds", wrong]).expect(64);
        assert!(done.err.contains("from 0.1 to 3600"), "{}", done.err);
    }
    stage.done(&["bench", "--tasks", "0"]).expect(64);
}
