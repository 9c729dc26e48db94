//! What two members compare to see whether they were told the same: the key generator's log, the history and the model
//! of every round. Nothing in it is secret.

use std::collections::BTreeMap;
use std::path::Path;

use dphe::wire::Ending;
use dphe::{PartyId, Roster};
use serde::{Deserialize, Serialize};

use super::CheckedRound;
use crate::http::remote_text::clean;
use crate::party::party_name;
use crate::{Error, files, hex};

const FORMAT: u32 = 1;
/// The longest file that is read. It has room for the most rounds of a task.
const MAX_BYTES: u64 = 1 << 30;

/// What a member knows of the rounds of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    format: u32,
    /// The member.
    pub party: String,
    /// The id of the task.
    pub task: String,
    /// The hash of the roster.
    pub roster: String,
    /// The rounds, ascending.
    pub rounds: Vec<ExportedRound>,
}

/// A round in an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedRound {
    /// The number of the round.
    pub round: u64,
    /// How it ended, if it did. In the file, `open` stands for a round that has not ended.
    #[serde(with = "super::ending_or_open")]
    pub ending: Option<Ending>,
    /// What was signed.
    #[serde(flatten)]
    pub head: RoundHead,
}

/// The digests of a round that must be the same for all members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundHead {
    /// The hash of the ticket.
    pub ticket: String,
    /// The number of records of the key generator's log before the ticket.
    pub log_records: u64,
    /// The head of that log.
    pub log_head: String,
    /// The root of the tree of participants, if the round was published.
    pub users_root: Option<String>,
    /// The history of the task after the round, if the round has ended.
    pub history: Option<String>,
    /// The digest of the model after the round.
    pub model: String,
}

/// The result of comparing two exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// The other member.
    pub with: String,
    /// The number of rounds that both have, up to the first one that differs.
    pub agreed: u64,
    /// The first round that differs, and in what.
    pub differs: Option<(u64, Vec<&'static str>)>,
    /// The first round that only one of them has.
    pub only_one_has: Option<u64>,
}

impl Export {
    /// Collects what was verified.
    pub fn new(party: PartyId, roster: &Roster, rounds: &[CheckedRound]) -> Self {
        let exported = |checked: &CheckedRound| {
            let (round, ending) = (checked.round, checked.ending);
            checked.head.clone().map(|head| ExportedRound { round, ending, head })
        };
        Self {
            format: FORMAT,
            party: party_name(party),
            task: roster.task().id().to_string(),
            roster: hex::encode(roster.hash().as_bytes()),
            rounds: rounds.iter().filter_map(exported).collect(),
        }
    }

    /// Reads an export.
    ///
    /// # Errors
    /// If the file cannot be read or is not an export.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let error = |reason: String| Error::Data { file: path.display().to_string(), reason };
        let bytes = files::read_at_most(path, MAX_BYTES).map_err(|source| error(source.to_string()))?;
        let export: Self = serde_json::from_slice(&bytes)
            .map_err(|source| error(format!("the file is not an export of `dphe verify`: {source}")))?;
        match export.format {
            FORMAT => Ok(export),
            other => Err(error(format!("the export has format {other}; this program reads format {FORMAT}"))),
        }
    }

    /// Compares this export with that of another member.
    ///
    /// # Errors
    /// If they belong to tasks with different rosters.
    pub fn compare(&self, other: &Self) -> Result<Comparison, Error> {
        if (&self.task, &self.roster) != (&other.task, &other.roster) {
            let reason = "the export belongs to a task with another roster".into();
            return Err(Error::Data { file: clean(&other.party), reason });
        }
        let theirs: BTreeMap<u64, &ExportedRound> =
            other.rounds.iter().map(|round| (round.round, round)).collect();
        let mine: BTreeMap<u64, &ExportedRound> =
            self.rounds.iter().map(|round| (round.round, round)).collect();
        let both = mine.iter().filter_map(|(number, round)| Some((*number, *round, *theirs.get(number)?)));
        let differences: Vec<_> = both.clone().map(|(number, a, b)| (number, a.differences(b))).collect();
        let differs = differences.iter().find(|(_, fields)| !fields.is_empty()).cloned();
        let agreed = differences.iter().take_while(|(_, fields)| fields.is_empty()).count() as u64;
        let one = mine.keys().filter(|number| !theirs.contains_key(number));
        let other_one = theirs.keys().filter(|number| !mine.contains_key(number));
        let only_one_has = one.chain(other_one).min().copied();
        Ok(Comparison { with: clean(&other.party), agreed, differs, only_one_has })
    }
}

impl ExportedRound {
    /// Returns in what two members' views of a round differ. A round that is open for one of them has only begun.
    fn differences(&self, other: &Self) -> Vec<&'static str> {
        let (a, b) = (&self.head, &other.head);
        let begun = [
            (a.ticket == b.ticket, "ticket"),
            ((a.log_records, &a.log_head) == (b.log_records, &b.log_head), "log of the key generator"),
        ];
        let ended = [
            (self.ending == other.ending, "ending"),
            (a.users_root == b.users_root, "participants"),
            (a.history == b.history, "history"),
            (a.model == b.model, "model"),
        ];
        let open = self.ending.is_none() || other.ending.is_none();
        let compared = begun.into_iter().chain(ended.into_iter().filter(|_| !open));
        compared.filter(|(same, _)| !same).map(|(_, name)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(party: &str, rounds: u64) -> Export {
        let round = |round: u64| ExportedRound {
            round,
            ending: Some(Ending::Published),
            head: RoundHead {
                ticket: format!("t{round}"),
                log_records: 5 * round,
                log_head: format!("l{round}"),
                users_root: Some(format!("u{round}")),
                history: Some(format!("h{round}")),
                model: format!("m{round}"),
            },
        };
        let (task, roster) = ("01".into(), "02".into());
        Export {
            format: FORMAT,
            party: party.into(),
            task,
            roster,
            rounds: (1..=rounds).map(round).collect(),
        }
    }

    #[test]
    fn first_round_that_differs_is_named_with_what_differs() {
        let (mine, mut other) = (export("user-1", 4), export("user-2", 4));
        let same = mine.compare(&other).unwrap();
        assert_eq!((same.agreed, same.differs, same.only_one_has), (4, None, None));
        other.rounds[2].head.model = "another".into();
        other.rounds[2].head.history = Some("another".into());
        other.rounds[3].ending = Some(Ending::Aborted);
        let found = mine.compare(&other).unwrap();
        assert_eq!((found.agreed, found.differs), (2, Some((3, vec!["history", "model"]))));
        other.roster = "03".into();
        assert!(mine.compare(&other).is_err());
    }

    #[test]
    fn round_that_is_open_or_missing_for_one_member_does_not_differ() {
        let (mine, mut other) = (export("user-1", 4), export("user-2", 3));
        other.rounds[2].ending = None;
        other.rounds[2].head.history = None;
        other.rounds[2].head.model = "the one before".into();
        let found = mine.compare(&other).unwrap();
        assert_eq!((found.agreed, found.differs, found.only_one_has), (3, None, Some(4)));
        other.rounds[2].head.ticket = "another".into();
        assert_eq!(other.compare(&mine).unwrap().differs, Some((3, vec!["ticket"])));
    }

    #[test]
    fn file_is_read_as_it_was_written_and_others_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("export.json");
        let mine = export("user-1", 2);
        std::fs::write(&path, serde_json::to_vec(&mine).unwrap()).unwrap();
        assert_eq!(Export::read(&path).unwrap(), mine);
        let text = std::fs::read_to_string(&path).unwrap();
        for wrong in
            [text.replace("\"format\":1", "\"format\":2"), text.replace("ticket", "tikcet"), "{}".into()]
        {
            std::fs::write(&path, wrong).unwrap();
            assert!(Export::read(&path).is_err());
        }
        assert!(Export::read(&directory.path().join("missing")).is_err());
    }
}
