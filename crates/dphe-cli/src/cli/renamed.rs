//! Options that have another name than in earlier versions. The old word is refused with the new one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An option: the command, its old name and its new name.
struct Renamed(&'static str, &'static str, &'static str);

const RENAMED: [Renamed; 23] = [
    Renamed("backup", "--to", "--output"),
    Renamed("bench keygen", "--mode", "--noise"),
    Renamed("bench kernel", "--mode", "--noise"),
    Renamed("bench learn", "--alpha", "--strength"),
    Renamed("bench learn", "--data", "--features"),
    Renamed("bench packing", "--mode", "--noise"),
    Renamed("bench paillier", "--mode", "--noise"),
    Renamed("bench protocol", "--classes", "--class-count"),
    Renamed("bench protocol", "--features", "--feature-count"),
    Renamed("bench protocol", "--mode", "--noise"),
    Renamed("bench service", "--mode", "--noise"),
    Renamed("bench service", "--out", "--output"),
    Renamed("data split", "--out", "--output"),
    Renamed("data split", "--rule", "--split"),
    Renamed("data split", "--skew", "--split"),
    Renamed("extract", "--model", "--network"),
    Renamed("extract", "--out", "--output"),
    Renamed("init", "--start-from", "--model"),
    Renamed("key new", "--mode", "--noise"),
    Renamed("plan", "--classes", "--class-count"),
    Renamed("plan", "--features", "--feature-count"),
    Renamed("reproduce", "--data", "--data-sets"),
    Renamed("simulate", "--message", "--payload"),
];

/// Names the new word if a command line was refused because of an old one.
pub(crate) fn explain(error: clap::Error, arguments: &[String]) -> clap::Error {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let found = found.split('=').next().unwrap_or_default();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let renamed = RENAMED.iter().find(|Renamed(command, old, _)| {
        let command: Vec<&str> = command.split(' ').collect();
        words.starts_with(&command) && found == *old
    });
    match renamed {
        Some(Renamed(command, old, new)) => clap::Error::raw(
            ErrorKind::UnknownArgument,
            format!("`{old}` of `dphe {command}` is now called `{new}`\n"),
        ),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn old_options_are_refused_and_the_new_ones_exist() {
        for Renamed(command, old, new) in RENAMED {
            let arguments: Vec<String> = command.split(' ').chain([old, "x"]).map(str::to_owned).collect();
            let program = ["dphe".to_owned()].into_iter().chain(arguments.iter().cloned());
            let error = Cli::try_parse_from(program).err().unwrap();
            let error = explain(error, &arguments).to_string();
            assert!(error.contains(&format!("is now called `{new}`")), "{command} {old}: {error}");
            let mut parser = &Cli::command();
            for word in command.split(' ') {
                parser = parser.find_subcommand(word).unwrap();
            }
            let has = |name: &str| parser.get_arguments().any(|a| a.get_long() == name.strip_prefix("--"));
            assert!(has(new) && !has(old), "{command} {old} {new}");
        }
    }

    #[test]
    fn other_unknown_options_are_refused_as_before() {
        let arguments = ["demo".to_owned(), "--rouns".to_owned()];
        let program = ["dphe".to_owned()].into_iter().chain(arguments.clone());
        let error = Cli::try_parse_from(program).err().unwrap();
        assert!(explain(error, &arguments).to_string().contains("'--rounds'"));
    }
}
