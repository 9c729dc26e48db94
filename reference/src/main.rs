//! Writes the files in `vectors/`, or compares them with `--check`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!("usage: dphe-reference [--check]");
            return ExitCode::from(2);
        }
    };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    let mut code = ExitCode::SUCCESS;
    for (name, text) in dphe_reference::vectors::all() {
        let path = directory.join(name);
        let same = std::fs::read_to_string(&path).is_ok_and(|found| found == text);
        match (same, check) {
            (true, _) => println!("{name}: up to date"),
            (false, true) => {
                eprintln!("{name}: differs; run `cargo run -p dphe-reference` and review the difference");
                code = ExitCode::FAILURE;
            }
            (false, false) => match std::fs::write(&path, text) {
                Ok(()) => println!("{name}: written"),
                Err(error) => {
                    eprintln!("{}: {error}", path.display());
                    code = ExitCode::FAILURE;
                }
            },
        }
    }
    code
}
