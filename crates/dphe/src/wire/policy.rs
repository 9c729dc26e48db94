//! The policy of a task: its description without its name (docs/protocol.md, section 3).

use dphe_paillier::NoiseMode;

use super::codec::{Encode, Reader, Writer};
use super::domains;
use crate::hash::hash;
use crate::{ClipRule, Digest, Error, KeyLengths, Profile, Receipts, TaskConfig, TaskId, TaskParams};

/// The length of an encoded policy.
pub(super) const POLICY_BYTES: usize = 85;
const VERSION: u8 = 2;
/// Differential privacy is not implemented: six numbers that are zero.
const NO_PRIVACY: [u8; 24] = [0; 24];

impl TaskParams {
    /// Returns the hash of the policy, on which all parties agree.
    pub fn policy_hash(&self) -> Digest {
        hash(domains::POLICY, &[&self.config().to_bytes()])
    }

    /// Returns the name and the policy of the task as bytes, which are public.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.id().as_bytes()[..], &self.config().to_bytes()].concat()
    }

    /// Reads what [`TaskParams::to_bytes`] wrote, and checks it.
    ///
    /// # Errors
    /// [`Error::Encoding`] or [`Error::Version`] if the bytes are something else, [`Error::Task`],
    /// [`Error::Profile`] or [`Error::Key`] if the task is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut input = Reader::new(bytes);
        let task = read_task(input.get()?, &mut input, KeyLengths::default())?;
        input.finish()?;
        Ok(task)
    }
}

impl Encode for TaskConfig {
    fn encode(&self, out: &mut Writer) {
        let profile = match self.profile {
            Profile::Sparse => 1,
            Profile::Full => 2,
            Profile::Paper => 3,
        };
        let noise = match self.noise {
            NoiseMode::Secure => 1,
            NoiseMode::Fast => 2,
            // No task has it, and no reader accepts it.
            NoiseMode::Textbook => 3,
        };
        [VERSION, profile, noise, self.receipts as u8].into_iter().for_each(|byte| out.u8(byte));
        [self.key_bits, self.dimension, self.dense, self.block, self.capacity, self.shards]
            .into_iter()
            .for_each(|x| out.u32(x));
        out.u8(self.scale_bits);
        out.u8(self.clip_exponent as u8);
        out.u8(u8::from(self.clip_rule == ClipRule::Clip));
        out.u32(self.min_users);
        out.u8(self.min_percent);
        [self.max_users, self.max_attempts, self.max_model_bytes, self.rounds, self.collect_min]
            .into_iter()
            .for_each(|x| out.u32(x));
        // one group, and no witnesses
        [self.outsize, 1, self.max_failures, output(self.receipts), 0].into_iter().for_each(|x| out.u8(x));
        out.put(&NO_PRIVACY);
    }
}

/// Returns who learns the sum: 1 if the key generator does not, 0 if it does.
fn output(receipts: Receipts) -> u8 {
    u8::from(receipts == Receipts::Masked)
}

/// Reads the policy of a task and checks it.
pub(super) fn read_task(
    id: TaskId,
    input: &mut Reader<'_>,
    lengths: KeyLengths,
) -> Result<TaskParams, Error> {
    if input.u8()? != VERSION {
        return Err(Error::Version);
    }
    let profile = match input.u8()? {
        1 => Profile::Sparse,
        2 => Profile::Full,
        3 => Profile::Paper,
        _ => return Err(Error::Task { reason: "the profile is unknown" }),
    };
    let noise = match input.u8()? {
        1 => NoiseMode::Secure,
        2 => NoiseMode::Fast,
        _ => return Err(Error::Task { reason: "the noise mode is unknown" }),
    };
    let receipts = match input.u8()? {
        0 => Receipts::None,
        1 => Receipts::Checked,
        2 => Receipts::Masked,
        _ => return Err(Error::Task { reason: "the receipts are unknown" }),
    };
    let config = TaskConfig {
        profile,
        noise,
        receipts,
        key_bits: input.get()?,
        dimension: input.get()?,
        dense: input.get()?,
        block: input.get()?,
        capacity: input.get()?,
        shards: input.get()?,
        scale_bits: input.get()?,
        clip_exponent: input.u8()? as i8,
        clip_rule: match input.u8()? {
            0 => ClipRule::Refuse,
            1 => ClipRule::Clip,
            _ => return Err(Error::Task { reason: "the clip rule is unknown" }),
        },
        min_users: input.get()?,
        min_percent: input.get()?,
        max_users: input.get()?,
        max_attempts: input.get()?,
        max_model_bytes: input.get()?,
        rounds: input.get()?,
        collect_min: input.get()?,
        outsize: input.get()?,
        max_failures: {
            match input.u8()? {
                1 => {}
                2..=64 => return Err(Error::Profile { what: "groups" }),
                _ => return Err(Error::Task { reason: "the number of groups must be between 1 and 64" }),
            }
            input.get()?
        },
    };
    match input.u8()? {
        2 => return Err(Error::Profile { what: "sums for users only" }),
        found if found == output(receipts) => {}
        _ => return Err(Error::Task { reason: "the output does not match the receipts" }),
    }
    if input.u8()? != 0 {
        return Err(Error::Profile { what: "witnesses" });
    }
    if input.get::<[u8; 24]>()? != NO_PRIVACY {
        return Err(Error::Profile { what: "differential privacy" });
    }
    TaskParams::new_with(id, config, lengths)
}
