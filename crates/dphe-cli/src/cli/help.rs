//! The list of commands that `dphe --help` prints, grouped by who needs them. clap can group options but not commands.

use std::fmt::Write as _;

/// The groups in the order in which they are printed. A test checks that every command is in one of them.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Try it on this machine", &["demo", "simulate"]),
    ("Prepare your data", &["extract", "data"]),
    ("Set up a task", &["plan", "init", "keygen", "doctor"]),
    ("Run a task", &["serve", "join", "status", "verify", "backup", "roster"]),
    ("Use a model", &["evaluate", "predict", "export"]),
    ("Reproduce and measure", &["reproduce", "bench"]),
    ("Other", &["key", "completions", "man", "help"]),
];

/// The terminal's width for which descriptions are wrapped. clap wraps everything except what a template contains.
const COLUMNS: usize = 80;

/// The column at which descriptions start.
const INDENT: usize = 15;

/// Escape sequences for a heading as clap prints it. clap removes them if the output is not a terminal.
const HEADING: (&str, &str) = ("\x1b[1m\x1b[4m", "\x1b[0m");

/// Returns the template of the help of the command `program`, which has all subcommands except `help`.
pub(super) fn template(program: clap::Command) -> String {
    let (on, off) = HEADING;
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(list, " {heading}");
        for name in names {
            let about = match program.find_subcommand(name).and_then(clap::Command::get_about) {
                Some(about) => about.to_string(),
                // clap adds it while it parses the command line
                None => "Print this message or the help of a command".to_owned(),
            };
            describe(&mut list, name, &about);
        }
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{on}Commands:{off}\n{list}\n{on}Options:{off}\n{{options}}"
    )
}

/// Adds a command and its description, wrapped.
fn describe(list: &mut String, name: &str, about: &str) {
    let mut line = format!("  {name:<width$}", width = INDENT - 2);
    let mut words = 0;
    for word in about.split_whitespace() {
        if words > 0 && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(list, "{line}");
            (line, words) = (" ".repeat(INDENT), 0);
        }
        let space = if words > 0 { " " } else { "" };
        line += space;
        line += word;
        words += 1;
    }
    let _ = writeln!(list, "{line}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::GROUPS;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let mut program = Cli::command();
        program.build();
        let commands: BTreeSet<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), commands);
        assert_eq!(listed.len(), commands.len(), "a command is listed twice: {listed:?}");
    }
}
