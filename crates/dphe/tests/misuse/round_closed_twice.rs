// A round is used up when it is closed.
use dphe::{Collecting, Threads};

fn main() {}

pub fn close(round: Collecting) {
    let _ = round.close(Threads::ONE);
    let _ = round.close(Threads::ONE);
}
