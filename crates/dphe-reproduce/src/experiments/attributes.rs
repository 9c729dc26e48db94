//! Data with attributes: real ones, or attributes derived from classes if the paper's data are missing.

use std::collections::BTreeSet;
use std::sync::Arc;

use dphe_federate::Scenario;
use dphe_learn::dataset::deal;
use dphe_learn::{Dataset, Labels, Seed, Standardizer};

use super::settings::{DIGITS, DataSource, Split};
use super::{AttributeTask, Settings, Source};
use crate::Error;
use crate::experiment::fingerprint;

/// Data with attributes and a given split.
#[derive(Clone, Debug)]
pub struct AttributeSplit {
    /// The public samples.
    pub initial: Arc<Dataset>,
    /// The users' samples.
    pub private: Arc<Dataset>,
    /// The samples that are not used for training.
    pub held_out: Arc<Dataset>,
}

/// A source of data with attributes.
#[derive(Clone, Debug)]
pub struct AttributeSource {
    /// The name in tables.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Given(AttributeSplit),
    /// `table[class]` says which attributes the samples of a class have.
    Derived {
        source: Source,
        table: Vec<Vec<bool>>,
    },
}

impl AttributeSource {
    /// Uses real attributes. The samples must not be standardised.
    pub fn given(name: &str, split: AttributeSplit) -> Self {
        Self { name: name.to_owned(), kind: Kind::Given(split) }
    }

    /// Derives attributes from the classes of another data set. For Caltech101 and digits, lists say which classes have
    /// which attributes. For other data, every class is an attribute.
    pub fn stand_in(source: Source, task: AttributeTask) -> Self {
        let classes: Vec<&str> = source.classes.iter().map(String::as_str).collect();
        let count = source.data.labels().class_count();
        let listed = |text: &str| -> Vec<Vec<bool>> {
            let name = |class: usize| classes.get(class).copied().unwrap_or_default();
            let row = |class| attributes(text).map(|(_, members)| members.contains(name(class))).collect();
            (0..count).map(row).collect()
        };
        let is_digits = source.name == DIGITS;
        let mut table = listed(match (task, is_digits) {
            (AttributeTask::Places | AttributeTask::Medical, true) => RARE_DIGITS,
            (AttributeTask::Places | AttributeTask::Medical, false) => SCREENS,
            (AttributeTask::Faces | AttributeTask::Videos, true) => OF_DIGITS,
            (AttributeTask::Faces | AttributeTask::Videos, false) => OF_OBJECTS,
        });
        // the lists do not know these classes, so the classes become the attributes
        let none = !table.iter().flatten().any(|&there| there);
        if none || task == AttributeTask::Videos {
            for (class, row) in table.iter_mut().enumerate() {
                if none {
                    row.clear();
                }
                row.extend((0..count).map(|other| other == class));
            }
        }
        Self { name: source.name.clone(), kind: Kind::Derived { source, table } }
    }

    /// Returns true if attributes are derived from classes.
    pub fn is_stand_in(&self) -> bool {
        matches!(self.kind, Kind::Derived { .. })
    }
}

impl DataSource for AttributeSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn described(&self) -> String {
        match &self.kind {
            Kind::Derived { source, .. } => source.described(),
            Kind::Given(AttributeSplit { initial, private, held_out }) => {
                let parts = [initial, private, held_out].map(|data| fingerprint(data));
                format!("{}, {}", self.name, parts.join(", "))
            }
        }
    }

    fn scenario(&self, settings: &Settings, split: Split, seed: u64) -> Result<Scenario, Error> {
        let (source, table) = match &self.kind {
            Kind::Given(parts) => return given(parts, split, seed),
            Kind::Derived { source, table } => (source, table),
        };
        let scenario = source.scenario(settings, split, seed)?;
        let relabel = |data: Dataset| -> Result<Dataset, Error> {
            let classes = data.labels().as_classes("derived attributes")?;
            let present = classes.iter().flat_map(|&class| &table[class as usize]).copied().collect();
            let attributes = table.first().map_or(0, Vec::len);
            Ok(data.with_labels(Labels::attributes(attributes, present)?)?)
        };
        Ok(Scenario {
            initial: relabel(scenario.initial)?,
            users: scenario.users.into_iter().map(relabel).collect::<Result<_, _>>()?,
            held_out: relabel(scenario.held_out)?,
            pooled: relabel(scenario.pooled)?,
            ..scenario
        })
    }
}

fn given(parts: &AttributeSplit, split: Split, seed: u64) -> Result<Scenario, Error> {
    let AttributeSplit { initial, private, held_out } = parts;
    let standardizer = Standardizer::fit(initial.features());
    let all: Vec<usize> = (0..private.len()).collect();
    let shares = deal(private.labels(), &all, split.users, split.dealing, &Seed::new(seed))?;
    Ok(Scenario {
        held_out_samples: (0..held_out.len()).collect(),
        users: shares
            .iter()
            .map(|share| private.select(share)?.standardized(&standardizer))
            .collect::<Result<_, _>>()?,
        pooled: crate::methods::join(initial, private)?.standardized(&standardizer)?,
        held_out: Dataset::clone(held_out).standardized(&standardizer)?,
        initial: Dataset::clone(initial).standardized(&standardizer)?,
        standardizer,
        shares,
    })
}

/// Attributes of digits, and the digits that have them.
const OF_DIGITS: &str = "\
even: 0 2 4 6 8
five or more: 5 6 7 8 9
prime: 2 3 5 7
has a loop: 0 4 6 8 9
divisible by three: 0 3 6 9
square: 0 1 4 9
straight lines alone: 1 4 7
power of two: 1 2 4 8";

/// A rare attribute to detect among digits.
const RARE_DIGITS: &str = "zero: 0";

/// A sensitive attribute to detect among the categories of Caltech101.
const SCREENS: &str = "screen: laptop cellphone";

/// Twenty attributes of the categories of Caltech101, by their usual meaning.
const OF_OBJECTS: &str = include_str!("caltech101_attributes.txt");

/// Reads attributes, one per line, with the names of the classes that have them.
fn attributes(text: &str) -> impl Iterator<Item = (&str, BTreeSet<&str>)> {
    text.lines().filter_map(|line| {
        let (name, members) = line.split_once(": ")?;
        Some((name, members.split(' ').collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_distinct_and_respect_inclusions() {
        for (text, count) in [(OF_OBJECTS, 20), (OF_DIGITS, 8), (SCREENS, 1), (RARE_DIGITS, 1)] {
            let sets: BTreeSet<_> = attributes(text).map(|(_, members)| members).collect();
            assert_eq!(sets.len(), count);
            // no class is listed twice
            let listed: usize =
                text.lines().map(|line| line.rsplit(": ").next().unwrap().split(' ').count()).sum();
            assert_eq!(listed, sets.iter().map(BTreeSet::len).sum::<usize>());
        }
        let members = |wanted| attributes(OF_OBJECTS).find(|(name, _)| *name == wanted).unwrap().1;
        for (part, whole) in
            [("mammal", "animal"), ("bird", "animal"), ("ship", "vehicle"), ("flower", "plant")]
        {
            assert!(members(part).is_subset(&members(whole)), "{part}");
        }
    }
}
