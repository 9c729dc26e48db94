// One user's indices never come back to the frame of the weights.
use dphe::{IndexMatrix, Permuted, UserSharedPermutation};

fn main() {}

pub fn reorder(indices: IndexMatrix<Permuted>, us: &UserSharedPermutation) {
    indices.reorder(us);
}
