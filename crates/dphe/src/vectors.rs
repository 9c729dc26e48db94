//! Tests of private functions against `vectors/derivation.json`.

use serde_json::Value;

use crate::hash::hash;
use crate::scheme::fixed_point::FixedPoint;
use crate::scheme::permutation::{Permutation, UserSharedSeed};
use crate::wire::roster_change;
use crate::{ClipRule, Digest, Profile, Round, TaskConfig, TaskId, UserId};

fn load() -> Value {
    serde_json::from_str(include_str!("../../../vectors/derivation.json")).unwrap()
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(value: &Value) -> [u8; N] {
    hex(value).try_into().unwrap()
}

fn number<T: TryFrom<i64>>(value: &Value) -> T {
    T::try_from(value.as_i64().unwrap()).ok().unwrap()
}

fn list<'a>(all: &'a Value, name: &str) -> &'a Vec<Value> {
    let list = all[name].as_array().unwrap();
    assert!(!list.is_empty());
    list
}

fn table(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(number).collect()
}

#[test]
fn hashes_shuffles_and_ratchets_match_the_vectors() {
    let all = load();
    for entry in list(&all, "hash") {
        let parts: Vec<Vec<u8>> = entry["parts"].as_array().unwrap().iter().map(hex).collect();
        let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        assert_eq!(hash(entry["domain"].as_str().unwrap(), &parts).as_bytes()[..], hex(&entry["digest"]));
    }
    for entry in list(&all, "shuffle") {
        let shuffled = Permutation::shuffle(&array(&entry["key"]), number(&entry["positions"]));
        assert_eq!(shuffled.table(), table(&entry["permutation"]));
    }
    let config = TaskConfig::new(Profile::Sparse, 1, 10, 3);
    let task = crate::TaskParams::new(TaskId::from_bytes([0; 16]), config).unwrap();
    for entry in list(&all, "ratchet") {
        let mut seed = UserSharedSeed::from_parts(Round::FIRST, array(&entry["seed"]));
        seed.advance(&task, Round::new(number(&entry["round"])).unwrap());
        assert_eq!(seed.to_parts().1[..], hex(&entry["round_seed"]));
    }
}

#[test]
fn fixed_point_encoding_matches_the_vectors() {
    let all = load();
    for entry in list(&all, "fixed_point") {
        let rule = if entry["clip_rule"] == 1 { ClipRule::Clip } else { ClipRule::Refuse };
        let fixed = FixedPoint::new(number(&entry["scale_bits"]), number(&entry["clip_exponent"]), rule);
        let value = f64::from_bits(u64::from_str_radix(entry["bits"].as_str().unwrap(), 16).unwrap());
        match (fixed.encode_all(&[value]), entry["encoded"].as_i64()) {
            (Ok((encoded, _)), Some(expected)) => assert_eq!(encoded[0], expected, "{entry}"),
            (Err(error), None) => assert_eq!(error.code().as_str(), entry["error"].as_str().unwrap()),
            (found, _) => panic!("{entry}: {found:?}"),
        }
    }
}

#[test]
fn seeds_and_histories_of_changed_rosters_match_the_vectors() {
    let all = load();
    for case in list(&all, "roster_seed") {
        let (mask, roster) =
            (array(&case["mask_round_seed"]), Digest::from_bytes(array(&case["roster_hash"])));
        let (salt, seed) = (array(&case["salt"]), array(&case["user_shared_seed"]));
        let user = UserId::new(number(&case["user"])).unwrap();
        let key = roster_change::hiding_key_of(&mask, roster, &salt, user);
        assert_eq!(*roster_change::xor(&seed, &key), array(&case["hidden"]));
        assert_eq!(*roster_change::check_of(roster, &seed).as_bytes(), array(&case["check"]));
    }
    for case in list(&all, "roster_history") {
        let before = Digest::from_bytes(array(&case["history_before"]));
        let roster = Digest::from_bytes(array(&case["roster_hash"]));
        let after = crate::party::history_with_roster(before, roster);
        assert_eq!(*after.as_bytes(), array(&case["history"]));
    }
}
