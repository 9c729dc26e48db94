//! Adds up the sparse vectors of five users. The aggregator sees neither numbers nor indices, and the key generator
//! sees only the sum.

use std::collections::BTreeMap;
use std::time::Instant;

use dphe::Error;
use dphe::simple::SumOptions;

/// Returns the 20 entries of a user, numbered from 0: half of them are at indices that other users have too.
fn vector(user: u32) -> Vec<(u32, f64)> {
    let shared = (0..10).map(|i| (i * 100, 0.5));
    let own = (0..10).map(move |i| (5_000 + user * 10 + i, f64::from(user) - 1.25));
    shared.chain(own).collect()
}

fn main() -> Result<(), Error> {
    let begin = Instant::now();
    let mut options = SumOptions::new(10_000, 20, 5);
    options.key_bits = 2048;
    let mut parties = options.set_up()?;
    println!("keys of five users       {:>8.1?}", begin.elapsed());

    let begin = Instant::now();
    let mut sealed = Vec::new();
    for (number, user) in (0..).zip(&mut parties.users) {
        sealed.push(user.seal(&vector(number))?);
    }
    println!("five users seal          {:>8.1?}", begin.elapsed());

    let begin = Instant::now();
    let sum = parties.aggregator.add(sealed)?;
    println!("the aggregator adds      {:>8.1?}", begin.elapsed());

    let begin = Instant::now();
    let opened = parties.key_generator.open(sum)?;
    println!("the key generator opens  {:>8.1?}", begin.elapsed());

    let mut expected = BTreeMap::new();
    for (index, value) in (0..5).flat_map(vector) {
        *expected.entry(index).or_insert(0.0) += value;
    }
    assert_eq!(opened, expected.into_iter().collect::<Vec<_>>());
    println!("{} of 10,000 entries of the sum are not zero, and all are exact", opened.len());
    Ok(())
}
