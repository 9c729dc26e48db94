//! Where an aggregator stores its state.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;
#[cfg(feature = "postgres")]
use dphe_service::store::postgres::PgAddress;

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
    /// Accept a database connection on which others on the network could read seeds and sums
    #[arg(long)]
    insecure_database: bool,
}

/// The storage of a party.
pub(crate) enum Storage {
    Directory(PathBuf),
    Database(Database),
}

/// A database, and whether the connection to it may be readable for others.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) insecure: bool,
}

#[cfg(feature = "postgres")]
impl Database {
    /// Returns the address of a task's tables.
    ///
    /// # Errors
    /// If the URL is invalid, or if it needs `--insecure-database`.
    pub(crate) fn address(
        &self,
        roster: &dphe::Roster,
        lease: std::time::Duration,
    ) -> Result<PgAddress, dphe_service::Error> {
        let new = if self.insecure { PgAddress::new_unverified } else { PgAddress::new };
        Ok(new(&self.url, roster, lease)?)
    }
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
        let database = |url| Storage::Database(Database { url, insecure: self.insecure_database });
        match (&self.data, &self.database) {
            (Some(directory), _) => Storage::Directory(directory.clone()),
            (None, Some(url)) => database(url.clone()),
            (None, None) => match std::env::var(DATABASE_VARIABLE) {
                Ok(url) if !url.is_empty() => database(url),
                _ => {
                    let what = format!("--data DIR, --database URL or {DATABASE_VARIABLE} is required\n");
                    clap::Error::raw(ErrorKind::MissingRequiredArgument, what).exit()
                }
            },
        }
    }
}
