//! Programs that train badly: each costs its user one round, and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use dphe::{PublicSupport, Round, TaskId, TaskParams, Update, UserId};
use dphe_learn::Seed;
use dphe_service::Error;
use dphe_service::command_trainer::{CommandTrainer, TrainerCommand, TrainerError};
use dphe_service::learning::Trainer as _;
use dphe_service::task_file::{Milliseconds, TaskFile, tensor_template};
use dphe_service::tensors::{TensorError, TensorModel};
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

fn tensors(entries: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
    let views = entries
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn model(values: &[f32]) -> Vec<u8> {
    tensors(&[("steps", Dtype::I64, &[], vec![7; 8]), ("weight", Dtype::F32, &[2, 2], floats(values))])
}

struct Lab {
    directory: TempDir,
    file: TaskFile,
    task: TaskParams,
    global: Vec<u8>,
}

impl Lab {
    fn new() -> Self {
        let global = model(&[0.0, 1.0, 2.0, 3.0]);
        let parsed = TensorModel::new(global.clone(), &[]).unwrap();
        let text = tensor_template(TaskId::from_bytes([1; 16]))
            .replacen(&"0".repeat(64), &parsed.digest(), 1)
            .replacen("dimension = 1", "dimension = 4", 1)
            .replacen("\"rotate\"", "\"all\"", 1);
        let file = TaskFile::parse(&text, Path::new("task.toml")).unwrap();
        let task = TaskParams::new(file.id().unwrap(), file.tensor_config(&parsed).unwrap()).unwrap();
        Self { directory: tempfile::tempdir().unwrap(), file, task, global }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn data(&self) -> PathBuf {
        let data = self.directory.path().join("data");
        std::fs::create_dir_all(&data).unwrap();
        data
    }

    /// Makes the trainer that runs this line in a shell.
    fn trainer(&self, line: &str, limit: u64) -> CommandTrainer {
        let script = self.write("train.sh", line.as_bytes());
        let command = TrainerCommand::parse(&format!("sh {script}"), Milliseconds(limit)).unwrap();
        let user = UserId::new(2).unwrap();
        CommandTrainer::new(&self.file, self.task.clone(), user, command, &self.data(), Seed::new(1)).unwrap()
    }

    fn train(&self, trainer: &mut CommandTrainer) -> Result<Update, Error> {
        let support = PublicSupport::of(&self.task, Round::FIRST);
        let update = trainer.make_update(Round::FIRST, &support, &self.global);
        assert!(!self.data().join("trainer").exists(), "files of the round are left");
        update
    }

    fn error(&self, line: &str) -> TrainerError {
        match self.train(&mut self.trainer(line, 60_000)) {
            Err(Error::Trainer(error)) => error,
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_program_gets_its_files_and_variables_and_nothing_else_of_ours() {
    let lab = Lab::new();
    let good = lab.write("good", &model(&[0.5, 1.0, 2.0, 2.75]));
    let seen = lab.directory.path().join("seen");
    let line = format!(
        "env | grep ^DPHE_ | sort > {0}; ls -ld $(dirname $DPHE_GLOBAL) >> {0}; cat $DPHE_GLOBAL > {0}.model\n\
         read line && echo stdin >> {0}; cp {good} $DPHE_LOCAL",
        seen.display()
    );
    let mut trainer = lab.trainer(&line, 60_000);
    let update = lab.train(&mut trainer).unwrap();
    assert_eq!(update.weights().indices(), [0, 1, 2, 3]);
    assert_eq!(update.weights().values(), [0.5, 0.0, 0.0, -0.25]);

    let text = std::fs::read_to_string(&seen).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let directory = lab.data().canonicalize().unwrap().join("trainer");
    let path = |name: &str, file: &str| format!("{name}={}", directory.join(file).display());
    assert_eq!(lines.len(), 7, "{text}");
    assert_eq!(lines[0], path("DPHE_GLOBAL", "global.safetensors"));
    assert_eq!(lines[1], path("DPHE_LOCAL", "local.safetensors"));
    assert_eq!(lines[2], "DPHE_ROUND=1");
    assert!(lines[3].strip_prefix("DPHE_SEED=").unwrap().parse::<u32>().is_ok());
    assert_eq!(lines[4], format!("DPHE_TASK={}", TaskId::from_bytes([1; 16])));
    assert_eq!(lines[5], "DPHE_USER=2");
    assert!(lines[6].starts_with("drwx------"), "others can read the directory: {}", lines[6]);
    assert_eq!(std::fs::read(seen.with_extension("model")).unwrap(), lab.global);
}

#[test]
fn results_that_cannot_be_used_are_refused_with_the_reason() {
    let lab = Lab::new();
    let result = |name: &str, bytes: &[u8]| {
        let file = lab.write(name, bytes);
        match lab.error(&format!("cp {file} $DPHE_LOCAL")) {
            TrainerError::Result(error) => error,
            other => panic!("{name}: {other}"),
        }
    };
    let nan = result("nan", &model(&[0.0, f32::NAN, 0.0, 0.0]));
    assert!(matches!(nan, TensorError::NotFinite { index: 1, .. }), "{nan}");
    let flat = tensors(&[("weight", Dtype::F32, &[4], floats(&[0.0; 4]))]);
    assert!(matches!(result("flat", &flat), TensorError::Other { what: "the shape", .. }));
    let other = tensors(&[("weights", Dtype::F32, &[2, 2], floats(&[0.0; 4]))]);
    assert!(matches!(result("other", &other), TensorError::Unknown { .. }));
    let none = tensors(&[("steps", Dtype::I64, &[], vec![0; 8])]);
    assert!(matches!(result("none", &none), TensorError::Missing { .. }));
    assert!(matches!(result("short", &lab.global[..lab.global.len() - 1]), TensorError::Format { .. }));
    assert!(matches!(result("empty", b""), TensorError::Format { .. }));

    assert!(matches!(lab.error("true"), TrainerError::NoResult));
    assert!(matches!(lab.error("mkfifo $DPHE_LOCAL"), TrainerError::Read { .. }));
    assert!(matches!(lab.error("mkdir $DPHE_LOCAL"), TrainerError::Read { .. }));
    let link = format!("ln -s {} $DPHE_LOCAL", lab.write("target", &lab.global));
    assert!(matches!(lab.error(&link), TrainerError::Read { .. }));
    let failed = lab.error("cp $DPHE_GLOBAL $DPHE_LOCAL; exit 9").to_string();
    assert_eq!(failed, "the trainer failed: exit status: 9");
    assert!(lab.error("kill -SEGV $$").to_string().contains("signal: 11"));
}

#[test]
fn programs_that_never_end_or_write_without_end_are_killed_with_their_children() {
    let lab = Lab::new();
    let pids = lab.directory.path().join("pids");
    let hang = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
    let error = lab.train(&mut lab.trainer(&hang, 500)).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::TooSlow { .. })), "{error}");
    assert_eq!(error.to_string(), "the trainer did not end within 500ms, and was killed");
    ended(&pids);

    assert!(matches!(lab.error("cat /dev/zero > $DPHE_LOCAL"), TrainerError::TooLong { .. }));
    // a program that ends before it is looked at is found out, too
    assert!(matches!(lab.error("head -c 2000000 /dev/zero > $DPHE_LOCAL"), TrainerError::TooLong { .. }));
    // output that nobody reads would stop the program
    assert!(matches!(
        lab.error("head -c 5000000 /dev/zero; yes | head -n 99999 >&2"),
        TrainerError::NoResult
    ));

    // what a program leaves behind does not hold up the round, and ends with it
    let left = format!("sleep 1000 & echo $! > {}; cp $DPHE_GLOBAL $DPHE_LOCAL", pids.display());
    lab.train(&mut lab.trainer(&left, 60_000)).unwrap();
    ended(&pids);

    // the round is over: another thread stops the program
    let mut trainer = lab.trainer("sleep 1000", 60_000);
    let stop = trainer.stop().unwrap();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stop.up_to(Round::FIRST);
    });
    let error = lab.train(&mut trainer).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::Stopped)), "{error}");
    other.join().unwrap();
}

/// Waits until the processes with these ids have ended. One that nobody has waited for is a zombie.
fn ended(pids: &Path) {
    for pid in std::fs::read_to_string(pids).unwrap().split_whitespace() {
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            state.is_some_and(|state| state != 'Z' && state != 'X')
        };
        let mut tries = 0;
        while runs() {
            tries += 1;
            assert!(tries < 500, "process {pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn what_a_failed_round_has_not_sent_is_not_lost() {
    let lab = Lab::new();
    // the range is 1, so 4 of the difference of 5 stay, of which the next update gets nine tenths
    let far = lab.write("far", &model(&[5.0, 1.0, 2.0, 3.0]));
    let near = lab.write("near", &lab.global);
    let line =
        format!("case $DPHE_ROUND in 1) cp {far} $DPHE_LOCAL;; 2) exit 1;; *) cp {near} $DPHE_LOCAL;; esac");
    let round = |number| Round::new(number).unwrap();
    let make = |trainer: &mut CommandTrainer, number| {
        let support = PublicSupport::of(&lab.task, round(number));
        trainer.make_update(round(number), &support, &lab.global)
    };
    let mut trainer = lab.trainer(&line, 60_000);
    assert_eq!(make(&mut trainer, 1).unwrap().weights().values()[0], 1.0);
    trainer.finished(round(1), true);
    assert!(make(&mut trainer, 2).is_err());
    trainer.finished(round(2), false);
    // another process goes on with the same residual
    drop(trainer);
    let mut trainer = lab.trainer(&line, 60_000);
    assert_eq!(make(&mut trainer, 3).unwrap().weights().values(), [1.0, 0.0, 0.0, 0.0]);
    trainer.finished(round(3), true);
    assert_eq!(make(&mut trainer, 4).unwrap().weights().values(), [1.0, 0.0, 0.0, 0.0]);
}
