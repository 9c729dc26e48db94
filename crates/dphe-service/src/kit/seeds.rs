//! The file `seeds.bin` of a kit. Before the first start it holds the seeds. Then they move into the log of a store,
//! where old ones are forgotten round by round, and the file only says where they are.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{KitError, damaged, read_secret};
use crate::Error;
use crate::files;
use crate::hex;
use crate::store::StoreId;

/// The name of the file.
pub(super) const SEEDS: &str = "seeds.bin";
/// How a file with seeds begins (docs/protocol.md, section 13).
const MAGIC: &[u8] = b"DPHEKIT";

const COMMENT: &str = "# The seeds of this kit moved into a data directory or database when the party first started.\n\
                       # This file contains no secret.\n";

/// The content of the file.
pub(super) enum SeedsFile {
    /// The seeds, and other keys of the party.
    Here(Zeroizing<Vec<u8>>),
    /// The seeds have moved.
    Moved(MovedSeeds),
}

/// Where the seeds are.
pub(super) struct MovedSeeds {
    pub(super) store: StoreId,
    /// The encryption key in the kit of the aggregator or of a user, as bytes: reading it takes long.
    pub(super) encryption_key: Option<Vec<u8>>,
}

/// The file as written after the seeds have moved.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MovedFile {
    moved_to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encryption_key: Option<String>,
}

impl SeedsFile {
    /// Reads the file.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let bytes = read_secret(folder, SEEDS)?;
        if bytes.starts_with(MAGIC) {
            return Ok(Self::Here(bytes));
        }
        let damaged = || damaged(folder, SEEDS, "it holds neither seeds nor the note that they have moved");
        let text = core::str::from_utf8(&bytes).map_err(|_| damaged())?;
        let file: MovedFile = toml::from_str(text).map_err(|_| damaged())?;
        let encryption_key = match file.encryption_key {
            None => None,
            Some(digits) => Some(hex::decode_all(&digits).ok_or_else(damaged)?),
        };
        let store = StoreId::parse(&file.moved_to).ok_or_else(damaged)?;
        Ok(Self::Moved(MovedSeeds { store, encryption_key }))
    }
}

impl MovedSeeds {
    /// Replaces the seeds by a note that says where they are. The log with the seeds must be durable already. A crash
    /// leaves the old file or the new one.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Error> {
        let file = MovedFile {
            moved_to: self.store.to_string(),
            encryption_key: self.encryption_key.as_deref().map(hex::encode),
        };
        let text = toml::to_string(&file)
            .map_err(|_| Error::Unexpected { what: "the note about seeds cannot be written as TOML" })?;
        let text = format!("{COMMENT}{text}");
        replace_secret(&folder.join(SEEDS), text.as_bytes())
            .map_err(|source| KitError::ReadOnly { folder: folder.into(), source }.into())
    }
}

/// Replaces a secret file, and overwrites its old content as far as the file system allows.
fn replace_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut old = File::options().write(true).open(path)?;
    files::replace_private(path, bytes)?;
    let length = usize::try_from(old.metadata()?.len()).unwrap_or(0);
    old.write_all(&vec![0; length])?;
    old.sync_all()
}
