//! Where an aggregator stores its state.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;

use crate::cli::CliError;

/// The environment variable that holds the database URL, so that a password need not appear on the command line.
pub(crate) const DATABASE_VARIABLE: &str = "DPHE_DATABASE";

/// The error of a build that cannot use a database.
pub(crate) const NO_DATABASE: CliError =
    CliError::MissingFeature { what: "use a PostgreSQL database", feature: "postgres" };

#[derive(Args)]
pub(crate) struct StorageArgs {
    /// The data directory, which only one process can use at a time
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The PostgreSQL database that several aggregators share, instead of a data directory [env: DPHE_DATABASE]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    database: Option<String>,
}

/// The storage of a party.
pub(crate) enum Storage {
    Directory(PathBuf),
    Database(String),
}

impl StorageArgs {
    /// Returns the storage, or exits with a usage error if no option names one.
    ///
    /// # Errors
    /// If it is a database and this build cannot use one.
    pub(crate) fn storage(&self) -> Result<Storage, CliError> {
        match self.named() {
            Storage::Database(_) if !cfg!(feature = "postgres") => Err(NO_DATABASE),
            storage => Ok(storage),
        }
    }

    /// Returns whether neither an option nor the environment names a storage.
    pub(crate) fn is_absent(&self) -> bool {
        let variable = std::env::var(DATABASE_VARIABLE).is_ok_and(|url| !url.is_empty());
        self.data.is_none() && self.database.is_none() && !variable
    }

    fn named(&self) -> Storage {
        match (&self.data, &self.database) {
            (Some(directory), _) => Storage::Directory(directory.clone()),
            (None, Some(url)) => Storage::Database(url.clone()),
            (None, None) => match std::env::var(DATABASE_VARIABLE) {
                Ok(url) if !url.is_empty() => Storage::Database(url),
                _ => {
                    let what = format!("--data DIR, --database URL or {DATABASE_VARIABLE} is required\n");
                    clap::Error::raw(ErrorKind::MissingRequiredArgument, what).exit()
                }
            },
        }
    }
}
