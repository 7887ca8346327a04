//! The fault run as a program.

use super::{
    AnyFault, Means, Options, Outcome, Schedule, options::SUCCESSORS, play_client_if_asked, process,
    report::Report, run,
};
use crate::{
    BoxError, Subject,
    check::{Stop, chain},
    judge::{History, Judge, Violation},
};
use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    fs::File,
    future::Future,
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

/// Prove a store: what it promises, and under faults.
#[derive(Debug, Parser)]
#[command(name = "tenure-conformance", version, arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Faults(Faults),
    Judge(Verdict),
}

/// Mix clients, processes and faults, and judge what the clients saw
///
/// Ends with 1 when the contract is broken, and shows where, as a timeline. The same seed gives the same schedule of faults.
#[derive(Debug, clap::Args)]
struct Faults {
    /// The store: its name, or a URL
    store: String,
    /// Determines the schedule of faults [default: a new one, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How long it goes on
    #[arg(long, value_name = "M", default_value = "1")]
    minutes: f64,
    /// How long a round takes, after which all is judged; 15 leases or more where these are sessions
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = humantime::parse_duration)]
    round: Duration,
    /// The lease of every lock; faults are measured in it
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration)]
    lease: Duration,
    /// How many locks there are
    #[arg(long, value_name = "N", default_value_t = Options::default().names)]
    names: usize,
    /// How many clients there are in this process
    #[arg(long, value_name = "N", default_value_t = Options::default().clients)]
    clients: usize,
    /// How many client processes there are
    #[arg(long, value_name = "N", default_value_t = Options::default().processes)]
    processes: usize,
    /// The program that all clients and processes are, instead of tenure's own; `{url}` stands for the store's URL
    #[arg(long, value_name = "COMMAND")]
    client: Option<String>,
    /// The `tenure-conformance` of another version, which every other process is
    #[arg(long, value_name = "PROGRAM", conflicts_with = "client")]
    beside: Option<PathBuf>,
    /// Where the last round's history goes, as JSON lines [default: nowhere]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The file to which a line of JSON about the run is added [default: none]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The name of this build in that line
    #[arg(long, value_name = "COMMIT", default_value = concat!("v", env!("CARGO_PKG_VERSION")))]
    build: String,
    /// Only print which faults would come when in the first round
    #[arg(long)]
    plan: bool,
}

/// Judge a history, for instance one that `faults --history` wrote
///
/// Ends with 1 when it breaks the contract.
#[derive(Debug, clap::Args)]
struct Verdict {
    /// Its file, as JSON lines; `-` for the standard input
    file: PathBuf,
    /// How late a client may notice something
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = humantime::parse_duration)]
    allowance: Duration,
    /// To how many successors in a row a client may hand a grant on
    #[arg(long, value_name = "N", default_value_t = SUCCESSORS)]
    successors: u32,
}

impl Verdict {
    /// Whether the contract held.
    fn find(&self) -> Result<bool, BoxError> {
        let history = if self.file == Path::new("-") {
            History::read(io::stdin().lock())?
        } else {
            let file = File::open(&self.file).map_err(|error| format!("{}: {error}", self.file.display()))?;
            History::read(BufReader::new(file))?
        };
        let judge = Judge::new().allowing(self.allowance).with_succession(self.successors);
        let violations = judge.judge(&history);
        println!("{} events, {} violations", history.events().len(), violations.len());
        for violation in &violations {
            println!("{violation}");
        }
        explain(&history, &violations);
        Ok(violations.is_empty())
    }
}

/// Tells which clauses the history says nothing about, and where it breaks one.
fn explain(history: &History, violations: &[Violation]) {
    for lacking in Judge::not_offered(history) {
        println!("not offered: {lacking}");
    }
    if let Some(violation) = Judge::smallest(violations) {
        println!("{}", violation.timeline(history));
    }
}

impl Faults {
    fn options(&self) -> Result<Options, BoxError> {
        let length = Duration::try_from_secs_f64(self.minutes * 60.0)?;
        if self.names == 0 {
            return Err("there has to be a lock: --names 1 or more".into());
        }
        tenure_core::lease::check("lease", self.lease, tenure_core::lease::MIN_LEASE)?;
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
        let Self { round, lease, names, clients, processes, .. } = *self;
        let (client, beside) = (self.client.clone(), self.beside.clone());
        Ok(Options {
            seed,
            length,
            round,
            lease,
            names,
            clients,
            processes,
            client,
            beside,
            ..Options::default()
        })
    }
}

/// The `main` of a program that runs faults on the store that its arguments name.
///
/// `subject` makes the store of a name or URL. It is also called in the client processes, with the
/// [name](Subject::name) of the subject that it made, and in the [environment](Subject::environment) that it gave.
///
/// # Examples
///
/// ```no_run
/// # use tenure_conformance::{BoxError, Subject, async_trait};
/// # use std::{process::ExitCode, sync::Arc};
/// # struct MyStore;
/// # #[async_trait]
/// # impl Subject for MyStore {
/// #     fn name(&self) -> &str { "mine" }
/// #     async fn backend(&self) -> Result<Arc<dyn tenure_core::Backend>, BoxError> { unimplemented!() }
/// # }
/// fn main() -> ExitCode {
///     tenure_conformance::faults::main(|_store| async { Ok(Arc::new(MyStore) as Arc<dyn Subject>) })
/// }
/// ```
pub fn main<Making>(subject: impl FnOnce(String) -> Making) -> ExitCode
where
    Making: Future<Output = Result<Arc<dyn Subject>, BoxError>>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no runtime: {error}")),
    };
    if process::is_client() {
        runtime.block_on(play_client_if_asked(subject));
        return ExitCode::FAILURE;
    }
    let args = match Args::parse().command {
        Command::Faults(args) => args,
        Command::Judge(verdict) => return ended(verdict.find()),
    };
    let outcome = runtime.block_on(async {
        let interrupted = tokio::signal::ctrl_c();
        tokio::select! {
            outcome = faults(&args, subject) => outcome,
            _ = interrupted => Err("interrupted".into()),
        }
    });
    ended(outcome)
}

/// Ends with 1 when the contract is broken, and with 2 when nothing can be said.
fn ended(outcome: Result<bool, BoxError>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => failed(&chain(&*error)),
    }
}

fn failed(what: &str) -> ExitCode {
    eprintln!("tenure-conformance: {what}");
    ExitCode::from(2)
}

/// Whether the contract held.
async fn faults<Making>(args: &Faults, subject: impl FnOnce(String) -> Making) -> Result<bool, BoxError>
where
    Making: Future<Output = Result<Arc<dyn Subject>, BoxError>>,
{
    let options = args.options()?;
    let subject = subject(args.store.clone()).await?;
    let options = options.on(&*subject);
    if args.plan {
        subject.start().await?;
        let backend = subject.backend().await?;
        let means = Means::of(&*subject, &options, backend.capabilities());
        backend.close().await;
        print_plan(&Schedule::of(&options, 0, &means));
        return Ok(true);
    }
    println!("faults on {}, seed {}, build {}", subject.name(), options.seed, args.build);
    let length = u64::try_from(options.length.as_millis())?;
    let bar = ProgressBar::new(length)
        .with_style(ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed_precise}  {msg}")?);
    let begun = Instant::now();
    let outcome = run(&subject, &options, |figures, elapsed| {
        bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(length).min(length));
        let (grants, losses, faults) = (figures.grants, figures.losses, figures.injected());
        bar.set_message(format!("{grants} grants, {losses} losses, {faults} faults"));
    })
    .await;
    bar.finish_and_clear();
    let outcome = outcome.map_err(|stop| match stop {
        Stop::Failed(what) => what,
        Stop::Lacks(need) => need.to_string(),
    })?;
    tell(args, &outcome)?;
    if let Some(path) = &args.report {
        let report = Report::of(subject.name(), &args.build, options.seed, begun.elapsed(), &outcome.figures);
        let line = serde_json::to_string(&report)? + "\n";
        // In one write, because several runs may add to the file.
        File::options().create(true).append(true).open(path)?.write_all(line.as_bytes())?;
    }
    Ok(outcome.violations.is_empty())
}

fn tell(args: &Faults, outcome: &Outcome) -> Result<(), BoxError> {
    println!("{}", outcome.figures);
    if let Some(path) = &args.history {
        let mut file = BufWriter::new(File::create(path)?);
        outcome.history.write(&mut file)?;
        file.flush()?;
        println!("the last round's history is in {}", path.display());
    }
    explain(&outcome.history, &outcome.violations);
    Ok(())
}

fn print_plan(schedule: &Schedule) {
    for (track, planned) in schedule.in_order() {
        let (at, lasts) = (planned.at, planned.lasts);
        let second = planned.second.map(|hurt| format!(", then {} too", AnyFault::Server(hurt)));
        let second = second.unwrap_or_default();
        println!("{at:>10.3?}  {:<12} {} ({lasts:?}){second}", format!("{track:?}"), planned.what);
    }
}
