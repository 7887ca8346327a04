//! `tenure bench`: how fast the user's own store is, compared with its bare round trip.

mod picture;
mod report;
mod workloads;

use crate::{
    args,
    exit::{self, Failure},
    job::signals::Signals,
    stderr, store, warnings,
};
use report::Report;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};
use tenure::Error;
use workloads::{Bench, Figures, WORKLOADS, Workload};

/// The rounds over which each workload's time is spread, so that a short disturbance hits all workloads alike.
const ROUNDS: u32 = 5;
/// The longest that a workload warms up. Shorter ones take as long as in any other round.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) async fn bench(store: &args::Store, args: &args::Bench) -> Result<ExitCode, Failure> {
    warnings::show();
    let url = store::url(store)?;
    let sheet = args.svg.as_deref().map(Sheet::open).transpose()?;
    let mut signals = Signals::that_end()?;
    let mut bench = tokio::select! {
        bench = Bench::open(&url.text, args.tasks) => bench.map_err(|error| url.failed(error))?,
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    };
    announce(&bench, args.seconds);
    let measured = tokio::select! {
        measured = measure(&mut bench, args.seconds) => measured.map_err(|error| Failure::from(error).of_store()),
        signal = signals.next() => Err(Failure::Signal(signal as i32)),
    };
    tokio::select! {
        () = bench.end() => {}
        // If the store hangs, this can take as long as a lease. Locks that are still held then expire.
        signal = signals.next() => return Err(Failure::Signal(signal as i32)),
    }
    let figures = measured?;
    let report = Report::new(bench.store(), args, &figures);
    exit::print(&if args.json { report.json() } else { report.table() })?;
    if let Some(sheet) = sheet {
        sheet.fill(&picture::draw(&report, &figures))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How long a workload runs in the warm-up, and in each round.
fn slices(seconds: Duration) -> (Duration, Duration) {
    let slice = seconds / ROUNDS;
    (slice.min(WARM_UP), slice)
}

fn announce(bench: &Bench, seconds: Duration) {
    let (warm_up, _) = slices(seconds);
    let takes: Duration = Workload::ALL.iter().map(|_| warm_up + seconds).sum();
    stderr::mention(&format!(
        "measuring {} for about {:.0} s with locks whose names begin with {:?}; Ctrl-C ends it early",
        bench.store(),
        takes.as_secs_f64().ceil(),
        bench.namespace(),
    ));
}

/// Runs all workloads, again and again.
async fn measure(bench: &mut Bench, seconds: Duration) -> Result<[Figures; WORKLOADS], Error> {
    let (warm_up, slice) = slices(seconds);
    let mut warm: [Figures; WORKLOADS] = Default::default();
    round(bench, warm_up, &mut warm).await?;
    let mut figures = Default::default();
    for _ in 0..ROUNDS {
        round(bench, slice, &mut figures).await?;
    }
    Ok(figures)
}

async fn round(bench: &mut Bench, slice: Duration, figures: &mut [Figures; WORKLOADS]) -> Result<(), Error> {
    for (workload, figures) in Workload::ALL.into_iter().zip(figures) {
        bench.run(workload, slice, figures).await?;
    }
    Ok(())
}

/// The file of the picture.
struct Sheet<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Sheet<'a> {
    /// Opens it before the measurement, so that an error comes at once. Its content stays until there is a picture.
    ///
    /// May wait for a pipe's reader, so call this before any signal is caught: a signal has to end that wait.
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        file.map(|file| Self { path, file }).map_err(|error| refused(path, error))
    }

    /// Replaces its content.
    fn fill(self, svg: &str) -> Result<(), Failure> {
        let Self { path, mut file } = self;
        let mut fill = || -> io::Result<()> {
            // A pipe or a terminal has nothing to replace.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(svg.as_bytes())
        };
        fill().map_err(|error| refused(path, error))
    }
}

fn refused(path: &Path, error: io::Error) -> Failure {
    Failure::system(format!("cannot write the picture to {}", store::quoted(path)), error)
}
