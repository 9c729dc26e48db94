//! A user's own training program, which runs once per round.
//!
//! The program reads the global model from one safetensors file and writes what it has trained to another.
//! `docs/trainers.md` describes what it is given and what it must do.

use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dphe::{PublicSupport, Round, TaskParams, Update, UserId};
use dphe_federate::vector::{VectorRules, VectorUpdate};
use dphe_learn::Seed;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use zeroize::Zeroizing;

use crate::http::remote_text::clean;
use crate::learning::{StopTraining, StoredResidual, Trainer};
use crate::task_file::{Milliseconds, TaskFile, TensorSections};
use crate::tensors::{TensorError, TensorModel};
use crate::{Error, files};

/// How often a running program is looked at.
const PAUSE: Duration = Duration::from_millis(20);
/// How much longer than the global model the local one may be, because headers differ.
const MORE_BYTES: u64 = 1 << 20;
/// The number of lines per round and stream that are logged.
const MAX_LINES: usize = 200;
/// The number of bytes of a line that are kept, at most four per character that is shown.
const MAX_LINE: usize = 1024;
/// How long to wait for the output of processes that the program has left behind.
const OUTPUT_TIME: Duration = Duration::from_secs(1);

/// Why a round has no update.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The command cannot be parsed.
    #[error("the trainer's command {command:?} {reason}")]
    Command {
        /// The text.
        command: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The program cannot be started.
    #[error("the trainer {} cannot be started: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The files for the program cannot be written, or it cannot be observed.
    #[error("the trainer cannot be given its files in {}: {source}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The program reported a failure.
    #[error("the trainer failed: {status}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
    },
    /// The program ran for too long and was killed.
    #[error("the trainer did not end within {limit}, and was killed")]
    TooSlow {
        /// The limit.
        limit: Milliseconds,
    },
    /// The round or the user's program ended before training did.
    #[error("the round was over before the trainer ended, so the trainer was killed")]
    Stopped,
    /// The program has written no file.
    #[error("the trainer ended without writing the file DPHE_LOCAL")]
    NoResult,
    /// The file is too long.
    #[error("the trainer's result is longer than {most} bytes, the length of the global model and one MiB")]
    TooLong {
        /// The largest length.
        most: u64,
    },
    /// The file cannot be read.
    #[error("the trainer's result cannot be read: {source}")]
    Read {
        /// The cause.
        source: io::Error,
    },
    /// The file does not have the right contents.
    #[error("the trainer's result cannot be used: {0}")]
    Result(TensorError),
}

impl TrainerError {
    /// Returns what to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Command { .. } => "Pass a program and its arguments, separated by spaces.",
            Self::Start { .. } => "Check the path of the program, and that it can be executed.",
            Self::Directory { .. } => "Check the space and the permissions of the data directory.",
            Self::Failed { .. } => "The log has the last lines that the trainer wrote.",
            Self::TooSlow { .. } => "Raise `--trainer-time`, or train less per round.",
            Self::Stopped => "Train less per round, or agree on a task with a longer `time.max`.",
            Self::NoResult | Self::TooLong { .. } | Self::Read { .. } | Self::Result(_) => {
                "Compare what the trainer writes with docs/trainers.md."
            }
        }
    }
}

/// A program with its arguments, and how long it may run per round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainerCommand {
    program: PathBuf,
    arguments: Vec<String>,
    limit: Milliseconds,
}

impl TrainerCommand {
    /// Parses a command. Words are separated by spaces, and quotes of both kinds keep spaces in a word. Nothing else is
    /// special, because no shell is involved.
    ///
    /// # Errors
    /// [`TrainerError::Command`] if there is no program or a quote is not closed, [`TrainerError::Start`] if the
    /// program does not exist or cannot be executed.
    pub fn parse(command: &str, limit: Milliseconds) -> Result<Self, TrainerError> {
        let error = |reason| TrainerError::Command { command: command.to_owned(), reason };
        let mut words = split(command).ok_or_else(|| error("has a quote that is not closed"))?.into_iter();
        let program =
            words.next().filter(|word| !word.is_empty()).ok_or_else(|| error("names no program"))?;
        let program = find_program(Path::new(&program))?;
        Ok(Self { program, arguments: words.collect(), limit })
    }
}

/// Splits a command at spaces outside quotes. Returns `None` if a quote is not closed.
fn split(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Returns the file of a program: the path itself if it has a directory, or else the first one in `PATH`. It is found
/// once, so that a mistake is reported before the first round.
fn find_program(program: &Path) -> Result<PathBuf, TrainerError> {
    let start = |source: io::Error| TrainerError::Start { program: program.into(), source };
    let executable = |path: &Path| -> io::Result<()> {
        let metadata = std::fs::metadata(path)?;
        match metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            true => Ok(()),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    };
    if program.components().count() > 1 {
        executable(program).map_err(start)?;
        return std::path::absolute(program).map_err(start);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|path| executable(path).is_ok());
    found.ok_or_else(|| start(io::ErrorKind::NotFound.into()))
}

/// A user who trains with a program.
pub struct CommandTrainer {
    sections: TensorSections,
    rules: VectorRules,
    command: TrainerCommand,
    user: UserId,
    seed: Seed,
    /// A directory of this process. The program's files are in a subdirectory that is deleted after every round.
    data: PathBuf,
    residual: StoredResidual,
    stop: StopTraining,
}

impl CommandTrainer {
    /// Creates the trainer of a user. `data` is the user's data directory, which this process alone uses and where the
    /// residual is kept. `seed` is the user's own; the program gets a number for each round that follows from it.
    ///
    /// # Errors
    /// If the task trains no tensors, or a number of the task file is out of range.
    pub fn new(
        task_file: &TaskFile,
        task: TaskParams,
        user: UserId,
        command: TrainerCommand,
        data: &Path,
        seed: Seed,
    ) -> Result<Self, Error> {
        let sections = task_file.tensors()?.clone();
        let residual = StoredResidual::open(data.join("residual.bin"), task.dimension());
        let (rules, stop) = (sections.rules(task)?, StopTraining::default());
        Ok(Self { sections, rules, command, user, seed, data: data.into(), residual, stop })
    }

    /// Runs the program and returns what it has learnt.
    fn train(&self, round: Round, global: &TensorModel) -> Result<Vec<f64>, TrainerError> {
        let files = RoundFiles::new(&self.data, global)?;
        let most = global.as_bytes().len() as u64 + MORE_BYTES;
        let mut command = Command::new(&self.command.program);
        command.args(&self.command.arguments);
        // what is meant for this program is not for the trainer, such as the address of a database
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"DPHE_"))
        {
            command.env_remove(name);
        }
        let seed = self.seed.derive("trainer", round.get()).to_bytes();
        command
            .env("DPHE_TASK", self.rules.task().id().to_string())
            .env("DPHE_USER", self.user.get().to_string())
            .env("DPHE_ROUND", round.get().to_string())
            .env("DPHE_SEED", u32::from_le_bytes([seed[0], seed[1], seed[2], seed[3]]).to_string())
            .env("DPHE_GLOBAL", &files.global)
            .env("DPHE_LOCAL", &files.local);
        let mut running = Running::start(command, round)
            .map_err(|source| TrainerError::Start { program: self.command.program.clone(), source })?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = running.ended().map_err(|source| files.error(source))? {
                break status;
            }
            if self.stop.is_stopped(round) {
                return Err(TrainerError::Stopped);
            }
            if begin.elapsed() >= Duration::from_millis(self.command.limit.0) {
                return Err(TrainerError::TooSlow { limit: self.command.limit });
            }
            files.check_length(most)?;
            std::thread::sleep(PAUSE);
        };
        running.finish_output();
        if !status.success() {
            return Err(TrainerError::Failed { status });
        }
        files.check_length(most)?;
        global.differences(&files.read(most)?).map_err(TrainerError::Result)
    }
}

impl Trainer for CommandTrainer {
    fn make_update(&mut self, round: Round, support: &PublicSupport, model: &[u8]) -> Result<Update, Error> {
        let global = self.sections.model(model.to_vec())?;
        let differences = self.train(round, &global)?;
        let made = self.rules.update(round, support, differences, self.residual.get_mut());
        let VectorUpdate { update, clipped } = made?;
        if clipped > 0 {
            tracing::warn!(
                round = round.get(),
                values = clipped,
                "some values are outside the task's range; what exceeds it stays in the residual"
            );
        }
        self.residual.store();
        Ok(update)
    }

    fn finished(&mut self, round: Round, included: bool) {
        self.residual.get_mut().finish(round, included);
        self.residual.store();
    }

    fn stop(&self) -> Option<StopTraining> {
        Some(self.stop.clone())
    }
}

/// The files of one round, which are deleted with this value. They hold what only this user may know.
struct RoundFiles {
    directory: PathBuf,
    global: PathBuf,
    local: PathBuf,
}

impl RoundFiles {
    fn new(data: &Path, model: &TensorModel) -> Result<Self, TrainerError> {
        // absolute, because the program may change its directory
        let directory = std::path::absolute(data)
            .map_err(|source| TrainerError::Directory { directory: data.into(), source })?
            .join("trainer");
        let (global, local) = (directory.join("global.safetensors"), directory.join("local.safetensors"));
        let files = Self { directory, global, local };
        let write = || -> io::Result<()> {
            // a process that was killed may have left it
            if files.directory.exists() {
                std::fs::remove_dir_all(&files.directory)?;
            }
            std::fs::DirBuilder::new().mode(0o700).create(&files.directory)?;
            std::fs::write(&files.global, model.as_bytes())
        };
        write().map_err(|source| files.error(source))?;
        Ok(files)
    }

    fn error(&self, source: io::Error) -> TrainerError {
        TrainerError::Directory { directory: self.directory.clone(), source }
    }

    /// Fails if the result is too long, even before it is complete.
    fn check_length(&self, most: u64) -> Result<(), TrainerError> {
        match std::fs::symlink_metadata(&self.local) {
            Ok(metadata) if metadata.len() > most => Err(TrainerError::TooLong { most }),
            _ => Ok(()),
        }
    }

    /// Reads the result, which must be a regular file. Opening another kind of file could wait forever.
    fn read(&self, most: u64) -> Result<Zeroizing<Vec<u8>>, TrainerError> {
        let read = |source| TrainerError::Read { source };
        match std::fs::symlink_metadata(&self.local) {
            Ok(metadata) if metadata.is_file() => {
                files::read_at_most(&self.local, most).map(Zeroizing::new).map_err(read)
            }
            Ok(_) => Err(read(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(TrainerError::NoResult),
            Err(error) => Err(read(error)),
        }
    }
}

impl Drop for RoundFiles {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(
                directory = %self.directory.display(),
                %error,
                "the trainer's files could not be deleted; they are as secret as the samples"
            );
        }
    }
}

/// A running program in a process group of its own. The whole group is killed with this value.
struct Running {
    child: Child,
    group: Option<Pid>,
    output: Receiver<()>,
    ended: bool,
}

impl Running {
    fn start(mut command: Command, round: Round) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (done, output) = channel();
        let streams: [(&str, Option<Box<dyn Read + Send>>); 2] = [
            ("stdout", child.stdout.take().map(|stream| Box::new(stream) as _)),
            ("stderr", child.stderr.take().map(|stream| Box::new(stream) as _)),
        ];
        let running = Self { child, group, output, ended: false };
        for (name, stream) in streams {
            let (Some(stream), done) = (stream, done.clone()) else { continue };
            std::thread::Builder::new().name("trainer".into()).spawn(move || {
                log_output(stream, name, round);
                let _ = done.send(());
            })?;
        }
        Ok(running)
    }

    /// Returns how the program ended, if it did. Processes that it has left behind are killed.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(group) = self.group else {
            return self.child.try_wait();
        };
        // the program stays a zombie until its group has been killed, so that no other group gets its number
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(group), options)?.is_none() {
            return Ok(None);
        }
        self.kill();
        self.child.wait().map(Some)
    }

    fn kill(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        let killed = self.group.map(|group| kill_process_group(group, Signal::KILL));
        if !matches!(killed, Some(Ok(()))) {
            let _ = self.child.kill();
        }
    }

    /// Waits until the output has been logged.
    fn finish_output(&self) {
        let until = Instant::now() + OUTPUT_TIME;
        for _ in 0..2 {
            let _ = self.output.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.kill();
            let _ = self.child.wait();
            self.finish_output();
        }
    }
}

/// Logs the lines that a program writes: the first ones, cleaned and shortened.
fn log_output(mut stream: impl Read, name: &'static str, round: Round) {
    let (mut lines, mut line, mut buffer) = (0, Vec::new(), [0; 4096]);
    let mut log = |line: &mut Vec<u8>| {
        lines += 1;
        if lines <= MAX_LINES {
            let text = clean(&String::from_utf8_lossy(line));
            tracing::info!(round = round.get(), stream = name, text, "the trainer wrote");
        }
        line.clear();
    };
    while let Ok(read) = stream.read(&mut buffer)
        && read > 0
    {
        for &byte in &buffer[..read] {
            match byte {
                b'\n' => log(&mut line),
                _ if line.len() < MAX_LINE => line.push(byte),
                _ => {}
            }
        }
    }
    if !line.is_empty() {
        log(&mut line);
    }
    if let Some(more) = lines.checked_sub(MAX_LINES).filter(|more| *more > 0) {
        tracing::warn!(
            round = round.get(),
            stream = name,
            lines = more,
            "the trainer wrote more than is logged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_at_spaces_outside_quotes() {
        let words = |text: &str| split(text).unwrap();
        assert_eq!(words("  ./train  --epochs 3 "), ["./train", "--epochs", "3"]);
        assert_eq!(words(r#"a "b c"'d  e' "" $HOME\n"#), ["a", "b cd  e", "", "$HOME\\n"]);
        assert_eq!(words(""), [""; 0]);
        assert!(split("train 'x").is_none());
        let parse = |text| TrainerCommand::parse(text, Milliseconds(1)).map_err(|error| error.to_string());
        assert!(parse(" ").unwrap_err().contains("names no program"));
        assert!(parse("sh '").unwrap_err().contains("not closed"));
        assert!(parse("./no-such-program x").unwrap_err().contains("./no-such-program cannot be started"));
        assert!(parse("no-such-program").unwrap_err().contains("cannot be started"));
        let found = parse("sh -c 'exit 1'").unwrap();
        assert!(found.program.is_absolute());
        assert_eq!(found.arguments, ["-c", "exit 1"]);
        // a directory and a file that cannot be executed are no programs
        assert!(parse("/etc").is_err() && parse("/etc/passwd").is_err());
    }
}
