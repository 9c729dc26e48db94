//! Checks the cryptographic parts against the vectors of their standards, and against each other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dphe_reference::rng::Rng;
use dphe_reference::vectors::rounds;
use dphe_reference::wire::hpke::{KeyPair, open, seal};
use dphe_reference::wire::mask::{Secrets, words};
use dphe_reference::wire::participants::{path, root, root_of};
use dphe_reference::wire::seal::{
    Opened, Refused, check_and_decode, open as open_sum, seal as seal_update, sum, unmask,
};
use dphe_reference::wire::task::Receipts;
use num_bigint::BigUint;

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// RFC 8439, appendix A.1, vectors 1 and 2.
#[test]
fn chacha20_gives_the_key_stream_of_the_rfc() {
    let expected = bytes(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7\
         da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586\
         9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed\
         29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    );
    assert_eq!(words(&[0; 32], 128), expected);
    assert_eq!(words(&[0; 32], 70), expected[..70]);
}

/// RFC 9180, appendix A.2.1.
#[test]
fn hpke_gives_the_ciphertext_of_the_rfc() {
    let ephemeral =
        KeyPair::derive(&bytes("909a9b35d3dc4713a5e72a4da274b55d3d3821a37e5d099e74a647db583a904b"));
    let keys = KeyPair::derive(&bytes("1ac01f181fdf9f352797655161c58b75c656a6cc2716dcb66372da835542e1df"));
    let enc = bytes("1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a");
    assert_eq!(ephemeral.public[..], enc);
    assert_eq!(keys.public[..], bytes("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a"));
    let (info, aad) = (b"Ode on a Grecian Urn", b"Count-0");
    let plaintext = b"Beauty is truth, truth beauty";
    let ciphertext =
        bytes("1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28");
    let body = seal(&keys.public, &ephemeral, info, aad, plaintext);
    assert_eq!(body, [enc, ciphertext].concat());
    assert_eq!(open(&keys, info, aad, &body).unwrap(), plaintext);
    assert_eq!(open(&keys, info, b"Count-1", &body), None);
    assert_eq!(open(&ephemeral, info, aad, &body), None);
    assert_eq!(open(&keys, info, aad, &body[..31]), None);
}

#[test]
fn paths_lead_to_the_root_from_their_own_leaf_only() {
    let mut rng = Rng::new("test/paths");
    for count in (1..40).chain([255, 256, 257]) {
        let leaves: Vec<[u8; 32]> = (0..count).map(|_| rng.digest()).collect();
        let top = root(&leaves);
        for index in 0..count {
            let path = path(&leaves, index);
            assert!(path.len() <= 16);
            assert_eq!(root_of(&leaves[index], index, &path, count), Some(top));
            assert_ne!(root_of(&[0; 32], index, &path, count), Some(top));
            let longer = [&path[..], &[[0; 32]]].concat();
            assert_ne!(root_of(&leaves[index], index, &longer, count), Some(top));
            if count > 1 {
                assert_ne!(root_of(&leaves[index], index, &path[1..], count), Some(top));
                assert_ne!(root_of(&leaves[index], index ^ 1, &path, count), Some(top));
            }
        }
    }
}

/// G opens the sum of exactly the listed users, with exactly their salts.
#[test]
fn sums_of_other_users_cannot_be_opened() {
    let mut tested = 0;
    for case in rounds::cases().iter().filter(|case| case.policy.receipts != Receipts::None) {
        let (run, policy) = (case.run(), &case.policy);
        let secrets: Vec<Secrets> = run.users.iter().map(|user| user.secrets.clone()).collect();
        let contents = run.sealed.iter().map(|sealed| &sealed.content[..]);
        let uploads: Vec<(&Secrets, &[u8])> = secrets.iter().zip(contents).collect();
        let is_open = |listed: &[&Secrets], uploads: &[(&Secrets, &[u8])]| {
            let total = sum(policy, &run.key, &run.round, uploads);
            match open_sum(policy, &run.key, &run.round, listed, &total) {
                None => false,
                Some(Opened::Sums(sums)) => sums == run.sums,
                Some(Opened::Residues(residues)) => {
                    let z = unmask(&run.key, &run.round, listed, &residues);
                    check_and_decode(policy, &run.key, &run.round, listed.len(), &z) == Ok(run.sums.clone())
                }
            }
        };
        let all: Vec<&Secrets> = secrets.iter().collect();
        assert!(is_open(&all, &uploads), "{}", case.id);
        assert!(!is_open(&all[1..], &uploads), "{}: one user is not listed", case.id);
        assert!(!is_open(&all, &uploads[1..]), "{}: one user is not in the sum", case.id);
        let twice = [&uploads[..], &uploads[..1]].concat();
        assert!(!is_open(&all, &twice), "{}: one user is in the sum twice", case.id);
        let mut salted = secrets.clone();
        salted[0].salt[3] ^= 1;
        assert!(!is_open(&salted.iter().collect::<Vec<_>>(), &uploads), "{}: another salt", case.id);
        tested += 1;
    }
    assert!(tested >= 15);
}

/// A user finds sums that were changed after masks were removed.
#[test]
fn changed_sums_fail_the_check() {
    for case in rounds::cases().iter().filter(|case| case.policy.receipts == Receipts::Masked) {
        let (run, policy) = (case.run(), &case.policy);
        let width = policy.key_bits as usize / 8;
        let z: Vec<BigUint> = run.published.chunks(width).map(BigUint::from_bytes_be).collect();
        let users = run.users.len();
        let found = |z: &[BigUint], users| check_and_decode(policy, &run.key, &run.round, users, z);
        assert_eq!(found(&z, users), Ok(run.sums.clone()));
        assert_eq!(found(&z, users + 1), Err(Refused::Check));
        for i in 0..z.len() {
            let mut changed = z.clone();
            changed[i] = (&z[i] + 1u8) % &run.key.n;
            assert_eq!(found(&changed, users), Err(Refused::Check), "{}", case.id);
        }
    }
}

/// An update that is sealed twice has no masks in common.
#[test]
fn salts_change_all_masks() {
    let case = rounds::cases().into_iter().find(|case| case.policy.receipts == Receipts::Masked).unwrap();
    let run = case.run();
    let user = &run.users[0];
    let encode = |weights| rounds::encoded(&case.policy, weights);
    let (weights, dense) = (encode(&user.weights), encode(&user.dense));
    let seal = |secrets: &Secrets| {
        let mut rng = Rng::new("test/salts");
        seal_update(&case.policy, &run.key, &run.round, secrets, (&weights, &dense), &mut rng)
    };
    let (first, second) = (seal(&user.secrets), seal(&Secrets { salt: [9; 16], ..user.secrets.clone() }));
    assert_eq!(first.unmasked, second.unmasked);
    assert!(first.plaintexts.iter().zip(&second.plaintexts).all(|(a, b)| a != b));
}
