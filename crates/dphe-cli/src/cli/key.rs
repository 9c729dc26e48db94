//! `dphe key`: creates and shows Paillier keys.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use dphe_paillier::{DecryptionKey, EncryptionKey, KeyBits, NoiseMode, PassphraseCost, Threads, hazmat};
use indicatif::{ProgressBar, ProgressStyle};
use zeroize::Zeroizing;

use super::{CliError, key_bits, os_rng};
use crate::args::one_of;
use crate::key_file;

/// Create and show Paillier keys
#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key pair: FILE, encrypted with a passphrase, and FILE.pub
    New(New),
    /// Describe a key file without showing secrets
    Show(Show),
}

#[derive(Args)]
pub(crate) struct New {
    /// The key length in bits: 2048, 3072 or 4096
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is generated
    #[arg(long, value_parser = one_of::<NoiseMode>(), default_value = NoiseMode::Secure.name())]
    noise: NoiseMode,
    /// Allow short keys as in the paper, which protect nothing
    #[arg(long)]
    paper: bool,
    /// The file of the secret key; the public key gets the extension .pub
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Read the passphrase from the first line of this file instead of the terminal
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Show {
    /// A key file, secret or public
    file: PathBuf,
    /// The file with the passphrase of a secret key
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl KeyCommand {
    pub(crate) fn run(self) -> Result<(), CliError> {
        match self {
            Self::New(new) => new.run(),
            Self::Show(show) => show.run(),
        }
    }
}

impl New {
    fn run(self) -> Result<(), CliError> {
        let bits = key_bits(self.bits, self.paper)?;
        key_file::refuse_existing(&self.output)?;
        let passphrase = new_passphrase(self.passphrase_file.as_deref())?;
        let secret = generate(bits, self.noise, Threads::all())?;
        let sealed = secret.to_encrypted_bytes(&passphrase, PassphraseCost::STANDARD, &mut os_rng()?)?;
        key_file::write_secret(&self.output, &sealed)?;
        let public = key_file::public_path(&self.output);
        key_file::write_public(&public, &secret.encryption_key().to_bytes())?;
        describe(secret.encryption_key(), "secret key", &self.output);
        println!("public key   {}", public.display());
        Ok(())
    }
}

impl Show {
    fn run(self) -> Result<(), CliError> {
        let file = key_file::read(&self.file)?;
        // short keys can be shown, with a warning
        match hazmat::read_public_key(&file.bytes) {
            Ok(key) => describe(&key, "public key", &self.file),
            Err(dphe_paillier::Error::KeyKind { found: dphe_paillier::KeyKind::Secret }) => {
                file.refuse_readable_by_others()?;
                let passphrase = match &self.passphrase_file {
                    Some(file) => key_file::read_passphrase(file)?,
                    None => prompt("Passphrase: ")?,
                };
                let secret = hazmat::read_secret_key(&file.bytes, &passphrase)?;
                describe(secret.encryption_key(), "secret key", &self.file);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

fn describe(key: &EncryptionKey, kind: &str, file: &Path) {
    println!("{kind:<12} {}", file.display());
    println!("id           {}", key.id());
    println!("bits         {}", key.bits().get());
    println!("noise        {}", key.mode());
    match key.bits() {
        bits if !bits.is_secure() => println!("warning      a key of {} bits protects nothing", bits.get()),
        KeyBits::B2048 => {
            println!("note         2048 bits have a strength of about 112 bits; the default is 3072")
        }
        _ => {}
    }
}

/// Generates a key, and shows progress if it takes longer than a second.
pub(crate) fn generate(bits: KeyBits, mode: NoiseMode, threads: Threads) -> Result<DecryptionKey, CliError> {
    generate_until(&AtomicBool::new(false), bits, mode, threads)
}

/// As [`generate`], and stops when the flag is set.
pub(super) fn generate_until(
    stopped: &AtomicBool,
    bits: KeyBits,
    mode: NoiseMode,
    threads: Threads,
) -> Result<DecryptionKey, CliError> {
    let bar = ProgressBar::no_length();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    let start = Instant::now();
    let report = |progress: dphe_paillier::Progress| {
        if start.elapsed() > Duration::from_secs(1) {
            // the search is memoryless, so a bar that fills up would be misleading
            bar.set_message(format!(
                "searching for two safe primes: {} intervals of about {:.0}",
                progress.searched, progress.expected
            ));
            bar.tick();
        }
        match stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let secret = DecryptionKey::generate_with_progress(bits, mode, &mut os_rng()?, threads, &report);
    bar.finish_and_clear();
    match secret {
        Err(dphe_paillier::Error::Cancelled) => Err(crate::processes::stopped()),
        secret => Ok(secret?),
    }
}

/// The length of the shortest passphrase that a new key may have. A shorter one is soon found by trying all.
const LEAST_CHARACTERS: usize = 12;

/// Reads the passphrase of a new key from a file or from the terminal.
pub(super) fn new_passphrase(file: Option<&Path>) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let words = match file {
        Some(file) => key_file::read_passphrase(file)?,
        None => ask_passphrase()?,
    };
    let characters = core::str::from_utf8(&words).map_or(words.len(), |text| text.chars().count());
    if characters < LEAST_CHARACTERS {
        return Err(CliError::PassphraseShort { least: LEAST_CHARACTERS });
    }
    Ok(words)
}

fn ask_passphrase() -> Result<Zeroizing<Vec<u8>>, CliError> {
    let first = prompt("Passphrase for the secret key: ")?;
    if std::io::stdin().is_terminal() && *first != *prompt("Repeat the passphrase: ")? {
        return Err(CliError::PassphrasesDiffer);
    }
    Ok(first)
}

pub(super) fn prompt(text: &str) -> Result<Zeroizing<Vec<u8>>, CliError> {
    rpassword::prompt_password(text)
        .map(|line| Zeroizing::new(line.into_bytes()))
        .map_err(CliError::Passphrase)
}
