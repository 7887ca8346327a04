//! SQLite's clock is the machine's, so these cases run in a process with a clock of its own.

use super::{Arc, Backend, PathBuf, SqliteBackend, SqliteOptions};
use std::{env, process::Command};
use tenure_conformance::{BoxError, Subject, Subjects, async_trait, run, saboteur::Saboteur, skip};
use tenure_testbed::OwnClock;

/// Names the directory for that process.
const HOME: &str = "TENURE_TEST_CLOCK";

struct InFile(PathBuf);

#[async_trait]
impl Subject for InFile {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn backend(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(SqliteBackend::open(SqliteOptions::new(self.0.join("locks.db"))).await?))
    }

    fn saboteur(&self) -> Option<Arc<dyn Saboteur>> {
        Some(Arc::new(OwnClock(self.0.clone())))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_may_be_set() {
    if let Some(home) = env::var_os(HOME) {
        let group = "faults_of_the_clock";
        let report = run(Subjects::new().with(InFile(home.into())), group, |_| {}).await;
        let is_whole = report.to_string().contains(group) && report.ignored().next().is_none();
        assert!(report.is_ok() && is_whole, "{report}");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["clock::clock_may_be_set", "--exact"]).env(HOME, home.path());
    match OwnClock(home.path().to_owned()).give(&mut again) {
        Ok(()) => {
            let output = again.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        }
        Err(why) => skip("sqlite-clock", &why).unwrap(),
    }
}
