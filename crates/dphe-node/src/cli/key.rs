//! `dphe key`: make and look at Paillier keys.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use dphe_paillier::{DecryptionKey, EncryptionKey, KeyBits, NoiseMode, PassphraseCost, Threads, hazmat};
use indicatif::{ProgressBar, ProgressStyle};
use zeroize::Zeroizing;

use super::{CliError, key_bits, os_rng};
use crate::key_file;

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key pair: FILE, encrypted under a passphrase, and FILE.pub
    New(New),
    /// Describe a key file; never shows secrets
    Show(Show),
}

#[derive(Args)]
pub(crate) struct New {
    /// Bits of the modulus: 2048, 3072 or 4096
    #[arg(long, default_value_t = 3072)]
    bits: u32,
    /// How noise is drawn
    #[arg(long, value_enum, default_value_t = Mode::Secure)]
    mode: Mode,
    /// Allow short keys, as in the paper; not for data that matters
    #[arg(long)]
    paper: bool,
    /// Where the secret key goes; the public key gets the ending .pub
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
    /// Open a secret key with this passphrase file and check it
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// Noise modes by the names people type.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Mode {
    /// half-length exponents
    Secure,
    /// short exponents: faster, one more assumption
    Fast,
}

impl From<Mode> for NoiseMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Secure => Self::Secure,
            Mode::Fast => Self::Fast,
        }
    }
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
        let passphrase = match &self.passphrase_file {
            Some(file) => key_file::read_passphrase(file)?,
            None => ask_passphrase()?,
        };
        if passphrase.is_empty() {
            return Err(CliError::PassphraseEmpty);
        }
        let secret = generate(bits, self.mode.into(), Threads::all())?;
        let sealed = secret.seal(&passphrase, PassphraseCost::STANDARD, &mut os_rng()?)?;
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
        // short keys may be looked at; they are described as what they are
        match hazmat::read_public_key(&file.bytes) {
            Ok(key) => describe(&key, "public key", &self.file),
            Err(dphe_paillier::Error::KeyFormat { reason: "it is a secret key" }) => {
                file.refuse_readable_by_others()?;
                let passphrase = match &self.passphrase_file {
                    Some(file) => key_file::read_passphrase(file)?,
                    None => prompt("Passphrase: ")?,
                };
                let secret = hazmat::open_secret_key(&file.bytes, &passphrase)?;
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
        bits if !bits.is_secure() => println!("warning      {} bits protect nothing today", bits.get()),
        KeyBits::B2048 => println!("note         2048 bits are about 112-bit strength; 3072 are the default"),
        _ => {}
    }
}

/// Generates a key, with a progress line when it takes longer than a second.
pub(crate) fn generate(bits: KeyBits, mode: NoiseMode, threads: Threads) -> Result<DecryptionKey, CliError> {
    let bar = ProgressBar::no_length();
    bar.set_style(
        ProgressStyle::with_template("{spinner} looking for two safe primes: {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    let start = Instant::now();
    let report = |progress: dphe_paillier::Progress| {
        if start.elapsed() > Duration::from_secs(1) {
            // the search has no memory: a bar that fills up would promise an end
            bar.set_message(format!(
                "{} intervals searched, {:.0} needed on average",
                progress.searched, progress.expected
            ));
            bar.tick();
        }
    };
    let secret = DecryptionKey::generate_with_progress(bits, mode, &mut os_rng()?, threads, &report)?;
    bar.finish_and_clear();
    Ok(secret)
}

pub(super) fn ask_passphrase() -> Result<Zeroizing<Vec<u8>>, CliError> {
    let first = prompt("Passphrase for the secret key: ")?;
    if std::io::stdin().is_terminal() && *first != *prompt("Once more: ")? {
        return Err(CliError::PassphrasesDiffer);
    }
    Ok(first)
}

pub(super) fn prompt(text: &str) -> Result<Zeroizing<Vec<u8>>, CliError> {
    rpassword::prompt_password(text)
        .map(|line| Zeroizing::new(line.into_bytes()))
        .map_err(CliError::Passphrase)
}
