//! Adds up three encrypted vectors, and opens only their sum.

use std::time::Instant;

use dphe_paillier::simple::{self, EncryptedVector};
use dphe_paillier::{Error, KeyBits};

fn main() -> Result<(), Error> {
    let begin = Instant::now();
    let secret = simple::generate_key(KeyBits::B2048)?;
    println!("a key of 2048 bits       {:>8.1?}", begin.elapsed());

    // Anyone with the public key can encrypt and add.
    let key = secret.encryption_key();
    let vectors = [vec![0.5; 1000], vec![-0.25; 1000], vec![2.0; 1000]];
    let begin = Instant::now();
    let encrypted: Vec<EncryptedVector> =
        vectors.iter().map(|vector| simple::encrypt_f64(key, vector, 16)).collect::<Result<_, _>>()?;
    println!("3 x 1,000 encryptions    {:>8.1?}", begin.elapsed());

    let begin = Instant::now();
    let sum = encrypted[0].add(&encrypted[1])?.add(&encrypted[2])?;
    println!("2 x 1,000 additions      {:>8.1?}", begin.elapsed());

    let begin = Instant::now();
    let opened = simple::decrypt_f64(&secret, &sum)?;
    println!("1,000 decryptions        {:>8.1?}", begin.elapsed());
    println!("bytes of one vector      {:>8}", encrypted[0].to_bytes()?.len());
    assert_eq!(opened, vec![2.25; 1000]);
    println!("every entry of the sum is 2.25, as it should be");
    Ok(())
}
