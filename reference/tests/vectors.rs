//! The generator makes what is checked in, every time.

use std::path::Path;

use dphe_reference::vectors;

#[test]
fn files_are_what_the_generator_makes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors");
    for (name, text) in vectors::all() {
        let found = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(found == text, "{name} differs: run `cargo run -p dphe-reference`");
    }
}

#[test]
fn generating_twice_gives_the_same() {
    assert!(vectors::rounds::file().text() == vectors::rounds::file().text());
}

/// The printed algorithm, with Enc0 in every empty place; the protocol, with nothing there; and plain addition.
#[test]
fn printed_form_and_absent_form_and_plain_sum_agree() {
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
        assert_eq!(run.sums, plain, "{}", case.id);
        assert_eq!(run.printed, plain, "{}", case.id);
        let dense: Vec<i64> = (0..case.policy.dense as usize)
            .map(|i| run.users.iter().map(|u| vectors::rounds::encoded(&case.policy, &u.dense)[i]).sum())
            .collect();
        assert_eq!(run.dense_sums, dense, "{}", case.id);
    }
}
