//! `docs/operate.md`, `docs/metrics.md`, the alerts and the dashboard name the metrics and the log lines that exist, and no
//! others.

#![cfg(feature = "metrics")]

use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};
use tenure::metrics::{Kind, METRICS, Metric};

const PAGE: &str = concat!(include_str!("../docs/operate.md"), include_str!("../docs/metrics.md"));
const DASHBOARD: &str = include_str!("../deploy/grafana/tenure.json");
const ALERTS: &str = include_str!("../deploy/prometheus/tenure.yaml");

/// The rows of the table with this header, without its line of dashes.
fn rows(header: &str) -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once(&format!("\n{header}\n")).unwrap_or_else(|| panic!("no table {header}"));
    rest.lines().skip(1).take_while(|line| line.starts_with('|')).collect()
}

/// The metrics that a text names: what Prometheus makes of a histogram is that histogram.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("tenure_") && !word.ends_with('_'));
    let base = |name: &str| -> String {
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
        let is_histogram = |name: &&str| METRICS.iter().any(|m| m.name == *name && m.kind == Kind::Histogram);
        parts.filter(is_histogram).unwrap_or(name).to_owned()
    };
    names.map(base).collect()
}

fn listed() -> BTreeSet<String> {
    METRICS.iter().map(|metric| metric.name.to_owned()).collect()
}

#[test]
fn page_lists_every_metric() {
    let row = |metric: &Metric| {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{}`", label.name)).collect();
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let Metric { name, unit, help, .. } = metric;
        format!("| `{name}` | {kind} | {unit} | {} | {help} |", labels.join(", "))
    };
    let metrics: Vec<_> = METRICS.iter().map(row).collect();
    assert_eq!(rows("| metric | type | unit | labels | what it means |"), metrics);
}

#[test]
fn page_explains_every_label_value() {
    let explained = rows("| label | values |").join("\n");
    for metric in METRICS {
        for value in metric.labels.iter().flat_map(|label| label.values) {
            assert!(explained.contains(&format!("`{value}`")), "{}: {value}", metric.name);
        }
    }
}

/// In the table for the night, too.
#[test]
fn page_names_existing_metrics_only() {
    // `tenure_core` is the target of log lines.
    let page = PAGE.replace("tenure_core", "");
    assert_eq!(named(&page), listed());
}

#[test]
fn alerts_name_existing_metrics_and_are_on_page() {
    let (_, rules) = ALERTS.split_once("rules:\n").unwrap();
    let unknown: Vec<_> = named(rules).difference(&listed()).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    let row = |rule: &&str| {
        let value = |key: &str| rule.split(key).nth(1).and_then(|rest| rest.lines().next()).expect(key);
        let (_, expression) = rule.split_once("expr: ").expect("an expression");
        assert!(!named(expression.split("labels:").next().unwrap()).is_empty(), "{rule}");
        assert!(!value("summary: ").is_empty() && !value("runbook: ").is_empty());
        format!("| `{}` | {} |", rule.lines().next().unwrap(), value("severity: "))
    };
    let begins = |row: &str| row.split_inclusive('|').take(3).collect::<String>();
    let listed: Vec<_> = rows("| alert | severity | when |").into_iter().map(begins).collect();
    assert_eq!(listed, alerts.iter().map(row).collect::<Vec<_>>());
}

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).unwrap()
}

fn expressions(dashboard: &Value) -> Vec<&str> {
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap()).collect()
}

/// The selectors, as in `tenure_held{mode="shared"}`, that a metric has not, and how many there are at all.
fn wrong_selectors(text: &str) -> (Vec<String>, usize) {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (before, rest) in text.match_indices('{').map(|(at, _)| (&text[..at], &text[at + 1..])) {
        let begin = before.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let names = named(&before[begin..]);
        let metric = METRICS.iter().find(|metric| names.contains(metric.name));
        let (Some(metric), Some((inside, _))) = (metric, rest.split_once('}')) else { continue };
        for selector in inside.split(',').map(str::trim) {
            let end = selector.find(['=', '!']).unwrap_or(selector.len());
            let (label, condition) = selector.split_at(end);
            let values = condition.trim_start_matches(['=', '!', '~']).trim_matches('"');
            let is_there = |values: &str, known: &[&str]| {
                known.is_empty()
                    || values.starts_with('$')
                    || values.split('|').all(|value| known.contains(&value))
            };
            let known = metric.labels.iter().find(|known| known.name == label);
            if !known.is_some_and(|known| is_there(values, known.values)) {
                wrong.push(format!("{}: {selector}", metric.name));
            }
            all += 1;
        }
    }
    (wrong, all)
}

#[test]
fn selectors_name_existing_labels_and_values() {
    for text in [ALERTS, &expressions(&dashboard()).join("\n")] {
        let (wrong, all) = wrong_selectors(text);
        assert!(wrong.is_empty() && all > 10, "of {all}: {wrong:#?}");
    }
    for wrong in [
        r#"tenure_held{outcome="acquired"}"#,
        r#"tenure_renewals_total{outcome="acquired"}"#,
        r#"rate(tenure_store_request_seconds_bucket{store=~"$store", request!="aquire"}[5m])"#,
        r#"tenure_acquisitions_total{outcome=~"acquired|lost"}"#,
    ] {
        assert_eq!(wrong_selectors(wrong).0.len(), 1, "{wrong}");
    }
}

#[test]
fn dashboard_shows_exactly_all_metrics() {
    let dashboard = dashboard();
    assert_eq!(named(&expressions(&dashboard).join("\n")), listed());
    let variables: Vec<_> = dashboard["templating"]["list"].as_array().unwrap().iter().collect();
    let text = variables.iter().filter_map(|one| one["definition"].as_str()).collect::<Vec<_>>().join("\n");
    assert!(named(&text).is_subset(&listed()), "{text}");
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    level: usize,
    message: String,
    fields: Vec<String>,
    from: &'static str,
}

const LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];

impl Event {
    fn row(&self) -> String {
        let Self { level, message, fields, from } = self;
        let message = message.replace("{cause}", "…");
        format!("| {message} | `{}` | {} | `{from}` |", LEVELS[*level], fields.join(", "))
    }
}

/// The log lines of the sources below this path, outside of their tests.
fn events(directory: &Path, from: &'static str, found: &mut BTreeSet<Event>) {
    for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            events(&path, from, found);
        } else if path.extension().is_some_and(|is| is == "rs") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
            for call in text.split("tracing::").skip(1) {
                let Some(level) = LEVELS.iter().position(|level| call.starts_with(&format!("{level}!(")))
                else {
                    continue;
                };
                let (_, call) = call.split_once('(').unwrap();
                let (fields, rest) = call.split_once('"').unwrap();
                let (message, _) = rest.split_once('"').unwrap();
                let fields = fields.split(',').map(str::trim);
                let fields = fields.filter(|field| !field.is_empty() && !field.starts_with("parent:"));
                let name = |field: &str| {
                    field.split(" = ").next().unwrap().trim_start_matches(['%', '?']).to_owned()
                };
                let fields = fields.map(|field| format!("`{}`", name(field))).collect();
                found.insert(Event { level, message: message.to_owned(), fields, from });
            }
        }
    }
}

#[test]
fn page_lists_every_log_line() {
    let mut found = BTreeSet::new();
    let crates = [
        ("lock-core", "tenure-core"),
        ("backend-etcd", "tenure-etcd"),
        ("backend-nats", "tenure-nats"),
        ("backend-object", "tenure-object"),
        ("backend-redis", "tenure-redis"),
        ("backend-sql", "tenure-sql"),
        ("backend-zk", "tenure-zk"),
    ];
    for (directory, from) in crates {
        events(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(directory).join("src"), from, &mut found);
    }
    assert!(found.len() > 30, "only {} were found", found.len());
    let listed: BTreeSet<_> =
        rows("| event | level | fields | from |").into_iter().map(str::to_owned).collect();
    let found: BTreeSet<_> = found.iter().map(Event::row).collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "missing: {missing:#?}, no longer there: {gone:#?}");
}
