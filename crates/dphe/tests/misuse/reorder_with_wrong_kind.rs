// The aggregator undoes its own permutation and no other.
use dphe::{DoublyPermuted, IndexMatrix, UserSharedPermutation};

fn main() {}

pub fn reorder(indices: IndexMatrix<DoublyPermuted>, us: &UserSharedPermutation) {
    indices.reorder(us);
}
