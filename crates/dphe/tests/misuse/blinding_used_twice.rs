// An encryption consumes its blinding.
use dphe_paillier::{Blinding, EncryptionKey, Plaintext, Threads};

fn main() {}

pub fn encrypt(key: &EncryptionKey, m: &[Plaintext], noise: Vec<Blinding>) {
    let _ = key.encrypt_with(m, noise, Threads::ONE);
    let _ = key.encrypt_with(m, noise, Threads::ONE);
}
