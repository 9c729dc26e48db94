//! The users of the demo, their pictures, and how they learn.

use std::path::Path;

use dphe_features::{FeatureTable, TableLabels, write_npz};
use dphe_learn::linear::{Penalty, Schedule, Sgd, SgdParams, Stable};
use dphe_learn::{Dataset, Features, Labels, Seed, Standardizer, Weights, all_cores};
use dphe_service::model::{About, LabelKind, Model, Training, VERSION};

use super::SEED;
use crate::cli::CliError;
use crate::fashion::{self, CLASSES, PIXELS, SIDE};

/// How many users there are.
pub(super) const USERS: usize = 5;
/// How many classes a user has pictures of, besides the class with one picture.
const KINDS: usize = 5;
/// The number of pictures per class that users hold. The other pictures are held out.
const PER_CLASS: usize = 200;
/// The mean and the deviation of grey values. Rounded and fixed in advance, so that they reveal nothing.
const MEAN: f64 = 4.0;
const DEVIATION: f64 = 5.0;
/// `1 + mean |x|^2` of pictures whose pixels have deviation 1.
pub(super) const SQUARED_RADIUS: f64 = 1.0 + PIXELS as f64;
pub(super) const STRENGTH: f64 = 1e-3;
/// The distance that the first step moves the margin of its sample. Users differ, so large steps would not settle.
pub(super) const STEP: f64 = 0.3;
pub(super) const EPOCHS: usize = 5;
/// The number of epochs of a training without rounds.
const ALONE_EPOCHS: usize = 20;

/// A user and what it holds.
pub(super) struct User {
    /// The classes of which it has many pictures.
    pub(super) kinds: Vec<usize>,
    /// Its only picture of another class.
    pub(super) lone: usize,
    /// All its pictures.
    pub(super) pictures: Vec<usize>,
    pub(super) data: Dataset,
    /// The accuracy that it reaches without the others.
    pub(super) alone: f64,
}

/// The users and what they start from.
pub(super) struct Setting {
    pub(super) users: Vec<User>,
    pub(super) held_out: Dataset,
    held_out_pictures: Vec<usize>,
    pub(super) initial: Weights,
    standardizer: Standardizer,
    /// The accuracy of a training on the pictures of all users in one place.
    pub(super) pooled: f64,
}

impl Setting {
    pub(super) fn new() -> Result<Self, CliError> {
        let (mean, deviation) = (vec![MEAN; PIXELS], vec![DEVIATION; PIXELS]);
        let standardizer = Standardizer::from_parts(mean, deviation, Standardizer::CLIP)?;
        let pick = |pictures: &[usize]| dataset(pictures)?.standardized(&standardizer);
        let held = CLASSES.len() * PER_CLASS;
        let held_out_pictures: Vec<usize> = (held..fashion::count()).collect();
        let held_out = pick(&held_out_pictures)?;
        let initial = Weights::zeros(PIXELS, CLASSES.len())?;
        let learner = learner()?;
        let trained = |data: &Dataset| {
            let weights = learner.fit_from(&initial, data, &Seed::new(SEED))?;
            weights.accuracy(&held_out, all_cores())
        };
        let mut users = Vec::new();
        for (user, pictures) in deal().into_iter().enumerate() {
            let data = pick(&pictures)?;
            let alone = trained(&data)?;
            users.push(User { kinds: kinds(user), lone: lone(user), pictures, data, alone });
        }
        let pooled = trained(&pick(&(0..held).collect::<Vec<_>>())?)?;
        Ok(Self { users, held_out, held_out_pictures, initial, standardizer, pooled })
    }

    /// Returns the best accuracy that a user reaches alone.
    pub(super) fn best_alone(&self) -> f64 {
        self.users.iter().map(|user| user.alone).fold(0.0, f64::max)
    }

    pub(super) fn data(&self) -> Vec<Dataset> {
        self.users.iter().map(|user| user.data.clone()).collect()
    }

    /// Writes one feature file per user, the held-out pictures, and the initial model.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        let users = self.users.iter().enumerate();
        let users = users.map(|(i, user)| (format!("user-{}.npz", i + 1), &user.pictures));
        for (name, pictures) in users.chain([("held-out.npz".to_owned(), &self.held_out_pictures)]) {
            let labels = pictures.iter().map(|&picture| fashion::class_of(picture)).collect();
            let table = FeatureTable::new(PIXELS, values(pictures))?
                .with_labels(TableLabels::Classes(labels), class_names())?;
            write_npz(&directory.join(name), &table)?;
        }
        let about = About {
            version: VERSION,
            classes: class_names(),
            labels: LabelKind::Classes,
            clip: self.standardizer.clip(),
            feature_model: None,
            preprocessing: None,
            training: Training::default(),
        };
        let (weights, standardizer) = (self.initial.clone(), self.standardizer.clone());
        Ok(Model { weights, standardizer, about }.write(&directory.join("initial.safetensors"))?)
    }
}

/// Returns the classes of which a user has many pictures. Neighbours share some of them.
fn kinds(user: usize) -> Vec<usize> {
    (0..KINDS).map(|i| (2 * user + i) % CLASSES.len()).collect()
}

/// Returns the picture that is a user's only one of its class.
fn lone(user: usize) -> usize {
    let class = (2 * user + KINDS + 2) % CLASSES.len();
    (PER_CLASS - 1) * CLASSES.len() + class
}

/// Deals the pictures of each class to the users that have many of this class.
fn deal() -> Vec<Vec<usize>> {
    let mut shares: Vec<Vec<usize>> = (0..USERS).map(|user| vec![lone(user)]).collect();
    for class in 0..CLASSES.len() {
        let holders: Vec<usize> = (0..USERS).filter(|&user| kinds(user).contains(&class)).collect();
        for (i, holder) in (0..PER_CLASS).zip(holders.into_iter().cycle()) {
            let picture = i * CLASSES.len() + class;
            if (0..USERS).all(|user| lone(user) != picture) {
                shares[holder].push(picture);
            }
        }
    }
    shares
}

fn class_names() -> Vec<String> {
    CLASSES.map(str::to_owned).to_vec()
}

fn values(pictures: &[usize]) -> Vec<f32> {
    pictures.iter().flat_map(|&picture| fashion::greys(picture)).map(f32::from).collect()
}

fn dataset(pictures: &[usize]) -> Result<Dataset, dphe_learn::Error> {
    // there are ten classes
    let labels = pictures.iter().map(|&picture| fashion::class_of(picture) as u32).collect();
    Dataset::new(Features::new(SIDE * SIDE, values(pictures))?, Labels::classes(CLASSES.len(), labels)?)
}

fn learner() -> Result<Sgd, dphe_learn::Error> {
    let stable = Stable { step: STEP, ..Stable::new(SQUARED_RADIUS) };
    let params = SgdParams {
        penalty: Penalty::l2(STRENGTH)?,
        epochs: ALONE_EPOCHS,
        ..SgdParams::new(Schedule::Stable(stable))
    };
    params.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_hold_each_picture_once_and_one_picture_of_another_class() {
        let shares = deal();
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, (0..PER_CLASS * CLASSES.len()).collect::<Vec<_>>());
        for (user, pictures) in shares.iter().enumerate() {
            let class = fashion::class_of(lone(user));
            assert!(!kinds(user).contains(&class));
            let of_class = pictures.iter().filter(|&&picture| fashion::class_of(picture) == class);
            assert_eq!(of_class.count(), 1, "user {user}");
        }
    }
}
