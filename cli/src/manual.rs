//! `tenure completions` and `tenure man`, both from the definition of the command line.

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
    let command = Args::command();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let topics = [&examples, &args::urls(), args::EXIT_CODES].join("\n\n");
    clap_mangen::generate_to(command.after_long_help(topics), &args.directory).map_err(|error| {
        Failure::system(
            format!("cannot write the manual pages to {}", crate::store::quoted(&args.directory)),
            error,
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn topic(text: &str) -> Result<ExitCode, Failure> {
    exit::print(text)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};
    use std::{env, fmt::Write, fs, path::Path};

    const FIRST: &str = "## Options of every command\n";
    const NEXT: &str = "## JSON\n";

    /// A help text as one paragraph. clap takes the full stop from its first sentence.
    fn paragraph(first: &str, rest: &str) -> String {
        let text = format!("{first}. {}", rest.replace("\n\n", " ").replace('\n', " "));
        text.trim_end().replace('|', "\\|").replace('<', "&lt;")
    }

    fn row(command: &Command, arg: &Arg) -> String {
        let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let text = arg.get_long_help().or(arg.get_help()).expect("each argument is explained").to_string();
        let (first, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        // Some defaults are words in the help text.
        let (first, default) = first.split_once(" [default: ").unwrap_or((first, ""));
        let mut about = paragraph(first, rest);
        let quoted = |values: Vec<String>| format!("`{}`", values.join("`, `"));
        let takes_values = arg.get_action().takes_values();
        let values: Vec<_> = arg.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
        if takes_values && !values.is_empty() {
            write!(about, " One of {}.", quoted(values)).unwrap();
        }
        let is_shown = takes_values && !arg.is_hide_default_value_set();
        let values: Vec<_> = arg.get_default_values().iter().map(|one| one.display().to_string()).collect();
        if !default.is_empty() {
            write!(about, " Default: {}.", default.trim_end_matches(']')).unwrap();
        } else if is_shown && !values.is_empty() {
            write!(about, " Default: {}.", values.join(", ")).unwrap();
        }
        let others: Vec<_> = command.get_arg_conflicts_with(arg).iter().map(|arg| option(arg)).collect();
        if !others.is_empty() {
            write!(about, " Not with {}.", quoted(others)).unwrap();
        }
        format!("| {short}`{arg}` | {about} |\n")
    }

    fn option(arg: &Arg) -> String {
        format!("--{}", arg.get_long().expect("only options exclude each other"))
    }

    fn table(text: &mut String, command: &Command, is_here: impl Fn(&Arg) -> bool) {
        let args = command.get_arguments().filter(|arg| !arg.is_hide_set() && is_here(arg));
        let mut rows: Vec<_> = args.map(|arg| (arg.is_positional(), row(command, arg))).collect();
        rows.sort_by_key(|(is_positional, _)| !is_positional);
        if !rows.is_empty() {
            text.push_str("\n| argument or option | meaning |\n|---|---|\n");
            text.extend(rows.into_iter().map(|(_, row)| row));
        }
    }

    /// A section for each subcommand, and for its own subcommands.
    fn sections(text: &mut String, command: &mut Command, path: &str) {
        let shown = |command: &&mut Command| !command.is_hide_set() && command.get_name() != "help";
        for command in command.get_subcommands_mut().filter(shown) {
            let path = format!("{path} {}", command.get_name());
            let about = command.get_long_about().or(command.get_about()).expect("each command is explained");
            let about = about.to_string();
            let (first, rest) = about.split_once("\n\n").unwrap_or((&about, ""));
            let usage = command.render_usage().to_string().replace("[OPTIONS] ", "");
            let usage = usage.trim_start_matches("Usage: ");
            write!(text, "\n### `{path}`\n\n`{usage}`\n\n{}\n", paragraph(first, rest)).unwrap();
            table(text, command, |arg| !arg.is_global_set() && arg.get_id() != "help");
            sections(text, command, &path);
        }
    }

    /// The definition of the command line, as tables.
    fn reference() -> String {
        let mut command = Args::command();
        command.build();
        let mut text = String::from(FIRST);
        table(&mut text, &command, Arg::is_global_set);
        sections(&mut text, &mut command, "tenure");
        text + "\n"
    }

    #[test]
    fn page_lists_the_options_of_every_command() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join("cli-reference.md");
        let page = fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(FIRST).expect("the page has the tables");
        let (_, after) = rest.split_once(NEXT).expect("the page goes on after them");
        let expected = format!("{before}{}{NEXT}{after}", reference());
        if env::var_os("TENURE_WRITE_PAGES").is_some() {
            fs::write(&path, &expected).unwrap();
        }
        let page = fs::read_to_string(&path).unwrap();
        assert!(page == expected, "{} is out of date: run this with TENURE_WRITE_PAGES=1", path.display());
    }

    #[test]
    fn topic_lists_the_exit_codes_of_the_page() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join("cli.md");
        let page = fs::read_to_string(&page).unwrap();
        let (_, table) = page.split_once("| code | meaning |\n|---|---|\n").expect("the page has the table");
        let listed: Vec<_> =
            table.lines().map_while(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
        let codes = args::EXIT_CODES.lines().filter_map(|line| line.strip_prefix("  "));
        let codes: Vec<_> = codes.filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(codes, listed.iter().map(|code| code.replace('*', "")).collect::<Vec<_>>());
    }
}
