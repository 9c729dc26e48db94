//! Uploads that come in pieces: a file each until they are whole, so that a lost connection or a restart costs only what
//! was under way. Nothing here is promised to anybody; the promise is the acknowledgement.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dphe::{Round, UserId};
use tokio::sync::Mutex as AsyncMutex;

pub(super) use crate::store::Piece;
use crate::store::postgres::Tally;

/// Where pieces are until an upload is whole: files, or rows that replicas share.
#[derive(Clone)]
pub(super) enum Pieces {
    Files(Uploads),
    Rows(Box<Tally>),
}

impl Pieces {
    /// How much of an upload is here.
    pub(super) async fn offset(&self, round: Round, user: UserId) -> std::io::Result<u64> {
        match self {
            Self::Files(files) => files.offset(round, user).await,
            Self::Rows(tally) => tally.offset(round, user).await.map_err(std::io::Error::other),
        }
    }

    /// Takes the piece that begins at `offset` of an upload of `total` bytes.
    pub(super) async fn put(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        piece: bytes::Bytes,
    ) -> std::io::Result<Piece> {
        match self {
            Self::Files(files) => files.put(round, user, offset, total, piece).await,
            Self::Rows(tally) => {
                tally.put_piece(round, user, offset, total, piece).await.map_err(std::io::Error::other)
            }
        }
    }
}

#[derive(Clone)]
pub(super) struct Uploads {
    folder: PathBuf,
    /// One piece of a user's at a time; users who share a turn wait for each other.
    turns: Arc<[Arc<AsyncMutex<()>>]>,
}

/// Enough that those who share one hardly ever meet; one for each user would stay for ever.
const TURNS: usize = 64;

impl Uploads {
    pub(super) fn new(data: &Path) -> std::io::Result<Self> {
        let folder = data.join("uploads");
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, turns: (0..TURNS).map(|_| Arc::default()).collect() })
    }

    fn path(&self, round: Round, user: UserId) -> PathBuf {
        self.folder.join(format!("{round}-{user}.part"))
    }

    /// How much of an upload is here.
    pub(super) async fn offset(&self, round: Round, user: UserId) -> std::io::Result<u64> {
        let path = self.path(round, user);
        blocking(move || length(&path)).await
    }

    /// Takes the piece that begins at `offset` of an upload of `total` bytes.
    pub(super) async fn put(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        piece: bytes::Bytes,
    ) -> std::io::Result<Piece> {
        let turn = self.turns[user.get() as usize % TURNS].clone().lock_owned().await;
        let path = self.path(round, user);
        blocking(move || {
            // held to the end, also when whoever asked has hung up
            let _turn = turn;
            let here = length(&path)?;
            if here > total {
                // another upload than the one that was begun
                std::fs::remove_file(&path)?;
                return Ok(Piece::Misplaced(0));
            }
            if offset != here {
                return Ok(Piece::Misplaced(here));
            }
            if offset == 0 && piece.len() as u64 == total {
                return Ok(Piece::Whole(piece));
            }
            let mut options = File::options();
            options.create(true).append(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.open(&path)?.write_all(&piece)?;
            let here = here + piece.len() as u64;
            if here < total {
                return Ok(Piece::Stored(here));
            }
            let mut whole = Vec::with_capacity(total as usize);
            File::open(&path)?.take(total).read_to_end(&mut whole)?;
            std::fs::remove_file(&path)?;
            Ok(Piece::Whole(whole.into()))
        })
        .await
    }

    /// Forgets the pieces of all other rounds.
    pub(super) async fn keep_only(&self, round: Round) -> std::io::Result<()> {
        let (folder, prefix) = (self.folder.clone(), format!("{round}-"));
        blocking(move || {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                if !entry.file_name().to_string_lossy().starts_with(&prefix) {
                    std::fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        })
        .await
    }
}

fn length(path: &Path) -> std::io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<R> + Send + 'static,
) -> std::io::Result<R> {
    tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
}
