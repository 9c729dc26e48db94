//! Checks that the generator reproduces the files in `vectors/`.

use std::path::Path;

use dphe_reference::vectors;

#[test]
fn generated_files_equal_those_in_vectors() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    for (name, text) in vectors::all() {
        let found = std::fs::read_to_string(directory.join(name)).unwrap();
        assert!(found == text, "{name} differs: run `cargo run -p dphe-reference`");
    }
}

#[test]
fn generating_twice_gives_the_same_files() {
    assert!(vectors::rounds::file().text() == vectors::rounds::file().text());
}

/// Compares Algorithm 1 with Enc0 at every empty position, the protocol without it, and plain addition.
#[test]
fn algorithm1_protocol_and_plain_addition_agree() {
    for case in vectors::rounds::cases() {
        let run = case.run();
        let indices: Vec<usize> = match &run.support {
            Some(support) => dphe_reference::wire::seal::public_indices(&case.policy, support),
            None => (0..case.policy.dimension as usize).collect(),
        };
        let plain: Vec<i64> = indices
            .iter()
            .map(|&i| run.users.iter().map(|u| vectors::rounds::encoded(&case.policy, &u.weights)[i]).sum())
            .collect();
        assert_eq!(run.sums.weights, plain, "{}", case.id);
        assert_eq!(run.printed, plain, "{}", case.id);
        let dense: Vec<i64> = (0..case.policy.dense as usize)
            .map(|i| run.users.iter().map(|u| vectors::rounds::encoded(&case.policy, &u.dense)[i]).sum())
            .collect();
        assert_eq!(run.sums.dense, dense, "{}", case.id);
    }
}
