//! Compares the lock files with the security advisories in `deny/advisories.toml`, without a network.

#![allow(clippy::panic, reason = "a test fails by panicking")]

use super::{files, none, root};
use serde::Deserialize;
use std::collections::BTreeSet;

/// `deny/advisories.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisories {
    /// The date of the newest advisory when the data was read.
    date: String,
    /// The crates whose advisories are all in the list.
    looked_up: BTreeSet<String>,
    #[serde(rename = "advisory")]
    list: Vec<Advisory>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advisory {
    id: String,
    #[serde(rename = "crate")]
    name: String,
    date: String,
    category: String,
    patched: Vec<String>,
    unaffected: Vec<String>,
    summary: String,
}

impl Advisory {
    fn affects(&self, package: &Package) -> bool {
        let version = Version::parse(&package.version);
        let mut harmless = self.patched.iter().chain(&self.unaffected);
        self.name == package.name && !harmless.any(|range| version.satisfies(range))
    }

    fn complaint(&self, package: &Package) -> String {
        let (name, version) = (&package.name, &package.version);
        let (id, category, summary) = (&self.id, &self.category, &self.summary);
        let remedy = match &self.patched[..] {
            [] => "No version is patched.".to_owned(),
            ranges => format!("Patched: {}.", ranges.join(" or ")),
        };
        format!(
            "{name} {version}: {id} ({category}). {summary} {remedy} https://rustsec.org/advisories/{id}.html"
        )
    }
}

/// The part of `deny.toml` that says which advisories are accepted.
#[derive(Deserialize)]
struct DenyConfiguration {
    advisories: AdvisorySettings,
}

#[derive(Deserialize)]
struct AdvisorySettings {
    ignore: Vec<Ignored>,
}

#[derive(Deserialize)]
struct Ignored {
    id: String,
    reason: String,
}

/// A file `Cargo.lock`.
#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// Where cargo gets the crate from. Crates of this repository have no source.
    source: Option<String>,
}

/// A version, ordered as semantic versioning orders them. Build metadata is left out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    numbers: [u64; 3],
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    PreRelease(Vec<Identifier>),
    Release,
}

/// A part of the name of a pre-release. Numbers are lower than text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Version {
    /// Reads `1.2.3`, `1.2.3-rc.1+build`, or a shorter version such as `1.2`, whose missing numbers are 0.
    fn parse(text: &str) -> Version {
        let text = text.split('+').next().unwrap();
        let (release, stage) = match text.split_once('-') {
            Some((release, name)) => {
                let identifier = |part: &str| {
                    part.parse().map_or_else(|_| Identifier::Text(part.into()), Identifier::Number)
                };
                (release, Stage::PreRelease(name.split('.').map(identifier).collect()))
            }
            None => (text, Stage::Release),
        };
        let mut numbers = [0; 3];
        for (index, number) in release.split('.').enumerate() {
            numbers[index] = number.parse().unwrap_or_else(|_| panic!("{text:?} is not a version"));
        }
        Version { numbers, stage }
    }

    /// The first release in which the number at `index` is higher.
    fn next(&self, index: usize) -> Version {
        let mut numbers = self.numbers;
        numbers[index] += 1;
        numbers[index + 1..].fill(0);
        Version { numbers, stage: Stage::Release }
    }

    /// Whether this version is in a range such as `>= 1.2.3, < 2`.
    fn satisfies(&self, range: &str) -> bool {
        range.split(',').all(|comparator| self.satisfies_one(comparator.trim()))
    }

    fn satisfies_one(&self, comparator: &str) -> bool {
        let (operator, text) = comparator.split_at(comparator.find(|c: char| c.is_ascii_digit()).unwrap());
        let bound = Version::parse(text);
        // the index of the last number that the comparator gives
        let last = text.split(['-', '+']).next().unwrap().matches('.').count();
        match operator.trim() {
            ">=" => *self >= bound,
            "<" => *self < bound,
            ">" if last == 2 => *self > bound,
            ">" => *self >= bound.next(last),
            "<=" if last == 2 => *self <= bound,
            "<=" => *self < bound.next(last),
            "=" if last == 2 => *self == bound,
            "=" => *self >= bound && *self < bound.next(last),
            "^" | "" => {
                let breaking = bound.numbers[..=last].iter().position(|number| *number > 0).unwrap_or(last);
                *self >= bound && *self < bound.next(breaking)
            }
            _ => panic!("{comparator:?} is not a comparator"),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All packages from outside in the lock files: of this workspace, and of those below `fuzz` and `benches`.
fn dependencies() -> Vec<Package> {
    let locks = files("", &["Cargo.lock"]);
    assert!(locks.iter().any(|lock| lock.path == "Cargo.lock"));
    let packages = locks.iter().flat_map(|lock| foreign_packages(&lock.text));
    packages.collect()
}

fn foreign_packages(lock: &str) -> Vec<Package> {
    let mut packages = toml::from_str::<Lock>(lock).unwrap().package;
    packages.retain(|package| package.source.is_some());
    packages
}

/// One complaint for each advisory that affects a package, without those that are ignored.
fn affected(packages: &[Package], advisories: &Advisories, ignored: &[Ignored]) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in packages {
        for advisory in advisories.list.iter().filter(|advisory| advisory.affects(package)) {
            let complaint = advisory.complaint(package);
            if !ignored.iter().any(|ignored| ignored.id == advisory.id) && !complaints.contains(&complaint) {
                complaints.push(complaint);
            }
        }
    }
    complaints
}

#[test]
fn no_dependency_has_a_known_advisory() {
    let packages = dependencies();
    let advisories: Advisories = read("deny/advisories.toml");
    let ignored = read::<DenyConfiguration>("deny.toml").advisories.ignore;
    let crates: BTreeSet<_> = packages.iter().map(|package| (&package.name, &package.version)).collect();
    assert!(crates.len() > 300, "{} crates", crates.len());
    println!(
        "deny/advisories.toml: compared {} crates with {} advisories (until {}, {} ignored)",
        crates.len(),
        advisories.list.len(),
        advisories.date,
        ignored.len()
    );
    none(
        affected(&packages, &advisories, &ignored),
        "Crates have known advisories. Update them (cargo update -p CRATE), or ignore the advisory in deny.toml with a \
         reason",
    );
}

/// A crate that nobody has looked up may have advisories that the list does not have.
#[test]
fn advisories_of_all_dependencies_have_been_looked_up() {
    let advisories: Advisories = read("deny/advisories.toml");
    let names: BTreeSet<String> = dependencies().into_iter().map(|package| package.name).collect();
    none(
        names.difference(&advisories.looked_up).cloned().collect(),
        "deny/advisories.toml does not cover all crates. Look these up in the RustSec database, add their advisories, \
         and add their names to `looked_up`",
    );
}

#[test]
fn ignored_advisories_have_reasons_and_still_apply() {
    let advisories: Advisories = read("deny/advisories.toml");
    let all = affected(&dependencies(), &advisories, &[]).join("\n");
    for Ignored { id, reason } in read::<DenyConfiguration>("deny.toml").advisories.ignore {
        assert!(reason.split(' ').count() > 4, "the reason to ignore {id} is too short");
        assert!(all.contains(&id), "deny.toml ignores {id}, which affects no dependency; remove it");
    }
}

#[test]
fn advisories_are_well_formed_and_in_order() {
    let advisories: Advisories = read("deny/advisories.toml");
    assert!(advisories.list.is_sorted_by_key(|advisory| (&advisory.name, &advisory.id)));
    let ids: BTreeSet<&str> = advisories.list.iter().map(|advisory| advisory.id.as_str()).collect();
    assert_eq!(ids.len(), advisories.list.len(), "an advisory is listed twice");
    for advisory in &advisories.list {
        let (id, date) = (&advisory.id, &advisory.date);
        assert!(id.starts_with("RUSTSEC-20") && id.len() == "RUSTSEC-2020-0001".len(), "{id}");
        assert!(date.len() == "2020-01-01".len() && *date <= advisories.date, "{id}: {date}");
        assert!(advisory.summary.ends_with('.') && !advisory.category.is_empty(), "{id}");
        assert!(
            advisories.looked_up.contains(&advisory.name),
            "{id}: {} is not in `looked_up`",
            advisory.name
        );
        for range in advisory.patched.iter().chain(&advisory.unaffected) {
            // panics if the range cannot be read
            Version::parse("1.0.0").satisfies(range);
        }
    }
}

#[test]
fn versions_are_ordered_as_semantic_versioning_says() {
    let ascending = [
        "0.0.9",
        "0.1.0-alpha",
        "0.1.0-alpha.1",
        "0.1.0-alpha.beta",
        "0.1.0-beta.2",
        "0.1.0-beta.11",
        "0.1.0-rc.1",
        "0.1.0",
        "0.1.9",
        "0.1.10",
        "0.9.0",
        "0.10.0",
        "1.0.0",
        "10.0.0",
    ];
    let versions: Vec<Version> = ascending.iter().map(|text| Version::parse(text)).collect();
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    assert_eq!(Version::parse("1.1.8+spec-1.1.0"), Version::parse("1.1.8"));
    assert_eq!(Version::parse("0.23"), Version::parse("0.23.0"));
}

#[test]
fn ranges_contain_the_versions_that_cargo_says() {
    let cases = [
        (">= 0.3.47", ["0.3.47", "0.4.0", "1.0.0"], ["0.3.46", "0.3.47-rc.1", "0.1.42"]),
        ("< 0.10.0, >= 0.9.3", ["0.9.3", "0.9.9", "0.9.10"], ["0.9.2", "0.10.0", "0.8.6"]),
        ("<= 0.22", ["0.22.0", "0.22.9", "0.1.0"], ["0.23.0", "0.23.1", "1.0.0"]),
        ("> 0.22", ["0.23.0", "0.23.1", "1.0.0"], ["0.22.0", "0.22.9", "0.1.0"]),
        ("<= 0.1.37", ["0.1.37", "0.1.9", "0.1.37-rc.1"], ["0.1.38", "0.2.0", "1.0.0"]),
        ("> 0.1.37", ["0.1.38", "0.2.0", "1.0.0"], ["0.1.37", "0.1.9", "0.1.37-rc.1"]),
        ("=0.2.6", ["0.2.6", "0.2.6", "0.2.6+build"], ["0.2.5", "0.2.7", "0.2.60"]),
        ("= 0.2", ["0.2.0", "0.2.6", "0.2.60"], ["0.1.9", "0.3.0", "1.0.0"]),
        ("^0.3.24", ["0.3.24", "0.3.25", "0.3.99"], ["0.3.23", "0.4.0", "1.3.24"]),
        ("^ 1.8.1", ["1.8.1", "1.9.0", "1.99.0"], ["1.8.0", "2.0.0", "0.8.1"]),
        ("0.0.3", ["0.0.3", "0.0.3+1", "0.0.3+2"], ["0.0.2", "0.0.4", "0.1.0"]),
        ("0.13.10", ["0.13.10", "0.13.11", "0.13.99"], ["0.13.9", "0.14.0", "1.0.0"]),
        (">= 0.3.0-rc.2", ["0.3.0-rc.2", "0.3.0-rc.10", "0.3.0"], ["0.3.0-rc.1", "0.2.9", "0.3.0-beta"]),
    ];
    for (range, inside, outside) in cases {
        for version in inside {
            assert!(Version::parse(version).satisfies(range), "{version} is in {range}");
        }
        for version in outside {
            assert!(!Version::parse(version).satisfies(range), "{version} is not in {range}");
        }
    }
}

#[test]
fn affected_versions_in_a_lock_file_are_reported() {
    let packages = foreign_packages(
        r#"
        version = 4

        [[package]]
        name = "time"
        version = "0.1.42"
        source = "registry+https://github.com/rust-lang/crates.io-index"
        dependencies = [
         "libc",
        ]

        [[package]]
        name = "time"
        version = "0.3.47"
        source = "registry+https://github.com/rust-lang/crates.io-index"

        [[package]]
        name = "atty"
        version = "0.2.14"
        source = "registry+https://github.com/rust-lang/crates.io-index"

        # a crate of this repository that happens to have the name of another
        [[package]]
        name = "smallvec"
        version = "0.6.0"
        "#,
    );
    let advisories: Advisories = read("deny/advisories.toml");
    let complaints = affected(&packages, &advisories, &[]);
    assert_eq!(complaints.len(), 3, "{complaints:#?}");
    assert!(
        complaints[0].starts_with("time 0.1.42: RUSTSEC-2020-0071 (memory-corruption). "),
        "{}",
        complaints[0]
    );
    assert!(complaints[0].contains(" Patched: >= 0.2.23. "), "{}", complaints[0]);
    assert!(complaints[1].contains("RUSTSEC-2021-0145"), "{}", complaints[1]);
    assert!(complaints[2].contains("RUSTSEC-2024-0375 (informational)"), "{}", complaints[2]);
    assert!(complaints[2].contains(" No version is patched. "), "{}", complaints[2]);

    let ignored = ["RUSTSEC-2021-0145", "RUSTSEC-2024-0375"]
        .map(|id| Ignored { id: id.into(), reason: "the test wants to see the rest".into() });
    assert_eq!(affected(&packages, &advisories, &ignored), complaints[..1]);
}
