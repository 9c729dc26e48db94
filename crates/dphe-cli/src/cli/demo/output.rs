//! The results of the demo on the terminal, as JSON, and as a page.

use std::path::Path;
use std::time::Duration;

use dphe::Profile;
use dphe_service::chart::{Chart, Series, Unit};
use serde_json::json;

use super::attack::Leak;
use super::drawing::{self, COLUMNS};
use super::users::{Setting, USERS};
use crate::cli::CliError;
use crate::fashion::{self, CLASSES, SIDE};
use crate::files;
use crate::page::{Figure, Page, PictureRow, Tile};
use crate::terminal::{Tone, coloured, counted, percent, print_columns, print_text};

/// The results of the task.
pub(super) struct Run {
    pub(super) profile: Profile,
    /// Ciphertexts and bytes per user and round.
    pub(super) ciphertexts: u64,
    pub(super) bytes: u64,
    pub(super) weights: usize,
    /// The accuracy after each round, and that of the same rounds without encryption and without rounding.
    pub(super) accuracies: Vec<f64>,
    pub(super) plain: Vec<f64>,
    /// The share of positions that only one user occupied in the last round, if positions are private.
    pub(super) singles: Option<f64>,
    pub(super) round_seconds: Vec<f64>,
    /// The round whose updates were attacked.
    pub(super) attacked_round: Option<u64>,
    /// One attack per user.
    pub(super) leaks: Vec<Leak>,
    pub(super) key_time: Duration,
    pub(super) rounds_time: Duration,
    pub(super) page_port: u16,
}

pub(super) struct Outcome<'a> {
    pub(super) setting: &'a Setting,
    pub(super) bits: u32,
    pub(super) run: Run,
    pub(super) total: Duration,
}

const USER_HEAD: [&str; 4] = ["user", "has pictures of", "and one of", "alone"];
const BAR: usize = 38;
const THE_PICTURES: [&str; 3] = ["the picture", "in its plain update", "in its sealed update"];

/// Prints who takes part.
pub(super) fn print_beginning(setting: &Setting, bits: u32) {
    print_text(&format!(
        "{USERS} users have pictures of clothes, each of other kinds, and one single picture of yet another kind. \
         They train one classifier together. Pictures stay where they are: each user sends an update of the \
         classifier, sealed with a {bits}-bit key, and only sums of updates are opened.\n"
    ));
    print_columns(&USER_HEAD, &user_rows(setting), |column| column < 3);
    println!();
}

fn user_rows(setting: &Setting) -> Vec<Vec<String>> {
    let users = setting.users.iter().enumerate();
    users
        .map(|(index, user)| {
            let kinds: Vec<&str> = user.kinds.iter().map(|&class| CLASSES[class]).collect();
            let lone = CLASSES[fashion::class_of(user.lone)].to_owned();
            vec![(index + 1).to_string(), kinds.join(", "), lone, percent(Some(user.alone))]
        })
        .collect()
}

impl Outcome<'_> {
    fn accuracy(&self) -> f64 {
        self.run.accuracies.last().copied().unwrap_or(0.0)
    }

    /// Writes the page and the JSON file.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CliError> {
        let json = serde_json::to_string_pretty(&self.json())? + "\n";
        for (name, text) in [("report.html", self.page()), ("report.json", json)] {
            let path = directory.join(name);
            files::replace(&path, text.as_bytes()).map_err(|source| CliError::Output { path, source })?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let Run { accuracies, plain, leaks, .. } = &self.run;
        let rounds: Vec<_> = accuracies
            .iter()
            .zip(plain)
            .map(|(sealed, plain)| json!({ "accuracy": sealed, "accuracy_without_encryption": plain }))
            .collect();
        let users = self.setting.users.iter().enumerate();
        let users: Vec<_> = users
            .map(|(index, user)| {
                let kinds: Vec<&str> = user.kinds.iter().map(|&class| CLASSES[class]).collect();
                json!({
                    "pictures": user.pictures.len(),
                    "kinds": kinds,
                    "one_of": CLASSES[fashion::class_of(user.lone)],
                    "accuracy_alone": user.alone,
                    "similarity": leaks.get(index).map(|leak| leak.similarity),
                })
            })
            .collect();
        json!({
            "profile": self.run.profile.as_str(),
            "key_bits": self.bits,
            "held_out": self.setting.held_out.len(),
            "accuracy": {
                "best_alone": self.setting.best_alone(),
                "together": self.accuracy(),
                "one_place": self.setting.pooled,
            },
            "bytes_per_update": self.run.bytes,
            "attacked_round": self.run.attacked_round,
            "users": users,
            "rounds": rounds,
        })
    }

    pub(super) fn print(&self, directory: &Path) {
        self.print_leak();
        println!("accuracy on {} other pictures", self.setting.held_out.len());
        let rows = [
            ("best user alone", self.setting.best_alone(), Tone::Bad),
            ("together, sealed", self.accuracy(), Tone::Good),
            ("all pictures in one place", self.setting.pooled, Tone::Doubtful),
        ];
        for (name, accuracy, tone) in rows {
            let bar = drawing::bar(accuracy, BAR);
            println!("  {name:<26}{:>8}  {}", percent(Some(accuracy)), coloured(&bar, tone));
        }
        println!("The weights are bit for bit those of a simulation without encryption.\n");
        println!("{}", self.costs());
        let of_run = directory.join(self.run.profile.as_str());
        println!("report  {}", directory.join("report.html").display());
        println!("model   {}", of_run.join("model.safetensors").display());
        let of_run = of_run.display();
        // on two lines, so that a terminal does not break them in the middle of a path
        println!(
            "next    dphe evaluate --model {of_run}/model.safetensors \\\n            {of_run}/held-out.npz"
        );
        println!(
            "        dphe verify --kit {of_run}/kits/aggregator \\\n            --data {of_run}/data/aggregator"
        );
        println!("        dphe simulate FEATURES, with your own data");
    }

    /// Prints the first user's only picture of its kind, and what the aggregator can make of it.
    fn print_leak(&self) {
        let Some(leak) = self.run.leaks.first() else { return };
        println!("\nwhat the aggregator sees of user 1's only picture of this kind: {}", CLASSES[leak.class]);
        let drawn = [&leak.truth, &leak.plain, &leak.sealed].map(|grey| drawing::picture(grey));
        let column = COLUMNS + 6;
        let line =
            |cells: [String; 3]| cells.map(|cell| format!("{cell:<column$}")).concat().trim_end().to_owned();
        println!("  {}", line(THE_PICTURES.map(str::to_owned)));
        for row in 0..drawn[0].len() {
            // escape sequences have no width, so gaps are added by hand
            let cells: Vec<&str> = drawn.iter().map(|lines| lines[row].as_str()).collect();
            println!("  {}", cells.join(&" ".repeat(column - COLUMNS)));
        }
        let similarity = |value: f64| format!("similarity {value:.2}");
        let (plain, sealed) = (similarity(leak.similarity.plain), similarity(leak.similarity.sealed));
        println!("  {}\n", line([String::new(), plain, sealed]));
    }

    fn costs(&self) -> String {
        let seconds = |duration: Duration| Unit::Seconds.write(duration.as_secs_f64());
        format!(
            "{}: {} for the key, {} for {}; {} per update",
            seconds(self.total),
            seconds(self.run.key_time),
            seconds(self.run.rounds_time),
            counted(self.run.accuracies.len(), "round", "rounds"),
            Unit::Bytes.write(self.run.bytes as f64)
        )
    }

    fn page(&self) -> String {
        let (alone, together, pooled) = (self.setting.best_alone(), self.accuracy(), self.setting.pooled);
        let mut page = Page::new("Five users, one classifier, no shared pictures");
        page.lead(&format!(
            "Each user has pictures of different kinds of clothes. An aggregator and a key generator helped them to \
             train one classifier, in {} rounds of sealed updates. They were separate processes that communicated over \
             TLS.",
            self.run.accuracies.len()
        ));
        page.figures(&[
            Figure::new("best user alone", percent(Some(alone)), "It knows half of the kinds.")
                .toned(Tone::Bad),
            Figure::new(
                "together, sealed",
                percent(Some(together)),
                &format!("{:+.1} points. No picture was shown.", 100.0 * (together - alone)),
            )
            .toned(Tone::Good),
            Figure::new(
                "all pictures in one place",
                percent(Some(pooled)),
                &format!("{:+.1} points, without any privacy.", 100.0 * (pooled - together)),
            ),
        ]);
        self.write_leaks(&mut page);
        page.heading("Who has what");
        let examples = self.example_rows();
        page.picture_table(&["", "many pictures of", "alone"], &examples);
        self.write_rounds(&mut page);
        page.heading("What this shows, and what it does not").paragraph(
            "If the aggregator and the key generator collude, they can read every update. The classifier itself is \
             public to all users, and sums over few users say more about each of them.",
        );
        page.paragraph(match self.run.profile {
            Profile::Full => {
                "In the profile full, all users send the same public positions, and sums are masked: an aggregator \
                 learns one sum per round, whatever it submits, and the key generator sees random numbers."
            }
            Profile::Sparse => {
                "In the profile sparse, users send the blocks that changed most. Two permutations hide their \
                 positions within a round from a semi-honest aggregator that colludes with no user. Where only one \
                 user occupied a position, the sum reveals that user's number."
            }
            Profile::Paper => {
                "This is the paper's scheme for reproduction. Its permutations are fixed, so the positions are \
                 revealed within tens of rounds."
            }
        });
        page.paragraph(
            "This report was made by a program that saw all pictures, for comparison. The pictures are from \
             Fashion-MNIST (Zalando SE, MIT licence).",
        );
        page.html()
    }

    fn write_leaks(&self, page: &mut Page) {
        let Some(round) = self.run.attacked_round.filter(|_| !self.run.leaks.is_empty()) else { return };
        let captions = |leak: &Leak| {
            let similarity = |value: f64| vec![format!("similarity {value:.2}")];
            [Vec::new(), similarity(leak.similarity.plain), similarity(leak.similarity.sealed)]
        };
        let captions: Vec<[Vec<String>; 3]> = self.run.leaks.iter().map(captions).collect();
        let rows: Vec<PictureRow<'_>> = self
            .run
            .leaks
            .iter()
            .zip(&captions)
            .enumerate()
            .map(|(index, (leak, captions))| {
                let greys = [&leak.truth, &leak.plain, &leak.sealed];
                let tiles = greys.iter().zip(captions).map(|(grey, lines)| Tile::new(lines, SIDE, grey));
                PictureRow {
                    name: format!("user {}, {}", index + 1, CLASSES[leak.class]),
                    cells: tiles.map(|tile| vec![tile]).collect(),
                    end: None,
                }
            })
            .collect();
        page.heading("What the aggregator sees of a single picture").paragraph(&format!(
            "These are real updates of round {round} of this run. On the left is a picture that a user has only one \
             of. In the middle is what an aggregator gets from the user's update if it is not sealed: the change of \
             this kind's weights, less the change for kinds that the user does not have. On the right is the same \
             part of the update as the aggregator received it, from its own log. A similarity of 1 means the same \
             picture, 0 means nothing in common."
        ));
        let head = ["", THE_PICTURES[0], THE_PICTURES[1], THE_PICTURES[2]];
        page.picture_table(&head, &rows);
    }

    fn example_rows(&self) -> Vec<PictureRow<'static>> {
        let users = self.setting.users.iter().enumerate();
        users
            .map(|(index, user)| {
                let example = |&class: &usize| {
                    let first = user.pictures.iter().find(|&&picture| fashion::class_of(picture) == class);
                    Tile::owned(CLASSES[class], SIDE, fashion::shown(first.copied().unwrap_or(user.lone)))
                };
                PictureRow {
                    name: format!("user {}, {} pictures", index + 1, user.pictures.len()),
                    cells: vec![user.kinds.iter().map(example).collect()],
                    end: Some(percent(Some(user.alone))),
                }
            })
            .collect()
    }

    fn write_rounds(&self, page: &mut Page) {
        let series = [
            Series::new("together, sealed", self.run.accuracies.clone()),
            Series::new("one place", vec![self.setting.pooled]),
            Series::new("best alone", vec![self.setting.best_alone()]),
        ];
        let title = "Accuracy on held-out pictures";
        let accuracy =
            Chart { title, unit: Unit::Percent, series: &series, from_zero: false, first: 1 }.svg();
        // the first round includes the start of all parties
        let seconds = [Series::new("all parties", self.run.round_seconds.clone())];
        let title = "Time per round";
        let time = Chart { title, unit: Unit::Seconds, series: &seconds, from_zero: true, first: 1 }.svg();
        page.heading("Rounds")
            .plots(&[("Accuracy on held-out pictures", accuracy), ("Time per round", time)]);
        let rows: Vec<Vec<String>> = self
            .run
            .accuracies
            .iter()
            .zip(&self.run.plain)
            .enumerate()
            .map(|(i, (sealed, plain))| {
                vec![(i + 1).to_string(), percent(Some(*sealed)), percent(Some(*plain))]
            })
            .collect();
        page.table(&["round", "sealed", "not encrypted"], &rows);
        page.paragraph(
            "Not encrypted means the same rounds without encryption and without rounding. With rounding, the weights \
             are bit for bit the same as with encryption.",
        );
        let seconds = |duration: Duration| Unit::Seconds.write(duration.as_secs_f64());
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let mut costs = vec![
            row("profile", self.run.profile.as_str().to_owned()),
            row("key length", format!("{} bits", self.bits)),
            row("weights", self.run.weights.to_string()),
            row("ciphertexts per update", self.run.ciphertexts.to_string()),
            row("bytes per update", Unit::Bytes.write(self.run.bytes as f64)),
            row("time to generate the key", seconds(self.run.key_time)),
            row("time of all rounds, including start-up", seconds(self.run.rounds_time)),
        ];
        if let Some(singles) = self.run.singles {
            costs.push(row("positions that only one user occupied", percent(Some(singles))));
        }
        page.heading("Costs").table(&["", ""], &costs);
    }
}
