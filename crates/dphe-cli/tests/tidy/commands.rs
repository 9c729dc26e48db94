//! Commands, options and tests that documents and scripts name exist.

use super::{code_spans, documents, files, none, root};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The help of every command, by its words: `""`, `"bench"`, `"bench kernel"`.
fn helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(words) = open.pop() {
        let output = Command::new(env!("CARGO_BIN_EXE_dphe"))
            .args(words.split_whitespace())
            .arg("--help")
            .output()
            .unwrap();
        assert!(output.status.success(), "dphe {words} --help");
        let help = String::from_utf8(output.stdout).unwrap();
        let commands = help.split("\nCommands:\n").nth(1).unwrap_or("");
        for line in commands.lines().take_while(|line| !line.is_empty()) {
            // deeper lines continue a description
            let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
            let name = name.split_whitespace().next().unwrap();
            if name != "help" {
                open.push(format!("{words} {name}").trim().to_owned());
            }
        }
        helps.insert(words, help);
    }
    helps
}

/// The long and short options that a help text lists.
fn options(help: &str) -> BTreeSet<&str> {
    let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with('-') && word.len() > 1).collect()
}

/// The commands that a document names, each without `dphe` and without comment.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter_map(|line| {
        line.strip_prefix("dphe ").or_else(|| line.strip_prefix("cargo run --release -- "))
    });
    let lines = lines.map(|line| line.split(" #").next().unwrap().trim());
    // prose and pictures may begin with the name of the program too
    let lines = lines.filter(|line| !line.ends_with(['.', ',']) && !line.contains("   "));
    let spans = code_spans(text).into_iter().filter_map(|span| span.strip_prefix("dphe "));
    lines.chain(spans).map(|line| line.split(" #").next().unwrap().trim().to_owned()).collect()
}

#[test]
fn commands_and_options_in_documents_exist() {
    let helps = helps();
    let mut complaints = Vec::new();
    let mut checked = 0;
    for file in documents() {
        for line in commands(&file.text) {
            let mut command = String::new();
            let mut words = line.split_whitespace().peekable();
            while let Some(word) = words.peek() {
                let longer = format!("{command} {word}").trim().to_owned();
                if !helps.contains_key(&longer) {
                    break;
                }
                (command, _) = (longer, words.next());
            }
            let has_commands = helps[&command].contains("\nCommands:\n");
            let next = words.peek().copied().unwrap_or("--");
            // an ellipsis or a word in capitals stands for something else
            let is_name = next.starts_with(|c: char| c.is_ascii_lowercase());
            if has_commands && is_name {
                complaints.push(format!("{}: `dphe {line}`: there is no command `{next}`", file.path));
                continue;
            }
            let known = options(&helps[&command]);
            for word in words.filter(|word| word.starts_with('-')) {
                let option = word.split(['=', ']', ',', ';']).next().unwrap();
                if !known.contains(option) {
                    complaints.push(format!("{}: `dphe {line}`: there is no option `{option}`", file.path));
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} commands were found");
    none(complaints, "documents name commands or options that do not exist");
}

#[test]
fn options_in_documents_exist() {
    let helps = helps();
    let known: BTreeSet<&str> = helps.values().flat_map(|help| options(help)).collect();
    // options of other programs
    let others = ["--", "--ci", "--full", "--ignored", "--nocapture", "--check"];
    let mut complaints = Vec::new();
    for file in documents().iter().filter(|file| !file.path.starts_with("benches/")) {
        for span in code_spans(&file.text).into_iter().filter(|span| span.starts_with("--")) {
            let option = span.split([' ', '=']).next().unwrap();
            if !known.contains(option) && !others.contains(&option) {
                complaints.push(format!("{}: `{span}`", file.path));
            }
        }
    }
    none(complaints, "documents name options that do not exist");
}

#[test]
fn the_readme_shows_how_to_start() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(commands(&readme).len() >= 15, "{:?}", commands(&readme));
}

#[test]
fn tests_in_scripts_and_documents_exist() {
    let mut code = files("crates", &[".rs"]);
    code.extend(files("reference", &[".rs"]));
    code.extend(files("examples", &[".rs"]));
    let script = std::fs::read_to_string(root().join("scripts/test")).unwrap();
    // its function `tests` calls `cargo test`
    let script = script.replace("\\\n", " ").replace(" tests --test ", " cargo test --test ");
    let mut complaints = Vec::new();
    let mut checked = 0;
    for (path, text) in
        documents().into_iter().map(|file| (file.path, file.text)).chain([("scripts/test".into(), script)])
    {
        for command in
            text.lines().filter_map(|line| line.split_once("cargo test ").map(|(_, command)| command))
        {
            let command = command.split(['`', '#', ';', ')']).next().unwrap();
            let words: Vec<&str> = command.split_whitespace().collect();
            let after = |option: &'static str| {
                words.windows(2).filter(move |pair| pair[0] == option).map(|pair| pair[1])
            };
            let package = after("-p").next().map(|package| format!("crates/{package}/"));
            for name in after("--test") {
                let found = code.iter().any(|file| {
                    let ours = package.as_ref().is_none_or(|package| file.path.starts_with(package));
                    ours && [format!("/tests/{name}.rs"), format!("/tests/{name}/main.rs")]
                        .iter()
                        .any(|end| file.path.ends_with(end))
                });
                checked += 1;
                if !found {
                    complaints
                        .push(format!("{path}: there is no test program `{name}`: cargo test {command}"));
                }
            }
            let filters =
                words.iter().skip_while(|word| **word != "--").filter(|word| !word.starts_with('-'));
            for filter in filters.copied().chain(after("--lib")).filter(|word| !word.starts_with('-')) {
                checked += 1;
                let named = |line: &str| {
                    line.split("fn ")
                        .nth(1)
                        .is_some_and(|rest| rest.split('(').next().unwrap().contains(filter))
                };
                if !code.iter().any(|file| file.text.lines().any(named)) {
                    complaints.push(format!("{path}: no test is called `{filter}`: cargo test {command}"));
                }
            }
        }
    }
    assert!(checked > 25, "{checked} names of tests");
    none(complaints, "commands name tests that do not exist");
}
