//! Rules about the code.

use super::{files, none, root, sources};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn unsafe_code_is_only_in_the_arithmetic() {
    let files = files("crates", &[".rs"]);
    for file in files.iter().filter(|file| !file.path.contains("tests/tidy/")) {
        let uses =
            file.text.lines().filter(|line| line.contains("unsafe {") || line.contains("unsafe fn")).count();
        let arithmetic = file.path.contains("/arith/") || file.path.ends_with("src/arith.rs");
        assert!(uses == 0 || arithmetic, "unsafe code outside the arithmetic: {}", file.path);
        // clippy checks that every block has a reason; this checks that the lint is on
        assert!(!file.text.contains("allow(clippy::undocumented_unsafe_blocks"), "{}", file.path);
    }
}

/// The names of the public types and traits in a source.
fn public_types(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let item = line.trim_start().strip_prefix("pub ")?;
        let kind = item.split(' ').next()?;
        let name = item.strip_prefix(kind)?.trim_start();
        let name = &name[..name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len())];
        ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
    })
}

#[test]
fn no_public_type_name_occurs_in_two_crates() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // the arithmetic is visible only to programs that must not compile
    for file in sources().into_iter().filter(|file| !file.path.contains("/arith/")) {
        let name = file.path.split('/').nth(1).unwrap();
        for public in public_types(&file.text) {
            crates.entry(public.to_owned()).or_default().insert(name.to_owned());
        }
    }
    assert!(crates.len() > 250, "{} types", crates.len());
    // every Rust library calls its error type `Error`
    let shared = crates.iter().filter(|(public, crates)| crates.len() > 1 && *public != "Error");
    none(shared.map(|(public, crates)| format!("{public}: {crates:?}")).collect(), "types share a name");
}

#[test]
fn no_type_is_named_by_a_metaphor() {
    let metaphors = ["Door", "Desk", "Office", "Gate", "Board", "Courier", "Tally", "Strangers", "Line"];
    let mut complaints = Vec::new();
    for file in files("crates", &[".rs"]) {
        for line in file.text.lines() {
            let words: Vec<&str> = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
            for pair in words.windows(2) {
                if ["struct", "enum", "trait", "type"].contains(&pair[0]) && metaphors.contains(&pair[1]) {
                    complaints.push(format!("{}: {}", file.path, line.trim()));
                }
            }
        }
    }
    none(complaints, "types are named by metaphors; docs/glossary.md has the words");
}

#[test]
fn media_types_are_spelled_only_in_the_wire_module() {
    let spelled = sources().into_iter().filter(|file| file.text.contains("vnd.dphe"));
    let outside = spelled.filter(|file| !file.path.starts_with("crates/dphe/src/wire"));
    none(outside.map(|file| file.path).collect(), "media types are spelled outside dphe::wire");
}

#[test]
fn payload_names_are_spelled_in_one_place() {
    for name in ["\"d-topk\"", "\"d-l1\"", "\"w-topk\""] {
        let places: Vec<String> = sources()
            .iter()
            .flat_map(|file| file.text.matches(name).map(|_| file.path.clone()).collect::<Vec<_>>())
            .collect();
        assert_eq!(places.len(), 1, "{name} is spelled in {places:?}");
    }
}

/// The string literals of a piece of code.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) = rest.find('"') {
        let mut text = String::new();
        let mut chars = rest[start + 1..].char_indices();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                '"' => {
                    end = start + 1 + at + 1;
                    break;
                }
                c => text.push(c),
            }
        }
        found.push(text);
        rest = &rest[end..];
    }
    found
}

#[test]
fn hints_are_sentences() {
    let mut complaints = Vec::new();
    let mut checked = 0;
    for file in sources() {
        for body in file.text.split("fn hint(").filter(|body| body.starts_with("&self")) {
            // up to the brace that closes the function, which is indented like `fn`
            let end = ["\n    }\n", "\n}\n"]
                .iter()
                .filter_map(|brace| body.find(brace))
                .min()
                .unwrap_or(body.len());
            for hint in literals(&body[..end]).iter().filter(|text| text.contains(' ') && text.len() > 3) {
                let first = hint.chars().next().unwrap();
                // a name that is filled in may come first
                if !(first.is_uppercase() || first == '{') {
                    complaints.push(format!("{}: {hint}", file.path));
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} hints were found");
    none(complaints, "hints must start with a capital letter");
}

#[test]
fn comments_fit_into_120_columns() {
    let mut complaints = Vec::new();
    for file in files("", &[".rs"]) {
        for (number, line) in (1..).zip(file.text.lines()) {
            // a row of a table cannot be broken
            let comment = line.trim_start();
            let is_row = comment.trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if comment.starts_with("//") && !is_row && line.chars().count() > 120 {
                complaints.push(format!("{}:{number}", file.path));
            }
        }
    }
    none(complaints, "comments are longer than 120 columns");
}

#[test]
fn the_glossary_gives_each_word_once() {
    let text = std::fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let words = text.lines().filter_map(|line| line.strip_prefix("| **")?.split("**").next());
    let mut seen = BTreeSet::new();
    for word in words.flat_map(|words| words.split(", ")) {
        assert!(seen.insert(word), "`{word}` has two entries");
    }
    assert!(seen.len() >= 60, "{} words", seen.len());
}
