//! Where an aggregator keeps its state.

use std::path::PathBuf;

use clap::Args;
use clap::error::ErrorKind;

/// What says where the database is, to those who do not write it where others can see it.
pub(crate) const DATABASE: &str = "DPHE_DATABASE";

#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// Where the party keeps its state: a folder for one process
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The PostgreSQL that any number of aggregators share, instead of a folder; without either, as DPHE_DATABASE in
    /// the environment says
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    database: Option<String>,
}

/// Where state is kept.
pub(crate) enum Place {
    Folder(PathBuf),
    Database(String),
}

impl PlaceArgs {
    /// The place; whoever names none is told so.
    pub(crate) fn place(&self) -> Place {
        match (&self.data, &self.database) {
            (Some(folder), _) => Place::Folder(folder.clone()),
            (None, Some(url)) => Place::Database(url.clone()),
            (None, None) => match std::env::var(DATABASE) {
                Ok(url) if !url.is_empty() => Place::Database(url),
                _ => {
                    let what = format!("--data DIR, --database URL or {DATABASE} is needed\n");
                    clap::Error::raw(ErrorKind::MissingRequiredArgument, what).exit()
                }
            },
        }
    }
}
