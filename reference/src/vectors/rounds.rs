//! `rounds.json`: whole rounds, from weights to averages, with all random values.

use num_bigint::{BigInt, BigUint};

use super::json::{Json, float_bits, floats, hex, list, number, numbers, object, text};
use super::keys;
use crate::algorithm1::{Key, Sent, aggregate, decompose, doubly_permute, permutation_matrix};
use crate::rng::Rng;
use crate::wire::derive::{Digest, Task, rotation, support_digest, user_aggregator, user_shared};
use crate::wire::fixed::{average, encode, unpack};
use crate::wire::message::{body_hash, payload_hash};
use crate::wire::seal::{
    Column, Permutations, Sealed, deal, open, packed_ciphertexts, payload, position_plaintext,
    public_indices, seal_private, seal_public, sum, sum_hash,
};
use crate::wire::task::{Policy, Profile};

const DESCRIPTION: &str = "Whole rounds of docs/protocol.md: weights of every user, what each drew (rows, nonces), \
the bytes it uploads, the sum, the payload, the average. `printed_sums` is what Algorithm 1 of the paper gives as \
printed, with Enc0, Y and Z. Keys are toys.";

/// A user in a case.
pub struct User {
    /// The id.
    pub user: u32,
    /// The first seed that it shares with A.
    pub seed: Digest,
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
    /// The task.
    pub task: Task,
    /// The key.
    pub key: Key,
    /// The first seed that users and G share.
    pub seed: Digest,
    /// The users.
    pub users: Vec<User>,
    /// `phi_t`, if the support is private.
    pub shared: Vec<u32>,
    /// The support, if it is public.
    pub support: Option<Vec<u32>>,
    /// The columns of K in each shard of each user, for Algorithm 1.
    pub dealt: Vec<Vec<Vec<Column>>>,
    /// The uploads of all users.
    pub sealed: Vec<Sealed>,
    /// The sum as bytes.
    pub sum: Vec<u8>,
    /// The occupied positions of the sum.
    pub occupied: u32,
    /// The sums of weights.
    pub sums: Vec<i64>,
    /// The sums of dense values.
    pub dense_sums: Vec<i64>,
    /// The nonce of Enc0.
    pub enc0_nonce: BigUint,
    /// The sums by Algorithm 1 as printed.
    pub printed: Vec<i64>,
}

/// Returns a policy to start from.
pub fn base_policy(profile: Profile, key_bits: u32) -> Policy {
    Policy {
        profile,
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
        let paper = policy.profile == Profile::Paper;
        let mut rng = Rng::new(&format!("rounds/{}", self.id));
        let (key, task, seed) = (keys::toy_key(policy.key_bits), rng.id(), rng.digest());
        let positions = policy.positions();
        let public = policy.profile == Profile::Full;
        let support = public.then(|| rotation(&task, self.round, positions, policy.capacity));
        let shared = if public { vec![] } else { user_shared(paper, seed, &task, self.round, positions) };

        let mut users = Vec::new();
        for (i, &occupied) in self.occupied.iter().enumerate() {
            let dense = (0..policy.dense).map(|_| weight(policy, &mut rng)).collect();
            // ids need not be 1, 2, 3
            let user = i as u32 + 1 + (i as u32 / 2) * 3;
            let weights = weights(policy, support.as_deref(), occupied, &mut rng);
            users.push(User { user, seed: rng.digest(), weights, dense });
        }

        let (mut dealt, mut sealed, mut uploads) = (Vec::new(), Vec::new(), Vec::new());
        for user in &users {
            let (weights, dense) = (encoded(policy, &user.weights), encoded(policy, &user.dense));
            let one = if let Some(support) = &support {
                uploads.push(vec![]);
                dealt.push(vec![]);
                seal_public(policy, &key, support, &weights, &dense, &mut rng)
            } else {
                let own = user_aggregator(paper, user.seed, &task, self.round, user.user, positions);
                let shards = deal(policy, &weights, &mut rng);
                let permutations = Permutations { shared: &shared, own: &own };
                let one = seal_private(policy, &key, &permutations, &weights, &dense, &shards, &mut rng);
                dealt.push(shards);
                uploads.push(own);
                one
            };
            sealed.push(one);
        }
        let uploads: Vec<(Vec<u32>, Vec<u8>)> =
            uploads.into_iter().zip(&sealed).map(|(own, sealed)| (own, sealed.body.clone())).collect();
        let total = sum(policy, &key, support.as_deref(), &uploads);
        let (sums, dense_sums) =
            open(policy, &key, &shared, support.as_deref(), &total).expect("honest users stay in range");
        let enc0_nonce = rng.nonce(&key.n);
        let mut run = Run {
            task,
            seed,
            users,
            shared,
            support,
            dealt,
            sealed,
            sum: total.bytes(policy, &key),
            occupied: total.occupied(),
            sums,
            dense_sums,
            enc0_nonce,
            printed: vec![],
            key,
        };
        run.printed = run.algorithm1(policy, paper, self.round);
        run
    }
}

/// Encodes weights as integers.
pub fn encoded(policy: &Policy, weights: &[f64]) -> Vec<i64> {
    weights.iter().map(|&w| encode(policy, w).expect("weights of the cases are in range")).collect()
}

impl Run {
    /// Computes the same round by Algorithm 1 as printed. Positions take the place of its coordinates, and shards
    /// arrive "as if they are individual data". With a public support, M = D and there is no permutation.
    fn algorithm1(&self, policy: &Policy, paper: bool, round: u64) -> Vec<i64> {
        let enc0 = self.key.encrypt(&BigInt::from(0), &self.enc0_nonce);
        if let Some(support) = &self.support {
            let length = packed_ciphertexts(policy, Some(support));
            let all: Vec<u32> = (0..length as u32).collect();
            let identity = permutation_matrix(&all);
            let send = |sealed: &Sealed| Sent {
                enc_v: sealed.ciphertexts(&self.key),
                doubly_permuted: identity.clone(),
                phi_n: identity.clone(),
            };
            let sent: Vec<Sent> = self.sealed.iter().map(send).collect();
            let opened = aggregate(&self.key, &identity, &sent, &enc0);
            let unpacked = opened.iter().filter_map(|m| unpack(policy, m, policy.slots())).flatten();
            return unpacked.take(public_indices(policy, support).len()).collect();
        }
        let phi = permutation_matrix(&self.shared);
        let mut sent = Vec::new();
        for ((user, sealed), dealt) in self.users.iter().zip(&self.sealed).zip(&self.dealt) {
            let own = user_aggregator(paper, user.seed, &self.task, round, user.user, policy.positions());
            let phi_n = permutation_matrix(&own);
            let weights = encoded(policy, &user.weights);
            let mut ciphertexts = sealed.ciphertexts(&self.key).into_iter();
            for (rows, columns) in sealed.rows.iter().zip(dealt) {
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
        let unpacked = opened.iter().filter_map(|m| unpack(policy, m, policy.block as usize)).flatten();
        unpacked.take(policy.dimension as usize).collect()
    }
}

/// Returns a policy as JSON.
pub fn policy_json(policy: &Policy) -> Json {
    object()
        .with("profile", text(policy.profile.name()))
        .with("noise", text("secure"))
        .with("receipts", number(0))
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
}

fn user_json(policy: &Policy, user: &User, sealed: &Sealed) -> Json {
    let shards = sealed.rows.iter().zip(&sealed.slots);
    let shards =
        shards.map(|(rows, slots)| object().with("rows", numbers(rows)).with("slots", numbers(slots)));
    object()
        .with("user", number(user.user))
        .with("user_aggregator_seed", hex(user.seed))
        .with("weights", floats(&user.weights))
        .with("weights_bits", float_bits(&user.weights))
        .with("dense", floats(&user.dense))
        .with("dense_bits", float_bits(&user.dense))
        .with("encoded", numbers(encoded(policy, &user.weights)))
        .with("dense_encoded", numbers(encoded(policy, &user.dense)))
        .with("shards", list(shards))
        .with("plaintexts", list(sealed.plaintexts.iter().map(|m| text(m.to_string()))))
        .with("nonces", list(sealed.nonces.iter().map(|r| hex(r.to_bytes_be()))))
        .with("count", number(sealed.count()))
        .with("body", hex(&sealed.body))
        .with("body_hash", hex(body_hash(&sealed.body)))
}

impl Case {
    fn json(&self) -> Json {
        let run = self.run();
        let policy = &self.policy;
        let users = run.users.iter().zip(&run.sealed).map(|(user, sealed)| user_json(policy, user, sealed));
        let averages = |sums: &[i64]| -> Vec<f64> {
            sums.iter().map(|&sum| average(policy, sum, run.users.len())).collect()
        };
        let payload = payload(policy, &run.sums, &run.dense_sums);
        let support = run.support.as_ref().map_or_else(|| number("null"), numbers);
        object()
            .with("id", text(&*self.id))
            .with("comment", text(self.comment))
            .with("task", hex(run.task))
            .with("round", number(self.round))
            .with("policy", policy_json(policy))
            .with("policy_bytes", hex(policy.bytes()))
            .with("policy_hash", hex(policy.hash()))
            .with("positions", number(policy.positions()))
            .with("slot_bits", number(policy.slot_bits()))
            .with("slots", number(policy.slots()))
            .with("key", keys::json(&run.key))
            .with("user_shared_seed", hex(run.seed))
            .with("support", support)
            .with("support_digest", hex(support_digest(run.support.as_deref().unwrap_or(&[]))))
            .with("users", list(users))
            .with("occupied", number(run.occupied))
            .with("sum", hex(&run.sum))
            .with("sum_hash", hex(sum_hash(&run.sum)))
            .with("payload", hex(&payload))
            .with("payload_hash", hex(payload_hash(&payload)))
            .with("sums", numbers(&run.sums))
            .with("dense_sums", numbers(&run.dense_sums))
            .with("enc0_nonce", hex(run.enc0_nonce.to_bytes_be()))
            .with("printed_sums", numbers(&run.printed))
            .with("average", floats(&averages(&run.sums)))
            .with("average_bits", float_bits(&averages(&run.sums)))
            .with("dense_average", floats(&averages(&run.dense_sums)))
            .with("dense_average_bits", float_bits(&averages(&run.dense_sums)))
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
    add("sparse-b1", "one weight a position, one shard", sparse.clone(), &[1, 2, 7], &[5, 3, 0, 4]);
    let policy = Policy { dense: 4, ..sparse.clone() };
    add("sparse-b1-dense", "with dense values", policy, &[1, 2], &[5, 2, 1]);
    let policy = Policy { shards: 2, capacity: 4, ..sparse.clone() };
    add("sparse-b1-f2", "two shards, all positions of an upload distinct", policy, &[1, 3], &[8, 3, 0, 5, 6]);
    let policy = Policy { block: 3, dimension: 40, capacity: 4, dense: 20, ..sparse.clone() };
    add(
        "sparse-b3",
        "blocks of three, the last one short; two dense plaintexts",
        policy,
        &[1, 4],
        &[4, 2, 3],
    );
    let policy =
        Policy { block: 3, dimension: 30, capacity: 2, shards: 2, clip_exponent: -3, ..sparse.clone() };
    add("sparse-b3-f2", "weights within an eighth", policy, &[2], &[4, 1, 2, 3, 4, 0]);
    let policy = Policy { block: 18, dimension: 80, capacity: 2, dense: 1, ..sparse.clone() };
    add("sparse-whole-blocks", "as many weights in a position as fit", policy, &[1, 2], &[2, 1, 2]);
    let policy = Policy { capacity: 20, ..sparse.clone() };
    add("sparse-m-is-p", "every position in every upload", policy, &[1], &[20, 7, 0]);
    let policy = Policy { clip: true, clip_exponent: 16, scale_bits: 31, max_users: 65_536, ..sparse };
    add("sparse-64-bit-slots", "the widest slots there are", policy, &[1], &[5, 5, 5]);
    let big = Policy { block: 7, dimension: 50, capacity: 3, dense: 2, ..base_policy(Sparse, 512) };
    add("sparse-512", "a longer key", big, &[1, 2], &[3, 1, 2]);

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
    add(
        "full-rotating",
        "three shares, the last one short; two passes",
        policy,
        &[1, 2, 3, 4, 6],
        &[7, 2, 5],
    );
    let policy = Policy { capacity: 2, block: 4, dimension: 18, dense: 3, ..full };
    add(
        "full-blocks",
        "positions of four weights, the last one of two",
        policy,
        &[1, 2, 3, 5],
        &[2, 1, 0, 1],
    );
    let policy = Policy { dimension: 101, capacity: 60, dense: 1, scale_bits: 16, ..base_policy(Full, 512) };
    add("full-512", "a longer key", policy, &[1, 2], &[41, 30, 12]);

    let paper = Policy { shards: 3, capacity: 4, ..base_policy(Paper, 256) };
    add("paper", "one, two and three shards", paper.clone(), &[1, 2], &[4, 5, 12, 0]);
    let policy = Policy { dense: 3, dimension: 13, ..paper.clone() };
    add("paper-dense", "pads fall on values of other shards", policy, &[1, 5], &[11, 12, 3, 8, 1]);
    let policy = Policy { key_bits: 512, shards: 1, capacity: 20, ..paper };
    add("paper-512", "M = D", policy, &[1], &[20, 6, 3]);
    cases
}

/// Returns the file.
pub fn file() -> Json {
    object()
        .with("description", text(DESCRIPTION))
        .with("spec", text("docs/protocol.md, sections 3 to 6"))
        .with("cases", list(cases().iter().map(Case::json)))
}
