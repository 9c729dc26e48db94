//! The policy of a task: its description without its name (docs/protocol.md, section 3).

use dphe_paillier::NoiseMode;

use super::codec::{Encode, Reader, Writer};
use super::domains;
use crate::hash::hash;
use crate::{ClipRule, Digest, Error, KeyLengths, Profile, TaskConfig, TaskId, TaskParams};

/// The length of an encoded policy.
pub(super) const POLICY_BYTES: usize = 48;
const VERSION: u8 = 1;

impl TaskParams {
    /// Returns the hash of the policy, on which all parties agree.
    pub fn policy_hash(&self) -> Digest {
        hash(domains::POLICY, &[&self.config().to_bytes()])
    }
}

impl Encode for TaskConfig {
    fn encode(&self, out: &mut Writer) {
        let profile = match self.profile {
            Profile::Sparse => 1,
            Profile::Full => 2,
            Profile::Paper => 3,
        };
        let noise = if self.noise == NoiseMode::Secure { 1 } else { 2 };
        // the last byte is reserved for receipts
        [VERSION, profile, noise, 0].into_iter().for_each(|byte| out.u8(byte));
        [self.key_bits, self.dimension, self.dense, self.block, self.capacity, self.shards]
            .into_iter()
            .for_each(|x| out.u32(x));
        out.u8(self.scale_bits);
        out.u8(self.clip_exponent as u8);
        out.u8(u8::from(self.clip_rule == ClipRule::Clip));
        out.u32(self.min_users);
        out.u8(self.min_percent);
        [self.max_users, self.max_attempts, self.max_model_bytes].into_iter().for_each(|x| out.u32(x));
    }
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
    if input.u8()? != 0 {
        return Err(Error::Profile { what: "receipts" });
    }
    let config = TaskConfig {
        profile,
        noise,
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
    };
    TaskParams::new_with(id, config, lengths)
}
