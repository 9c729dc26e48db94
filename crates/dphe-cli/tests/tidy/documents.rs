//! Paths, links, sections and modules that documents and comments name exist.

use super::{File, code_spans, documents, files, none, root};
use std::collections::BTreeSet;

/// The anchors of the headings of a Markdown text, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut complaints = Vec::new();
    let mut checked = 0;
    for file in documents() {
        for target in file.text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if target.contains("://") || target.contains('\n') || target.contains("::") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let directory = root().join(&file.path).parent().unwrap().to_path_buf();
            let place = if path.is_empty() { root().join(&file.path) } else { directory.join(path) };
            // rustdoc links to items have no slash and no ending
            if !place.exists() && (path.contains('/') || path.contains('.')) {
                complaints.push(format!("{}: {target}", file.path));
            } else if !anchor.is_empty() && place.is_file() {
                let text = std::fs::read_to_string(&place).unwrap();
                if !anchors(&text).contains(anchor) {
                    complaints.push(format!("{}: {target} names no heading", file.path));
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 60, "only {checked} links were found");
    none(complaints, "links lead nowhere");
}

#[test]
fn paths_in_documents_exist() {
    let tops: BTreeSet<String> = std::fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "target" && !name.starts_with('.'))
        .collect();
    let all = files("", &[".rs"]);
    let is_source = |path: &str| all.iter().any(|file| file.path.ends_with(&format!("/{path}")));
    let mut complaints = Vec::new();
    let mut checked = 0;
    for file in documents() {
        for span in code_spans(&file.text) {
            let path = span.trim_end_matches('/').split(':').next().unwrap();
            let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-@".contains(c);
            if !span.contains('/') && !path.ends_with(".rs")
                || !path.chars().all(is_path)
                || path.starts_with('/')
            {
                continue;
            }
            let own = root().join(&file.path).parent().unwrap().join(path);
            let exists = root().join(path).exists() || own.exists() || is_source(path);
            let top = path.split('/').next().unwrap();
            let meant = tops.contains(top) || ["src", "tests"].contains(&top) || path.ends_with(".rs");
            if meant && !exists {
                complaints.push(format!("{}: `{span}`", file.path));
            }
            checked += usize::from(meant);
        }
    }
    assert!(checked > 40, "only {checked} paths were found");
    none(complaints, "documents name paths that do not exist");
}

#[test]
fn documents_that_code_names_exist() {
    let mut complaints = Vec::new();
    for file in files("", &[".rs", ".py", ".toml", ".yml", ".json", ".html", ".js"]) {
        for rest in file.text.split("docs/").skip(1) {
            let name: String =
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "/._-".contains(*c)).collect();
            let name = name.trim_end_matches('.');
            if name.ends_with(".md") && !root().join("docs").join(name).exists() {
                complaints.push(format!("{}: docs/{name}", file.path));
            }
        }
    }
    none(complaints, "code names documents that do not exist");
}

/// The numbers of the sections that are cited right behind `document` in `text`: "protocol.md, sections 3, 7 and 9".
fn cited<'a>(text: &'a str, document: &'a str) -> impl Iterator<Item = u32> + 'a {
    text.split(document).skip(1).flat_map(|rest| {
        let rest =
            rest.replace("\n/// ", " ").replace("\n//! ", " ").replace("\n// ", " ").replace('\n', " ");
        let rest = rest.trim_start_matches(['`', ')', ',', ' ', '(', '\\']);
        let numbers = match rest.strip_prefix("section") {
            Some(rest) => rest.trim_start_matches('s').to_owned(),
            None => rest.strip_prefix('§').unwrap_or("").to_owned(),
        };
        let list = numbers.replace(" and ", ", ").replace(" to ", ", ");
        let numbers = list.split(", ").map_while(|word| {
            let digits: String = word.trim().chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        });
        numbers.collect::<Vec<u32>>()
    })
}

/// The numbers of the headings of a document: `## 3 The task`.
fn sections(text: &str) -> BTreeSet<u32> {
    let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    headings.filter_map(|heading| heading.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn cited_sections_exist() {
    let mut complaints = Vec::new();
    for (name, least) in [("protocol.md", 30), ("leakage.md", 4)] {
        let sections = sections(&std::fs::read_to_string(root().join("docs").join(name)).unwrap());
        let mut checked = 0;
        for file in files("", &[".rs", ".md", ".py", ".json", ".toml"]) {
            for number in cited(&file.text, name) {
                if !sections.contains(&number) {
                    complaints.push(format!("{}: {name}, section {number}", file.path));
                }
                checked += 1;
            }
        }
        assert!(checked >= least, "only {checked} citations of {name} were found");
    }
    none(complaints, "cited sections do not exist");
}

#[test]
fn the_contents_of_the_protocol_are_complete() {
    let text = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let contents = text.split("Contents:").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: BTreeSet<u32> =
        contents.split('[').skip(1).map(|entry| entry.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(listed, sections(&text));
    assert_eq!(listed, (1..=14).collect());
}

#[test]
fn the_example_message_of_the_protocol_is_in_the_vectors() {
    let text = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let example = text.split("This message is from `vectors/messages.json`:").nth(1).unwrap();
    let example = example.split("\n## ").next().unwrap();
    let words: Vec<&str> = example
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split(' ').next())
        .filter(|word| word.chars().all(|c| c.is_ascii_hexdigit()))
        .collect();
    let vectors = std::fs::read_to_string(root().join("vectors/messages.json")).unwrap();
    let vectors: serde_json::Value = serde_json::from_str(&vectors).unwrap();
    let first = &vectors["tasks"][0]["messages"][0];
    assert_eq!(first["message"], words.concat(), "the example in section 12 is out of date");
    assert!(example.contains(&format!("hash  {}", first["hash"].as_str().unwrap())));
}

#[test]
fn every_decision_is_in_the_index() {
    let index = std::fs::read_to_string(root().join("docs/decisions/README.md")).unwrap();
    let mut records = files("docs/decisions", &[".md"]);
    records.retain(|record| !record.path.ends_with("README.md"));
    for (number, record) in (1..).zip(&records) {
        let name = record.path.rsplit('/').next().unwrap();
        assert!(name.starts_with(&format!("{number:03}-")), "{name} is record {number}");
        assert!(index.contains(&format!("]({name})")), "{name} is not in the index");
        let date = record.text.split("\nDate: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        assert!(index.contains(&format!("| [{number:03}]({name}) | {date} | ")), "{name}: {date}");
        for heading in ["## Context", "## Decision", "## Consequences"] {
            assert!(record.text.contains(heading), "{name}: {heading}");
        }
    }
}

/// The modules that a crate declares in its `lib.rs`, without those of tests.
fn declared(lib: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut test = false;
    for line in lib.lines() {
        let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ");
        if let Some(name) = name.and_then(|rest| rest.strip_suffix(';')).filter(|_| !test) {
            found.insert(name);
        }
        test = line.starts_with("#[cfg(test)]");
    }
    found
}

/// The modules that a front page lists: the first column of the tables whose first heading is `module`.
fn listed(page: &str) -> BTreeSet<&str> {
    let tables = page.split("\n| module |").skip(1);
    // behind the heading and the line below it
    let rows = tables.flat_map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')));
    rows.flat_map(|row| code_spans(row.split('|').nth(1).unwrap())).collect()
}

/// Whether a comment stands above the declaration of a module, with or without attributes between them.
fn has_comment(lib: &str, module: &str) -> bool {
    let lines: Vec<&str> = lib.lines().collect();
    let ends = [format!("mod {module};"), format!("pub mod {module};")];
    let at = lines.iter().position(|line| ends.iter().any(|end| line == end)).unwrap_or(0);
    let above = lines[..at].iter().rev().find(|line| !line.starts_with("#["));
    above.is_some_and(|line| line.starts_with("// ") || line.starts_with("/// "))
}

/// The front page of a crate: its `README.md` if that is included, and the documentation of `lib.rs`.
fn front_page(name: &str, lib: &File) -> String {
    let mut page = String::new();
    if lib.text.contains("include_str!(\"../README.md\")") {
        page += &std::fs::read_to_string(root().join("crates").join(name).join("README.md")).unwrap();
    }
    for line in lib.text.lines().filter_map(|line| line.strip_prefix("//!")) {
        page += "\n";
        page += line.trim();
    }
    page
}

#[test]
fn module_maps_list_the_modules_there_are() {
    let mut complaints = Vec::new();
    let mut libraries = files("crates", &["lib.rs"]);
    libraries.retain(|file| file.path.ends_with("/src/lib.rs"));
    assert!(libraries.len() >= 7);
    for lib in libraries {
        let name = lib.path.split('/').nth(1).unwrap();
        let page = front_page(name, &lib);
        let listed = listed(&page);
        let declared = declared(&lib.text);
        let tops: BTreeSet<&str> = listed.iter().map(|path| path.split("::").next().unwrap()).collect();
        for module in declared.difference(&tops).filter(|module| !has_comment(&lib.text, module)) {
            complaints.push(format!("{name}: the front page does not list `{module}`"));
        }
        for module in tops.difference(&declared) {
            complaints.push(format!("{name}: there is no module `{module}`"));
        }
        for module in listed.iter().filter(|path| path.contains("::")) {
            let path = format!("crates/{name}/src/{}", module.replace("::", "/"));
            if !root().join(format!("{path}.rs")).exists() && !root().join(&path).exists() {
                complaints.push(format!("{name}: there is no module `{module}`"));
            }
        }
    }
    none(complaints, "module maps and modules differ");
}

#[test]
fn tests_that_documents_name_exist() {
    let sources = files("", &[".rs", ".py"]);
    let mut complaints = Vec::new();
    for file in documents() {
        for span in code_spans(&file.text) {
            let is_name = span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            // metrics and arrays of files have fewer words
            if is_name
                && span.matches('_').count() >= 4
                && !sources.iter().any(|source| source.text.contains(span))
            {
                complaints.push(format!("{}: `{span}`", file.path));
            }
        }
    }
    none(complaints, "documents name tests that do not exist");
}

/// The items that a code span names: `Collecting::{accept, finish}` names two. Generics are left out.
fn items(span: &str) -> Vec<Vec<String>> {
    let mut plain = String::new();
    let mut depth = 0;
    for c in span.chars() {
        depth += i32::from(c == '<');
        if depth == 0 {
            plain.push(c);
        }
        depth -= i32::from(c == '>');
    }
    let plain = plain.replace("::::", "::");
    let parts = |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    match plain.split_once("::{") {
        Some((before, list)) => {
            let names = list.trim_end_matches('}').split(',');
            names.map(|name| parts(&format!("{before}::{}", name.trim()))).collect()
        }
        None => vec![parts(&plain)],
    }
}

/// The names that a source defines as types, traits, modules, functions, constants, fields or variants.
fn defined(source: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for line in source.lines() {
        let words: Vec<&str> = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
        for pair in words.windows(2) {
            if ["struct", "enum", "trait", "type", "mod", "fn", "const"].contains(&pair[0]) {
                names.insert(pair[1]);
            }
            // the table of messages: `3 "upload" Upload from User`
            if pair[1] == "from" {
                names.insert(pair[0]);
            }
        }
        let line = line.trim_start();
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(line.len());
        let is_variant = line.starts_with(|c: char| c.is_ascii_uppercase()) && line[end..].starts_with(" {");
        if line[end..].starts_with([':', ',', ';']) || is_variant {
            names.insert(&line[..end]);
        }
    }
    names
}

#[test]
fn items_in_the_maps_exist() {
    let mut sources = super::sources();
    sources.extend(files("reference/src", &[".rs"]));
    let defined: Vec<BTreeSet<&str>> = sources.iter().map(|file| defined(&file.text)).collect();
    let mut complaints = Vec::new();
    let mut checked = 0;
    for document in ["ARCHITECTURE.md", "docs/paper-map.md"] {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        for item in code_spans(&text).into_iter().flat_map(items) {
            let is_name = |part: &String| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let is_crate = |part: &str| root().join("crates").join(part.replace('_', "-")).is_dir();
            let parts: Vec<&String> = item.iter().filter(|part| !is_crate(part)).collect();
            let is_type = parts.len() == 1 && parts[0].starts_with(|c: char| c.is_ascii_uppercase());
            let symbols = ["Enc0", "Y", "Z"];
            if !item.iter().all(is_name)
                || !(parts.len() > 1 || is_type)
                || symbols.contains(&parts[0].as_str())
            {
                continue;
            }
            // a method and its type are in one file
            let pair = &parts[parts.len().saturating_sub(2)..];
            let is_module = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
            let (first, last) = (pair[0].as_str(), pair[pair.len() - 1].as_str());
            let found = sources.iter().zip(&defined).filter(|(_, names)| names.contains(last)).any(
                |(file, names)| {
                    let implements = file.text.contains(first) && file.text.contains("impl");
                    names.contains(first) || implements || is_module(first) && file.path.contains(first)
                },
            );
            if !found {
                complaints.push(format!("{document}: `{}`", item.join("::")));
            }
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} items were found");
    none(complaints, "the maps name items that do not exist");
}
