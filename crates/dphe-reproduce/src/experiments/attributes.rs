//! Data with attributes: given, or derived from classes where the paper's data are not there.

use std::sync::Arc;

use dphe_federate::Scenario;
use dphe_learn::dataset::{Dealing, deal};
use dphe_learn::{Dataset, Labels, Seed, Standardizer};

use super::{Settings, Source, Task};
use crate::Error;
use crate::experiment::fingerprint;

/// Data with attributes that come in parts.
#[derive(Clone, Debug)]
pub struct AttributeSplit {
    /// Public samples.
    pub initial: Arc<Dataset>,
    /// What users share out among themselves.
    pub private: Arc<Dataset>,
    /// What nobody learns from.
    pub held_out: Arc<Dataset>,
}

/// Where data with attributes come from.
#[derive(Clone, Debug)]
pub struct AttributeSource {
    /// Its name in tables.
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
    /// The real thing, not standardised.
    pub fn given(name: &str, split: AttributeSplit) -> Self {
        Self { name: name.to_owned(), kind: Kind::Given(split) }
    }

    /// Attributes of the classes of another data set: those of the tables below for Caltech101 and digits; for any
    /// other, the classes themselves.
    pub fn stand_in(source: Source, task: Task) -> Self {
        let classes: Vec<&str> = source.classes.iter().map(String::as_str).collect();
        let count = source.data.labels().class_count();
        let listed = |list: &[(&str, &[&str])]| -> Vec<Vec<bool>> {
            (0..count)
                .map(|class| {
                    let name = classes.get(class).copied().unwrap_or_default();
                    list.iter().map(|(_, members)| members.contains(&name)).collect()
                })
                .collect()
        };
        let is_digits = source.name == "digits";
        let attributes: &[(&str, &[&str])] = if is_digits { &OF_DIGITS } else { &OF_OBJECTS };
        let mut table = match task {
            Task::Faces | Task::Videos => listed(attributes),
            Task::Places => listed(if is_digits { &RARE_DIGITS } else { &SCREENS }),
        };
        // classes without these names have no attributes: take the classes
        let none = !table.iter().flatten().any(|&there| there);
        if none || task == Task::Videos {
            for (class, row) in table.iter_mut().enumerate() {
                if none {
                    row.clear();
                }
                row.extend((0..count).map(|other| other == class));
            }
        }
        Self { name: source.name.clone(), kind: Kind::Derived { source, table } }
    }

    /// Whether attributes are derived from classes.
    pub fn is_stand_in(&self) -> bool {
        matches!(self.kind, Kind::Derived { .. })
    }

    /// Deals the data out.
    /// Its name, and what is in it.
    pub(crate) fn described(&self) -> String {
        match &self.kind {
            Kind::Derived { source, .. } => source.described(),
            Kind::Given(AttributeSplit { initial, private, held_out }) => {
                let parts = [initial, private, held_out].map(|data| fingerprint(data));
                format!("{}, {}", self.name, parts.join(", "))
            }
        }
    }

    pub(crate) fn scenario(&self, settings: &Settings, seed: u64) -> Result<Scenario, Error> {
        match &self.kind {
            Kind::Given(split) => given(split, settings, seed),
            Kind::Derived { source, table } => {
                let scenario = source.scenario(settings, settings.users, Dealing::Disjoint, seed)?;
                let relabel = |data: &Dataset| -> Result<Dataset, Error> {
                    let classes = data.labels().as_classes("derived attributes")?;
                    let present = classes.iter().flat_map(|&class| &table[class as usize]).copied().collect();
                    let attributes = table.first().map_or(0, Vec::len);
                    Ok(Dataset::new(data.features().clone(), Labels::attributes(attributes, present)?)?)
                };
                Ok(Scenario {
                    initial: relabel(&scenario.initial)?,
                    users: scenario.users.iter().map(relabel).collect::<Result<_, _>>()?,
                    held_out: relabel(&scenario.held_out)?,
                    pooled: relabel(&scenario.pooled)?,
                    standardizer: scenario.standardizer,
                    shares: scenario.shares,
                    held_out_samples: scenario.held_out_samples,
                })
            }
        }
    }
}

fn given(split: &AttributeSplit, settings: &Settings, seed: u64) -> Result<Scenario, Error> {
    let AttributeSplit { initial, private, held_out } = split;
    let standardizer = Standardizer::fit(initial.features());
    let prepare = |data: &Dataset| data.with_features(standardizer.apply(data.features())?);
    let all: Vec<usize> = (0..private.len()).collect();
    let shares = deal(private.labels(), &all, settings.users, Dealing::Disjoint, &Seed::new(seed))?;
    let initial = prepare(initial)?;
    let private = prepare(private)?;
    Ok(Scenario {
        held_out_samples: (0..held_out.len()).collect(),
        users: shares.iter().map(|share| private.select(share)).collect::<Result<_, _>>()?,
        pooled: crate::methods::join(&initial, &private)?,
        held_out: prepare(held_out)?,
        initial,
        standardizer,
        shares,
    })
}

/// What digits are like.
const OF_DIGITS: [(&str, &[&str]); 8] = [
    ("even", &["0", "2", "4", "6", "8"]),
    ("five or more", &["5", "6", "7", "8", "9"]),
    ("prime", &["2", "3", "5", "7"]),
    ("has a loop", &["0", "4", "6", "8", "9"]),
    ("divisible by three", &["0", "3", "6", "9"]),
    ("square", &["0", "1", "4", "9"]),
    ("straight lines alone", &["1", "4", "7"]),
    ("power of two", &["1", "2", "4", "8"]),
];

/// Something rare to detect.
const RARE_DIGITS: [(&str, &[&str]); 1] = [("zero", &["0"])];

/// What must not be photographed by chance.
const SCREENS: [(&str, &[&str]); 1] = [("screen", &["laptop", "cellphone"])];

/// Twenty attributes of the categories of Caltech101, by their usual meaning.
const OF_OBJECTS: [(&str, &[&str]); 20] = [
    (
        "animal",
        &[
            "Leopards",
            "ant",
            "bass",
            "beaver",
            "brontosaurus",
            "butterfly",
            "cougar_body",
            "cougar_face",
            "crab",
            "crayfish",
            "crocodile",
            "crocodile_head",
            "dalmatian",
            "dolphin",
            "dragonfly",
            "elephant",
            "emu",
            "flamingo",
            "flamingo_head",
            "gerenuk",
            "hawksbill",
            "hedgehog",
            "ibis",
            "kangaroo",
            "llama",
            "lobster",
            "mayfly",
            "nautilus",
            "octopus",
            "okapi",
            "panda",
            "pigeon",
            "platypus",
            "rhino",
            "rooster",
            "scorpion",
            "sea_horse",
            "starfish",
            "stegosaurus",
            "tick",
            "trilobite",
            "wild_cat",
        ],
    ),
    (
        "mammal",
        &[
            "Leopards",
            "beaver",
            "cougar_body",
            "cougar_face",
            "dalmatian",
            "dolphin",
            "elephant",
            "gerenuk",
            "hedgehog",
            "kangaroo",
            "llama",
            "okapi",
            "panda",
            "platypus",
            "rhino",
            "wild_cat",
        ],
    ),
    ("bird", &["emu", "flamingo", "flamingo_head", "ibis", "pigeon", "rooster"]),
    (
        "insect, spider or crustacean",
        &[
            "ant",
            "butterfly",
            "crab",
            "crayfish",
            "dragonfly",
            "lobster",
            "mayfly",
            "scorpion",
            "tick",
            "trilobite",
        ],
    ),
    (
        "lives in water",
        &[
            "bass",
            "beaver",
            "crab",
            "crayfish",
            "crocodile",
            "crocodile_head",
            "dolphin",
            "hawksbill",
            "lobster",
            "lotus",
            "nautilus",
            "octopus",
            "platypus",
            "sea_horse",
            "starfish",
            "trilobite",
            "water_lilly",
        ],
    ),
    ("extinct", &["brontosaurus", "stegosaurus", "trilobite"]),
    ("reptile or dinosaur", &["brontosaurus", "crocodile", "crocodile_head", "hawksbill", "stegosaurus"]),
    ("cat", &["Leopards", "cougar_body", "cougar_face", "garfield", "wild_cat"]),
    ("plant", &["bonsai", "joshua_tree", "lotus", "strawberry", "sunflower", "water_lilly"]),
    ("flower", &["lotus", "sunflower", "water_lilly"]),
    ("can be eaten", &["bass", "crab", "crayfish", "lobster", "pizza", "rooster", "strawberry"]),
    (
        "vehicle",
        &[
            "Motorbikes",
            "airplanes",
            "car_side",
            "ferry",
            "helicopter",
            "inline_skate",
            "ketch",
            "schooner",
            "wheelchair",
        ],
    ),
    ("ship", &["ferry", "ketch", "schooner"]),
    (
        "flies",
        &[
            "airplanes",
            "butterfly",
            "dragonfly",
            "flamingo",
            "flamingo_head",
            "helicopter",
            "ibis",
            "mayfly",
            "pigeon",
        ],
    ),
    (
        "musical instrument",
        &["accordion", "electric_guitar", "euphonium", "grand_piano", "mandolin", "saxophone"],
    ),
    (
        "electric",
        &[
            "camera",
            "ceiling_fan",
            "cellphone",
            "chandelier",
            "electric_guitar",
            "headphone",
            "lamp",
            "laptop",
            "watch",
        ],
    ),
    ("furniture or lighting", &["ceiling_fan", "chair", "chandelier", "lamp", "menorah", "windsor_chair"]),
    ("building", &["minaret", "pagoda", "pyramid"]),
    ("face or head", &["Faces", "Faces_easy", "buddha", "cougar_face", "crocodile_head", "flamingo_head"]),
    (
        "fits a hand",
        &[
            "binocular",
            "camera",
            "cellphone",
            "cup",
            "dollar_bill",
            "ewer",
            "headphone",
            "metronome",
            "revolver",
            "scissors",
            "stapler",
            "strawberry",
            "umbrella",
            "watch",
            "wrench",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_of_known_categories_and_no_two_are_the_same() {
        for list in [&OF_OBJECTS[..], &OF_DIGITS, &SCREENS, &RARE_DIGITS] {
            for (name, members) in list {
                let mut unique = members.to_vec();
                unique.sort_unstable();
                unique.dedup();
                assert_eq!(unique.len(), members.len(), "{name}");
                assert_eq!(list.iter().filter(|(_, other)| other == members).count(), 1, "{name}");
            }
        }
        // what flies and is an animal with wings of its own is no vehicle
        let members = |wanted: &str| OF_OBJECTS.iter().find(|(name, _)| *name == wanted).unwrap().1;
        assert!(members("mammal").iter().all(|name| members("animal").contains(name)));
        assert!(members("bird").iter().all(|name| members("animal").contains(name)));
        assert!(members("ship").iter().all(|name| members("vehicle").contains(name)));
        assert!(members("flower").iter().all(|name| members("plant").contains(name)));
    }
}
