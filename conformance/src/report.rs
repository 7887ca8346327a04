//! The suite as a function, and its results as a table.

use crate::{
    Subjects, cases,
    suite::{Outcome, Tested},
};
use futures_util::{StreamExt, stream};
use std::{collections::BTreeMap, fmt, sync::Arc};
use tokio::sync::Semaphore;

/// How many cases run at once.
const TOGETHER: usize = 16;

/// One case on one subject, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The subject's name.
    pub subject: String,
    /// The group.
    pub group: &'static str,
    /// The case.
    pub case: &'static str,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The results of a run of the suite. `Display` prints a table of groups, with how many of their cases passed, failed
/// or were ignored, and then each failure and each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All cases that were run.
    pub entries: Vec<Entry>,
}

/// Runs the suite on these subjects, in the current runtime, and reports the results.
///
/// Runs only the cases whose full name contains `filter`; an empty filter selects all. `progress` is called with each
/// case as it ends. A program that calls this must first call [`play_victim_if_asked`](crate::play_victim_if_asked).
///
/// # Cancel safety
///
/// Dropping the future ends the run; cases in progress leave their clients unclosed.
///
/// # Examples
///
/// ```
/// # use tenure_conformance::{BoxError, Subject, Subjects, async_trait};
/// # use std::{process::ExitCode, sync::Arc};
/// # struct InMemory(tenure_core::Memory);
/// # #[async_trait]
/// # impl Subject for InMemory {
/// #     fn name(&self) -> &str { "memory" }
/// #     async fn backend(&self) -> Result<Arc<dyn tenure_core::Backend>, BoxError> { Ok(Arc::new(self.0.clone())) }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let store = InMemory(tenure_core::Memory::new());
/// let report = tenure_conformance::run(Subjects::new().with(store), "exclusion::basic", |_| {}).await;
/// assert!(report.is_ok());
/// println!("{report}");
/// # }
/// ```
pub async fn run(subjects: Subjects, filter: &str, mut progress: impl FnMut(&Entry)) -> Report {
    let tested = Tested::all(subjects);
    let every = cases::all().into_iter().flat_map(|case| {
        let pair = move |tested: &Arc<Tested>| (case, Arc::clone(tested));
        tested.iter().map(pair).collect::<Vec<_>>()
    });
    let chosen = every.filter(|(case, tested)| {
        tested.shows(case) && case.full_name(tested.subject.name()).contains(filter)
    });
    let permits = Semaphore::new(TOGETHER);
    let permits = &permits;
    let mut running = stream::iter(chosen.enumerate())
        .map(|(at, (case, tested))| async move {
            let subject = tested.subject.name().to_owned();
            let outcome = tested.run(case, permits).await;
            (at, Entry { subject, group: case.group, case: case.name, outcome })
        })
        .buffer_unordered(TOGETHER);
    let mut entries = BTreeMap::new();
    while let Some((at, entry)) = running.next().await {
        progress(&entry);
        entries.insert(at, entry);
    }
    Report { entries: entries.into_values().collect() }
}

impl Report {
    /// Returns `true` if no case failed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Returns the cases that failed, each with what was observed.
    pub fn failures(&self) -> impl Iterator<Item = (&Entry, &str)> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Failed(what) => Some((entry, what.as_str())),
            Outcome::Passed | Outcome::Ignored(_) => None,
        })
    }

    /// Returns the cases that were ignored, each with the reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&Entry, &str)> {
        self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Ignored(why) => Some((entry, why.as_str())),
            Outcome::Passed | Outcome::Failed(_) => None,
        })
    }

    /// Counts passed, failed and ignored cases for each subject and group, in the order of the contract.
    fn counts(&self) -> Vec<(String, [usize; 3])> {
        let mut counts: Vec<(String, [usize; 3])> = Vec::new();
        for entry in &self.entries {
            let row = format!("{}::{}", entry.subject, entry.group);
            let at = counts.iter().position(|(known, _)| *known == row).unwrap_or_else(|| {
                counts.push((row, [0; 3]));
                counts.len() - 1
            });
            let column = match entry.outcome {
                Outcome::Passed => 0,
                Outcome::Failed(_) => 1,
                Outcome::Ignored(_) => 2,
            };
            counts[at].1[column] += 1;
        }
        counts
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, group, case, .. } = self;
        write!(f, "{subject}::{group}::{case}")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let total = counts.iter().fold([0; 3], |[a, b, c], (_, [x, y, z])| [a + x, b + y, c + z]);
        let width = counts.iter().map(|(row, _)| row.len()).max().unwrap_or(0).max("group".len());
        writeln!(f, "{:width$}  passed  failed  ignored", "group")?;
        for (row, [passed, failed, ignored]) in counts.iter().chain([&("total".to_owned(), total)]) {
            writeln!(f, "{row:width$}  {passed:>6}  {failed:>6}  {ignored:>7}")?;
        }
        for (entry, what) in self.failures() {
            writeln!(f, "\nfailed: {entry}\n    {what}")?;
        }
        let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (entry, why) in self.ignored() {
            reasons.entry(why).or_default().push(entry.to_string());
        }
        for (why, entries) in reasons {
            writeln!(f, "\nignored: {why}\n    {}", entries.join("\n    "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_counts_cases_and_names_failures() {
        let entry =
            |subject: &str, group, case, outcome| Entry { subject: subject.to_owned(), group, case, outcome };
        let report = Report {
            entries: vec![
                entry("redis", "waiting", "one", Outcome::Passed),
                entry("redis", "waiting", "two", Outcome::Failed("it took 2s".to_owned())),
                entry("redis", "tokens", "three", Outcome::Ignored("needs wipe".to_owned())),
                entry("redis", "tokens", "four", Outcome::Ignored("needs wipe".to_owned())),
            ],
        };
        assert!(!report.is_ok());
        let table = "\
group           passed  failed  ignored
redis::waiting       1       1        0
redis::tokens        0       0        2
total                1       1        2

failed: redis::waiting::two
    it took 2s

ignored: needs wipe
    redis::tokens::three
    redis::tokens::four
";
        assert_eq!(report.to_string(), table);
    }
}
