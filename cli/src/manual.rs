//! `tenure completions` and `tenure man`: what the definition of the command line gives besides a parser.

use crate::{
    args::{self, Args},
    exit::{self, Failure},
};
use clap::CommandFactory;
use std::process::ExitCode;

pub(crate) fn completions(args: &args::Completions) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "tenure", &mut script);
    exit::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn pages(args: &args::Man) -> Result<ExitCode, Failure> {
    clap_mangen::generate_to(Args::command(), &args.directory)
        .map_err(|error| Failure::system("cannot write the manual pages", error))?;
    Ok(ExitCode::SUCCESS)
}
