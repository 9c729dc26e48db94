//! Masks and checks.

use num_bigint::{BigInt, BigUint};

use super::super::json::{Json, hex, list, number, object, text};
use super::super::keys::toy_key;
use crate::rng::Rng;
use crate::wire::derive::ratchet;
use crate::wire::mask::{Check, Round, Secrets, masks as derive_masks, words};
use crate::wire::seal::fixed_width;

/// Draws an odd number of this many bits. Masks need no more of a modulus.
fn modulus(bits: u64, rng: &mut Rng) -> BigUint {
    let mut bytes = rng.bytes(bits as usize / 8);
    bytes[0] |= 0x80;
    let last = bytes.len() - 1;
    bytes[last] |= 1;
    BigUint::from_bytes_be(&bytes)
}

/// Writes a residue with as many bytes as n.
fn residue_json(z: &BigUint, n: &BigUint) -> Json {
    hex(fixed_width(z, n.bits() as usize / 8))
}

/// Masks of several key lengths. Those of 256 bits have the moduli at the ends of the range too.
pub(super) fn masks() -> Json {
    let mut rng = Rng::new("derivation/mask");
    let mut cases = Vec::new();
    for (bits, count) in [(256, 6), (512, 4), (2048, 3), (3072, 3)] {
        let one = BigUint::from(1u8);
        let mut moduli = vec![modulus(bits, &mut rng), modulus(bits, &mut rng)];
        if bits == 256 {
            moduli.extend([(&one << (bits - 1)) + &one, (&one << bits) - &one]);
        }
        for n in moduli {
            let key = rng.digest();
            let masks = derive_masks(&key, &n, count);
            cases.push(
                object()
                    .with("key", hex(key))
                    .with("words", hex(words(&key, 130)))
                    .with("bits", number(bits))
                    .with("n", hex(n.to_bytes_be()))
                    .with("masks", list(masks.iter().map(|mask| residue_json(mask, &n)))),
            );
        }
    }
    list(cases)
}

fn draw_round(number: u64, rng: &mut Rng) -> Round {
    Round { task: rng.id(), number, ticket: rng.digest(), seed: rng.digest() }
}

fn round_json(round: &Round) -> Json {
    object()
        .with("task", hex(round.task))
        .with("round", number(round.number))
        .with("ticket", hex(round.ticket))
        .with("user_shared_seed", hex(round.seed))
}

/// All keys of a user in a round.
pub(super) fn keys() -> Json {
    let mut rng = Rng::new("derivation/mask keys");
    let n = toy_key(256).n;
    list([(1, 1), (1, 65_536), (2, 1), (3, 4_294_967_295), (17, 2), (100, 9)].map(|(round, user)| {
        let round = draw_round(round, &mut rng);
        let (seed, mask_seed) = (rng.digest(), rng.digest());
        let secrets = Secrets { user, seed, mask_seed, salt: rng.id(), blind: rng.digest() };
        let check = Check::new(&round, &n, 5);
        round_json(&round)
            .with("user", number(user))
            .with("mask_seed", hex(mask_seed))
            .with("salt", hex(secrets.salt))
            .with("blind", hex(secrets.blind))
            .with("n", hex(n.to_bytes_be()))
            .with("mask_round_seed", hex(ratchet(mask_seed, round.number)))
            .with("user_shared_round_seed", hex(ratchet(round.seed, round.number)))
            .with("key_generator_key", hex(secrets.key_generator_key(&round)))
            .with("aggregator_key", hex(secrets.aggregator_key(&round)))
            .with("check_key", hex(check.key))
            .with("rho", list(check.rho.iter().map(|rho| hex(fixed_width(rho, 16)))))
            .with("kappa", residue_json(&check.kappa, &n))
    }))
}

/// Plaintexts, each with the index of its factor.
type Terms = Vec<(usize, BigInt)>;

/// Checks of plaintexts, each with the index of its factor, and of sums of several users.
pub(super) fn checks() -> Json {
    let mut rng = Rng::new("derivation/check");
    let n = toy_key(256).n;
    let half = BigInt::from(&n / 2u8);
    let big = |rng: &mut Rng| BigInt::from(BigUint::from_bytes_be(&rng.bytes(40)) % &n) - &half;
    let cases: [(&str, usize, Terms); 10] = [
        ("no plaintexts: kappa", 1, vec![]),
        ("no plaintexts of three users: 3 kappa", 3, vec![]),
        ("one", 1, vec![(0, BigInt::from(1))]),
        ("minus one", 1, vec![(0, BigInt::from(-1))]),
        ("zeros count for nothing", 1, vec![(0, BigInt::from(0)), (3, BigInt::from(0))]),
        ("two packed plaintexts", 1, vec![(0, big(&mut rng)), (1, big(&mut rng))]),
        ("the sum of four users", 4, vec![(0, big(&mut rng)), (1, big(&mut rng)), (2, big(&mut rng))]),
        ("the sum of 65,536 users", 65_536, vec![(0, half.clone()), (1, -&half)]),
        ("positions 7 and 2 of 20, and one dense plaintext", 1, {
            vec![(7, BigInt::from(-257)), (2, BigInt::from(624)), (20, big(&mut rng))]
        }),
        ("all of ten positions", 3, (0..10).map(|p| (p, big(&mut rng))).collect()),
    ];
    list(cases.into_iter().map(|(comment, users, plaintexts)| {
        let round = draw_round(2, &mut rng);
        let check = Check::new(&round, &n, 21);
        let terms = plaintexts
            .iter()
            .map(|(i, m)| object().with("index", number(i)).with("plaintext", text(m.to_string())));
        round_json(&round)
            .with("comment", text(comment))
            .with("n", hex(n.to_bytes_be()))
            .with("users", number(users))
            .with("plaintexts", list(terms))
            .with("check", residue_json(&check.value(&n, users, &plaintexts), &n))
    }))
}
