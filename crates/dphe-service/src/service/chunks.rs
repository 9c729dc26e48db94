//! Uploads that arrive in chunks. Incomplete uploads are stored, so that a lost connection or a restart costs only the
//! chunk that was in flight. Stored chunks are not a commitment; only the acknowledgement of an upload is.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dphe::{Round, UserId};
use tokio::sync::Mutex as AsyncMutex;

pub(super) use crate::store::ChunkOutcome;
#[cfg(feature = "postgres")]
use crate::store::postgres::RoundStore;

/// The storage of incomplete uploads: files, or database rows that replicas share.
#[derive(Clone)]
pub(super) enum UploadChunks {
    Files(ChunkFiles),
    #[cfg(feature = "postgres")]
    Database(Box<RoundStore>),
}

impl UploadChunks {
    /// Returns whether replicas share the chunks.
    pub(super) fn are_shared(&self) -> bool {
        match self {
            Self::Files(_) => false,
            #[cfg(feature = "postgres")]
            Self::Database(_) => true,
        }
    }

    /// Returns the number of bytes of an upload that are stored.
    pub(super) async fn offset(&self, round: Round, user: UserId) -> std::io::Result<u64> {
        match self {
            Self::Files(files) => files.offset(round, user).await,
            #[cfg(feature = "postgres")]
            Self::Database(round_store) => {
                round_store.offset(round, user).await.map_err(std::io::Error::other)
            }
        }
    }

    /// Stores the chunk at `offset` of an upload of `total` bytes.
    pub(super) async fn put(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        chunk: bytes::Bytes,
    ) -> std::io::Result<ChunkOutcome> {
        match self {
            Self::Files(files) => files.put(round, user, offset, total, chunk).await,
            #[cfg(feature = "postgres")]
            Self::Database(round_store) => {
                round_store.put_chunk(round, user, offset, total, chunk).await.map_err(std::io::Error::other)
            }
        }
    }
}

#[derive(Clone)]
pub(super) struct ChunkFiles {
    directory: PathBuf,
    /// Striped locks: chunks of one user are stored one after the other.
    locks: Arc<[Arc<AsyncMutex<()>>]>,
}

/// The number of striped locks. A lock per user would never be freed.
const LOCK_STRIPES: usize = 64;

impl ChunkFiles {
    pub(super) fn new(data: &Path) -> std::io::Result<Self> {
        let directory = data.join("uploads");
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory, locks: (0..LOCK_STRIPES).map(|_| Arc::default()).collect() })
    }

    fn path(&self, round: Round, user: UserId) -> PathBuf {
        self.directory.join(format!("{round}-{user}.part"))
    }

    /// Returns the number of bytes of an upload that are stored.
    pub(super) async fn offset(&self, round: Round, user: UserId) -> std::io::Result<u64> {
        let path = self.path(round, user);
        blocking(move || length(&path)).await
    }

    /// Stores the chunk at `offset` of an upload of `total` bytes.
    pub(super) async fn put(
        &self,
        round: Round,
        user: UserId,
        offset: u64,
        total: u64,
        chunk: bytes::Bytes,
    ) -> std::io::Result<ChunkOutcome> {
        let lock = self.locks[user.get() as usize % LOCK_STRIPES].clone().lock_owned().await;
        let path = self.path(round, user);
        blocking(move || {
            // held until the write is complete, even if the request is cancelled
            let _lock = lock;
            let here = length(&path)?;
            if here > total {
                // the stored chunks belong to another upload
                std::fs::remove_file(&path)?;
                return Ok(ChunkOutcome::WrongOffset(0));
            }
            if offset != here {
                return Ok(ChunkOutcome::WrongOffset(here));
            }
            if offset == 0 && chunk.len() as u64 == total {
                return Ok(ChunkOutcome::Complete(chunk));
            }
            let mut options = File::options();
            options.create(true).append(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            options.open(&path)?.write_all(&chunk)?;
            let here = here + chunk.len() as u64;
            if here < total {
                return Ok(ChunkOutcome::Stored(here));
            }
            let mut whole = Vec::with_capacity(total as usize);
            File::open(&path)?.take(total).read_to_end(&mut whole)?;
            std::fs::remove_file(&path)?;
            Ok(ChunkOutcome::Complete(whole.into()))
        })
        .await
    }

    /// Deletes the chunks of all other rounds.
    pub(super) async fn keep_only(&self, round: Round) -> std::io::Result<()> {
        let (directory, prefix) = (self.directory.clone(), format!("{round}-"));
        blocking(move || {
            for entry in std::fs::read_dir(directory)? {
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
