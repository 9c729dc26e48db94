//! Section 7: messages.

use ed25519_dalek::{Signer, SigningKey};

use super::derive::{Digest, Task, h};
use super::mask::Salt;
use super::participants::leaf;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A.
    Aggregator,
    /// G.
    KeyGenerator,
    /// A user.
    User(u32),
}

impl Sender {
    /// Returns the encoded role.
    pub fn role(self) -> u8 {
        match self {
            Self::Aggregator => 1,
            Self::KeyGenerator => 2,
            Self::User(_) => 3,
        }
    }

    /// Returns the encoded user.
    pub fn user(self) -> u32 {
        if let Self::User(user) = self { user } else { 0 }
    }
}

/// The types of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A to G.
    RoundOpen = 1,
    /// G to everybody.
    RoundTicket = 2,
    /// A user to A.
    Upload = 3,
    /// A to a user.
    UploadAck = 4,
    /// A to G.
    Freeze = 5,
    /// G to A.
    FreezeAck = 6,
    /// A to G.
    Decrypt = 9,
    /// G to A.
    Result = 10,
    /// A to users.
    Publish = 11,
    /// A to everybody.
    Close = 12,
    /// A to a user.
    Inclusion = 15,
}

impl Type {
    /// Returns the name, which is also the end of the hash domain.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundOpen => "round-open",
            Self::RoundTicket => "round-ticket",
            Self::Upload => "upload",
            Self::UploadAck => "upload-ack",
            Self::Freeze => "freeze",
            Self::FreezeAck => "freeze-ack",
            Self::Decrypt => "decrypt",
            Self::Result => "result",
            Self::Publish => "publish",
            Self::Close => "close",
            Self::Inclusion => "inclusion",
        }
    }

    fn domain(self) -> String {
        format!("dphe/v2/{}", self.name())
    }
}

/// The bytes before the fields: magic, version, type, task, round, role, user.
pub const PREAMBLE: usize = 4 + 1 + 1 + 16 + 8 + 1 + 4;

/// A message in its parts, so that tests can change any of them.
#[derive(Clone, Debug)]
pub struct Message {
    /// The type, which decides the domain of the hash.
    pub kind: Type,
    /// The header.
    pub header: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl Message {
    /// Makes a signed message.
    pub fn new(
        kind: Type,
        task: &Task,
        round: u64,
        sender: Sender,
        fields: &[u8],
        body: &[u8],
        key: &SigningKey,
    ) -> Self {
        let mut header = b"DPHE".to_vec();
        header.extend([2, kind as u8]);
        header.extend(task);
        header.extend(round.to_be_bytes());
        header.push(sender.role());
        header.extend(sender.user().to_be_bytes());
        assert_eq!(header.len(), PREAMBLE);
        header.extend(fields);
        let mut message = Self { kind, header, signature: vec![], body: body.to_vec() };
        message.sign(key);
        message
    }

    /// Signs the message again with this key.
    pub fn sign(&mut self, key: &SigningKey) {
        self.signature = sign(key, &self.hash());
    }

    /// Returns the hash.
    pub fn hash(&self) -> Digest {
        h(&self.kind.domain(), &[&self.header])
    }

    /// Encodes the message.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.without_body();
        bytes.extend(&self.body);
        bytes
    }

    /// Returns header and signature, which is the form of a result in a publish message.
    pub fn without_body(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        bytes.extend(&self.signature);
        bytes
    }
}

/// Signs a hash with Ed25519.
pub fn sign(key: &SigningKey, hash: &Digest) -> Vec<u8> {
    key.sign(hash).to_bytes().to_vec()
}

/// The concatenated fields of a message.
#[derive(Clone, Default)]
pub struct Fields(Vec<u8>);

impl Fields {
    /// Starts without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes of a fixed width.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Adds one byte.
    pub fn u8(self, x: u8) -> Self {
        self.bytes(&[x])
    }

    /// Adds four bytes.
    pub fn u32(self, x: u32) -> Self {
        self.bytes(&x.to_be_bytes())
    }

    /// Adds eight bytes.
    pub fn u64(self, x: u64) -> Self {
        self.bytes(&x.to_be_bytes())
    }

    /// Adds the number of participants, then each of them.
    pub fn participants(self, participants: &[Participant]) -> Self {
        let start = self.u32(participants.len() as u32);
        participants.iter().fold(start, |fields, participant| fields.bytes(&participant.bytes()))
    }

    /// Adds the number of digests in one byte, then each of them.
    pub fn path(self, path: &[Digest]) -> Self {
        path.iter().fold(self.u8(path.len() as u8), |fields, digest| fields.bytes(digest))
    }

    /// Returns all fields.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// A participant as a freeze lists it.
#[derive(Clone, Debug)]
pub struct Participant {
    /// The user.
    pub user: u32,
    /// The number of ciphertexts in its upload.
    pub count: u32,
    /// The salt of its upload.
    pub salt: Salt,
    /// The hash of the body of its upload.
    pub body_hash: Digest,
    /// The signature of its upload.
    pub signature: Vec<u8>,
}

impl Participant {
    /// Returns the leaf of the participant.
    pub fn leaf(&self) -> Digest {
        leaf(self.user, &self.body_hash, &self.salt)
    }

    /// Encodes the participant.
    pub fn bytes(&self) -> Vec<u8> {
        let fields = Fields::new().u32(self.user).u32(self.count).bytes(&self.salt).bytes(&self.body_hash);
        fields.bytes(&self.signature).done()
    }
}

/// Computes `body hash`.
pub fn body_hash(body: &[u8]) -> Digest {
    h("dphe/v2/upload-body", &[body])
}

/// Computes `payload hash`, and `sum hash` of a publish message.
pub fn payload_hash(payload: &[u8]) -> Digest {
    h("dphe/v2/payload", &[payload])
}

/// Computes `model digest`.
pub fn model_digest(model: &[u8]) -> Digest {
    h("dphe/v2/model", &[model])
}
