//! `rounds.json`: whole rounds, from weights to averages, with all random values.

use num_bigint::{BigInt, BigUint};

use super::json::{Json, float_bits, floats, hex, list, number, numbers, object, text};
use super::keys;
use crate::algorithm1::{Key, Sent, aggregate, decompose, doubly_permute, permutation_matrix};
use crate::rng::Rng;
use crate::wire::derive::support_digest;
use crate::wire::fixed::{average, encode, unpack};
use crate::wire::mask::{Round, Secrets, residue_bytes};
use crate::wire::message::payload_hash;
use crate::wire::seal::{
    Opened, Sealed, Sums, check_and_decode, open, packed_plaintexts, position_plaintext, public_indices,
    seal, sum, sum_hash, unmask,
};
use crate::wire::task::{Policy, Profile, Receipts};

const DESCRIPTION: &str = "Whole rounds of docs/protocol.md: weights of every user, what each drew (rows, nonces, \
salt, blind), the content of its upload, the sum, the payload, the published sum, the average. `printed_sums` is what \
Algorithm 1 of the paper gives as printed, with Enc0, Y and Z. Keys are toys.";

/// A user in a case.
pub struct User {
    /// The seeds and random values.
    pub secrets: Secrets,
    /// The weights.
    pub weights: Vec<f64>,
    /// The dense values.
    pub dense: Vec<f64>,
}

/// One round.
pub struct Case {
    /// The name, which is also the label of its randomness.
    pub id: String,
    /// A description.
    pub comment: &'static str,
    /// The policy.
    pub policy: Policy,
    /// The round.
    pub round: u64,
    /// The number of positions that each user occupies.
    pub occupied: Vec<u32>,
}

/// A round that has been run.
pub struct Run {
    /// The round.
    pub round: Round,
    /// The key.
    pub key: Key,
    /// The users.
    pub users: Vec<User>,
    /// The support, if it is public.
    pub support: Option<Vec<u32>>,
    /// The uploads of all users.
    pub sealed: Vec<Sealed>,
    /// The sum as bytes.
    pub sum: Vec<u8>,
    /// The occupied positions of the sum.
    pub occupied: u32,
    /// The payload of the result.
    pub payload: Vec<u8>,
    /// The sum that A publishes.
    pub published: Vec<u8>,
    /// The sums.
    pub sums: Sums,
    /// The nonce of Enc0.
    pub enc0_nonce: BigUint,
    /// The sums by Algorithm 1 as printed.
    pub printed: Vec<i64>,
}

/// Returns a policy to start from.
pub fn base_policy(profile: Profile, key_bits: u32) -> Policy {
    Policy {
        profile,
        receipts: Receipts::None,
        key_bits,
        dimension: 20,
        dense: 0,
        block: 1,
        capacity: 5,
        shards: 1,
        scale_bits: 8,
        clip_exponent: 2,
        clip: false,
        min_users: 3,
        min_percent: 0,
        max_users: 8,
        max_attempts: 3,
        max_model_bytes: 4096,
        rounds: 1000,
        collect_min: 0,
        outsize: 0,
        max_failures: 8,
    }
}

/// Draws a weight. Most are not representable and must be rounded, some are at the bound.
fn weight(policy: &Policy, rng: &mut Rng) -> f64 {
    let bound = 2f64.powi(i32::from(policy.clip_exponent));
    let unit = 2f64.powi(-i32::from(policy.scale_bits));
    let w = match rng.below(12) {
        0 => bound,
        1 => -bound,
        2 => unit,
        // a tie, which rounds to even
        3 => -2.5 * unit,
        _ => (rng.below(2_000_001) as f64 / 1_000_000.0 - 1.0) * bound,
    };
    // no weight may round to zero, because that would change the number of occupied positions
    if w.abs() < unit { unit } else { w }
}

/// Draws the weights of a user who occupies this many positions.
fn weights(policy: &Policy, support: Option<&[u32]>, occupied: u32, rng: &mut Rng) -> Vec<f64> {
    let mut weights = vec![0.0; policy.dimension as usize];
    let positions = support.map_or_else(|| (0..policy.positions()).collect(), <[u32]>::to_vec);
    let positions: Vec<u32> = rng.shuffled(positions).into_iter().take(occupied as usize).collect();
    for b in positions {
        let first = b * policy.block;
        let last = (first + policy.block).min(policy.dimension);
        // one weight of a block is always nonzero, the others may be
        weights[rng.below((last - first) as usize) + first as usize] = weight(policy, rng);
        for i in first..last {
            if rng.below(2) == 0 {
                weights[i as usize] = weight(policy, rng);
            }
        }
    }
    weights
}

impl Case {
    /// Runs the round.
    pub fn run(&self) -> Run {
        let policy = &self.policy;
        assert!(policy.is_valid(), "{}", self.id);
        let mut rng = Rng::new(&format!("rounds/{}", self.id));
        let mut masks = Rng::new(&format!("rounds/{}/masks", self.id));
        let key = keys::toy_key(policy.key_bits);
        let round = Round { task: rng.id(), number: self.round, seed: rng.digest(), ticket: masks.digest() };
        let support = round.support(policy);

        let mut users = Vec::new();
        for (i, &occupied) in self.occupied.iter().enumerate() {
            let dense = (0..policy.dense).map(|_| weight(policy, &mut rng)).collect();
            // ids need not be 1, 2, 3
            let user = i as u32 + 1 + (i as u32 / 2) * 3;
            let weights = weights(policy, support.as_deref(), occupied, &mut rng);
            let (mask_seed, salt, blind) = (masks.digest(), masks.id(), masks.digest());
            let secrets = Secrets { user, seed: rng.digest(), mask_seed, salt, blind };
            users.push(User { secrets, weights, dense });
        }

        let seal_one = |user: &User, rng: &mut Rng| {
            let (weights, dense) = (encoded(policy, &user.weights), encoded(policy, &user.dense));
            seal(policy, &key, &round, &user.secrets, (&weights, &dense), rng)
        };
        let sealed: Vec<Sealed> = users.iter().map(|user| seal_one(user, &mut rng)).collect();
        let secrets: Vec<&Secrets> = users.iter().map(|user| &user.secrets).collect();
        let uploads: Vec<(&Secrets, &[u8])> =
            secrets.iter().copied().zip(sealed.iter().map(|sealed| &sealed.content[..])).collect();
        let total = sum(policy, &key, &round, &uploads);
        let opened = open(policy, &key, &round, &secrets, &total).expect("honest users pass the check");
        let payload = opened.payload(policy);
        let (published, sums) = match opened {
            Opened::Sums(sums) => (payload.clone(), sums),
            Opened::Residues(residues) => {
                let z = unmask(&key, &round, &secrets, &residues);
                let sums = check_and_decode(policy, &key, &round, users.len(), &z);
                (residue_bytes(policy, &z), sums.expect("honest users stay in range"))
            }
        };
        let enc0_nonce = rng.nonce(&key.n);
        let mut run = Run {
            round,
            users,
            support,
            sealed,
            sum: total.bytes(policy, &key),
            occupied: total.occupied(),
            payload,
            published,
            sums,
            enc0_nonce,
            printed: vec![],
            key,
        };
        run.printed = run.algorithm1(policy);
        run
    }
}

/// Encodes weights as integers.
pub fn encoded(policy: &Policy, weights: &[f64]) -> Vec<i64> {
    weights.iter().map(|&w| encode(policy, w).expect("weights of the cases are in range")).collect()
}

impl Run {
    /// Computes the same round by Algorithm 1 as printed. Positions take the place of its coordinates, and shards
    /// arrive "as if they are individual data". With a public support, M = D and there is no permutation. It knows no
    /// masks and no check.
    fn algorithm1(&self, policy: &Policy) -> Vec<i64> {
        let enc0 = self.key.encrypt(&BigInt::from(0), &self.enc0_nonce);
        if let Some(support) = &self.support {
            let length = packed_plaintexts(policy, Some(support));
            let all: Vec<u32> = (0..length as u32).collect();
            let identity = permutation_matrix(&all);
            let send = |sealed: &Sealed| Sent {
                enc_v: sealed.plain_ciphertexts(&self.key)[..length].to_vec(),
                doubly_permuted: identity.clone(),
                phi_n: identity.clone(),
            };
            let sent: Vec<Sent> = self.sealed.iter().map(send).collect();
            let opened = aggregate(&self.key, &identity, &sent, &enc0);
            let unpacked = self.unpacked(policy, &opened, policy.slots());
            return unpacked.into_iter().take(public_indices(policy, support).len()).collect();
        }
        let phi = permutation_matrix(&self.round.shared(policy));
        let mut sent = Vec::new();
        for (user, sealed) in self.users.iter().zip(&self.sealed) {
            let phi_n = permutation_matrix(&self.round.own(policy, &user.secrets));
            let weights = encoded(policy, &user.weights);
            let mut ciphertexts = sealed.plain_ciphertexts(&self.key).into_iter();
            for (rows, columns) in sealed.rows.iter().zip(&sealed.dealt) {
                let mut w = vec![BigInt::from(0); policy.positions() as usize];
                for column in columns.iter().filter(|column| !column.pad) {
                    w[column.row as usize] = position_plaintext(policy, &weights, column.row);
                }
                let (v, k) = decompose(&w, rows);
                let enc_v: Vec<BigUint> = ciphertexts.by_ref().take(v.len()).collect();
                // line 3 gives the vector that was encrypted
                assert!(v.iter().zip(&enc_v).all(|(m, c)| self.key.decrypt(c) == *m));
                sent.push(Sent {
                    enc_v,
                    doubly_permuted: doubly_permute(&phi, &phi_n, &k),
                    phi_n: phi_n.clone(),
                });
            }
        }
        let opened = aggregate(&self.key, &phi, &sent, &enc0);
        let unpacked = self.unpacked(policy, &opened, policy.block as usize);
        unpacked.into_iter().take(policy.dimension as usize).collect()
    }

    fn unpacked(&self, policy: &Policy, opened: &[BigInt], count: usize) -> Vec<i64> {
        opened.iter().filter_map(|m| unpack(policy, m, count, self.users.len())).flatten().collect()
    }
}

/// Returns a policy as JSON.
pub fn policy_json(policy: &Policy) -> Json {
    object()
        .with("profile", text(policy.profile.name()))
        .with("noise", text("secure"))
        .with("receipts", text(policy.receipts.name()))
        .with("key_bits", number(policy.key_bits))
        .with("dimension", number(policy.dimension))
        .with("dense", number(policy.dense))
        .with("block", number(policy.block))
        .with("capacity", number(policy.capacity))
        .with("shards", number(policy.shards))
        .with("scale_bits", number(policy.scale_bits))
        .with("clip_exponent", number(policy.clip_exponent))
        .with("clip_rule", number(u8::from(policy.clip)))
        .with("min_users", number(policy.min_users))
        .with("min_percent", number(policy.min_percent))
        .with("max_users", number(policy.max_users))
        .with("max_attempts", number(policy.max_attempts))
        .with("max_model_bytes", number(policy.max_model_bytes))
        .with("rounds", number(policy.rounds))
        .with("collect_min", number(policy.collect_min))
        .with("outsize", number(policy.outsize))
        .with("max_failures", number(policy.max_failures))
}

/// Returns `a(u)`, or null if the content does not begin with it.
pub fn blind_json(policy: &Policy, secrets: &Secrets) -> Json {
    if policy.receipts == Receipts::Masked { hex(secrets.blind) } else { number("null") }
}

fn user_json(policy: &Policy, user: &User, sealed: &Sealed) -> Json {
    let shards = sealed.rows.iter().zip(&sealed.slots);
    let shards =
        shards.map(|(rows, slots)| object().with("rows", numbers(rows)).with("slots", numbers(slots)));
    let secrets = &user.secrets;
    let plaintexts = |all: &[BigInt]| list(all.iter().map(|m| text(m.to_string())));
    let masked = policy.receipts != Receipts::None;
    let unmasked = if masked { plaintexts(&sealed.unmasked) } else { number("null") };
    object()
        .with("user", number(secrets.user))
        .with("user_aggregator_seed", hex(secrets.seed))
        .with("mask_seed", hex(secrets.mask_seed))
        .with("salt", hex(secrets.salt))
        .with("blind", blind_json(policy, secrets))
        .with("weights", floats(&user.weights))
        .with("weights_bits", float_bits(&user.weights))
        .with("dense", floats(&user.dense))
        .with("dense_bits", float_bits(&user.dense))
        .with("encoded", numbers(encoded(policy, &user.weights)))
        .with("dense_encoded", numbers(encoded(policy, &user.dense)))
        .with("shards", list(shards))
        .with("unmasked", unmasked)
        .with("plaintexts", plaintexts(&sealed.plaintexts))
        .with("nonces", list(sealed.nonces.iter().map(|r| hex(r.to_bytes_be()))))
        .with("count", number(sealed.count()))
        .with("body", hex(&sealed.content))
}

impl Case {
    fn json(&self) -> Json {
        let run = self.run();
        let policy = &self.policy;
        let users = run.users.iter().zip(&run.sealed).map(|(user, sealed)| user_json(policy, user, sealed));
        let averages = |sums: &[i64]| -> Vec<f64> {
            sums.iter().map(|&sum| average(policy, sum, run.users.len())).collect()
        };
        let Sums { weights, dense } = &run.sums;
        let support = run.support.as_ref().map_or_else(|| number("null"), numbers);
        object()
            .with("id", text(&*self.id))
            .with("comment", text(self.comment))
            .with("task", hex(run.round.task))
            .with("round", number(self.round))
            .with("ticket", hex(run.round.ticket))
            .with("receipts", text(policy.receipts.name()))
            .with("policy", policy_json(policy))
            .with("policy_bytes", hex(policy.bytes()))
            .with("policy_hash", hex(policy.hash()))
            .with("positions", number(policy.positions()))
            .with("slot_bits", number(policy.slot_bits()))
            .with("slots", number(policy.slots()))
            .with("key", keys::json(&run.key))
            .with("user_shared_seed", hex(run.round.seed))
            .with("support", support)
            .with("support_digest", hex(support_digest(run.support.as_deref().unwrap_or(&[]))))
            .with("users", list(users))
            .with("occupied", number(run.occupied))
            .with("sum", hex(&run.sum))
            .with("sum_hash", hex(sum_hash(&run.sum)))
            .with("payload", hex(&run.payload))
            .with("payload_hash", hex(payload_hash(&run.payload)))
            .with("published", hex(&run.published))
            .with("published_hash", hex(payload_hash(&run.published)))
            .with("sums", numbers(weights))
            .with("dense_sums", numbers(dense))
            .with("enc0_nonce", hex(run.enc0_nonce.to_bytes_be()))
            .with("printed_sums", numbers(&run.printed))
            .with("average", floats(&averages(weights)))
            .with("average_bits", float_bits(&averages(weights)))
            .with("dense_average", floats(&averages(dense)))
            .with("dense_average_bits", float_bits(&averages(dense)))
    }
}

/// Returns all rounds.
pub fn cases() -> Vec<Case> {
    use Profile::{Full, Paper, Sparse};
    let mut cases = Vec::new();
    let mut add = |name: &str, comment: &'static str, policy: Policy, rounds: &[u64], occupied: &[u32]| {
        for &round in rounds {
            let id = format!("{name}-round-{round}");
            cases.push(Case { id, comment, policy: policy.clone(), round, occupied: occupied.to_vec() });
        }
    };
    let sparse = base_policy(Sparse, 256);
    add("sparse-b1", "one weight a position, one shard", sparse.clone(), &[1, 2], &[5, 3, 0, 4]);
    let policy = Policy { dense: 4, ..sparse.clone() };
    add("sparse-b1-dense", "with dense values", policy, &[1], &[5, 2, 1]);
    let policy = Policy { shards: 2, capacity: 4, ..sparse.clone() };
    add("sparse-b1-f2", "two shards, all positions of an upload distinct", policy, &[1], &[8, 3, 0, 5, 6]);
    let policy = Policy { block: 3, dimension: 40, capacity: 4, dense: 20, ..sparse.clone() };
    add("sparse-b3", "blocks of three, the last one short; two dense plaintexts", policy, &[1], &[4, 2, 3]);
    let policy =
        Policy { block: 3, dimension: 30, capacity: 2, shards: 2, clip_exponent: -3, ..sparse.clone() };
    add("sparse-b3-f2", "weights within an eighth", policy, &[2], &[4, 1, 2, 3, 4, 0]);
    let policy = Policy { block: 18, dimension: 80, capacity: 2, dense: 1, ..sparse.clone() };
    add("sparse-whole-blocks", "as many weights in a position as fit", policy, &[1], &[2, 1, 2]);
    let policy = Policy { capacity: 20, ..sparse.clone() };
    add("sparse-m-is-p", "every position in every upload", policy, &[1], &[20, 7, 0]);
    let policy = Policy { clip: true, clip_exponent: 16, scale_bits: 31, max_users: 65_536, ..sparse };
    add("sparse-64-bit-slots", "the widest slots there are", policy, &[1], &[5, 5, 5]);
    let big = Policy { block: 7, dimension: 50, capacity: 3, dense: 2, ..base_policy(Sparse, 512) };
    add("sparse-512", "a longer key", big, &[1], &[3, 1, 2]);

    let full = Policy { capacity: 20, ..base_policy(Full, 256) };
    add("full-whole", "the whole vector", full.clone(), &[1, 2], &[20, 9, 0]);
    let policy = Policy { dense: 5, dimension: 50, capacity: 50, ..full.clone() };
    add(
        "full-whole-dense",
        "dense values share the last plaintext with weights",
        policy,
        &[1],
        &[50, 20, 30, 1],
    );
    let policy = Policy { capacity: 7, ..full.clone() };
    add("full-rotating", "three shares, the last one short; two passes", policy, &[1, 3, 4], &[7, 2, 5]);
    let policy = Policy { capacity: 2, block: 4, dimension: 18, dense: 3, ..full };
    add("full-blocks", "positions of four weights, the last one of two", policy, &[1, 3], &[2, 1, 0, 1]);
    let policy = Policy { dimension: 101, capacity: 60, dense: 1, scale_bits: 16, ..base_policy(Full, 512) };
    add("full-512", "a longer key", policy, &[1], &[41, 30, 12]);

    let paper = Policy { shards: 3, capacity: 4, ..base_policy(Paper, 256) };
    add("paper", "one, two and three shards", paper.clone(), &[1, 2], &[4, 5, 12, 0]);
    let policy = Policy { dense: 3, dimension: 13, ..paper.clone() };
    add("paper-dense", "pads fall on values of other shards", policy, &[1, 5], &[11, 12, 3, 8, 1]);
    let policy = Policy { key_bits: 512, shards: 1, capacity: 20, ..paper };
    add("paper-512", "M = D", policy, &[1], &[20, 6, 3]);

    let sparse = Policy { receipts: Receipts::Checked, ..base_policy(Sparse, 256) };
    add(
        "checked-b1",
        "with a check; nothing is packed but the check",
        sparse.clone(),
        &[1, 7],
        &[5, 3, 0, 4],
    );
    let policy = Policy { dense: 4, ..sparse.clone() };
    add("checked-b1-dense", "with a check and dense values", policy, &[2], &[5, 2, 1]);
    let policy = Policy { shards: 2, capacity: 4, dense: 1, ..sparse.clone() };
    add("checked-b1-f2", "with a check and two shards", policy, &[3], &[8, 3, 0, 5, 6]);
    let policy = Policy { block: 3, dimension: 40, capacity: 4, dense: 20, ..sparse.clone() };
    add("checked-b3", "with a check, blocks and two dense plaintexts", policy, &[4], &[4, 2, 3]);
    let policy = Policy { capacity: 20, block: 1, ..sparse };
    add("checked-m-is-p", "with a check, every position in every upload", policy, &[1], &[20, 7, 0]);
    let big = Policy { block: 7, dimension: 50, capacity: 3, dense: 2, ..base_policy(Sparse, 512) };
    let policy = Policy { receipts: Receipts::Checked, ..big };
    add("checked-512", "with a check and a longer key", policy, &[2], &[3, 1, 2]);

    let full = Policy { capacity: 20, receipts: Receipts::Masked, ..base_policy(Full, 256) };
    add("masked-whole", "masked: the whole vector", full.clone(), &[1, 2], &[20, 9, 0]);
    let policy = Policy { dense: 5, dimension: 50, capacity: 50, ..full.clone() };
    add("masked-whole-dense", "masked, with dense values", policy, &[1], &[50, 20, 30, 1]);
    let policy = Policy { capacity: 7, ..full.clone() };
    add("masked-rotating", "masked: three shares, the last one short", policy, &[1, 3, 4, 6], &[7, 2, 5]);
    let policy = Policy { capacity: 2, block: 4, dimension: 18, dense: 3, ..full.clone() };
    add("masked-blocks", "masked: positions of four weights", policy, &[1, 3, 5], &[2, 1, 0, 1]);
    let policy = Policy { clip: true, clip_exponent: 16, scale_bits: 31, max_users: 65_536, ..full };
    add("masked-64-bit-slots", "masked, with the widest slots", policy, &[1], &[5, 20, 5]);
    let policy = Policy { dimension: 101, capacity: 60, dense: 1, scale_bits: 16, ..base_policy(Full, 512) };
    let policy = Policy { receipts: Receipts::Masked, ..policy };
    add("masked-512", "masked, with a longer key", policy, &[2], &[41, 30, 12]);
    cases
}

/// Returns the file.
pub fn file() -> Json {
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 3 to 6"))
        .with("cases", list(cases().iter().map(Case::json)))
}
