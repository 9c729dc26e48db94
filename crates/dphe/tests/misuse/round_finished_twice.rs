// Finishing a round consumes it.
use dphe::{Collecting, Threads};

fn main() {}

pub fn finish(round: Collecting) {
    let _ = round.finish(Threads::ONE);
    let _ = round.finish(Threads::ONE);
}
