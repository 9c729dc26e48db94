//! Patterns of prose that readers had to read twice. CONTRIBUTING.md says how to write instead.

use super::{files, none};

/// A pattern in lower case, and the words around it that make it harmless.
struct Pattern {
    text: &'static str,
    not_after: &'static [&'static str],
    not_before: &'static [&'static str],
}

const fn pattern(text: &'static str) -> Pattern {
    Pattern { text, not_after: &[], not_before: &[] }
}

const PATTERNS: [Pattern; 12] = [
    pattern(" at hand"),
    Pattern { text: "for ever", not_after: &[], not_before: &["y"] },
    pattern("whoever"),
    Pattern {
        text: "is no ",
        not_after: &["there ", "th"],
        not_before: &["longer", "more than", "less than", "better than", "worse than"],
    },
    pattern(" one a "),
    pattern(" a folder a "),
    pattern("by and by"),
    pattern("in its midst"),
    pattern("cannot be:"),
    pattern("unless told"),
    Pattern { text: "given up", not_after: &[], not_before: &["date", "load"] },
    pattern("stands so"),
];

/// Files that quote the patterns, and texts that are part of `vectors/` and must not change.
const ALLOWED: [&str; 2] = ["crates/dphe-cli/tests/tidy/prose.rs", "reference/src/vectors/transcript.rs"];

#[test]
fn prose_is_plain() {
    let endings = [".rs", ".md", ".html", ".js", ".py", ".toml", ".yml", ".service", "Containerfile", ".sh"];
    let mut complaints = Vec::new();
    for file in files("", &endings).iter().filter(|file| !ALLOWED.contains(&file.path.as_str())) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let line = line.to_lowercase();
            for pattern in &PATTERNS {
                let hits = line.match_indices(pattern.text).filter(|&(at, _)| {
                    let (before, after) = (&line[..at], &line[at + pattern.text.len()..]);
                    !pattern.not_after.iter().any(|word| before.ends_with(word))
                        && !pattern.not_before.iter().any(|word| after.starts_with(word))
                });
                for _ in hits {
                    complaints.push(format!("{}:{number}: {:?}", file.path, pattern.text));
                }
            }
        }
    }
    none(complaints, "prose has patterns that CONTRIBUTING.md rules out");
}
