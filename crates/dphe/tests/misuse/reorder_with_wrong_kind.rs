// The aggregator undoes the user-aggregator permutation and no other.
use dphe::scheme::{DoublyPermuted, IndexMatrix, UserSharedPermutation};

fn main() {}

pub fn reorder(indices: IndexMatrix<DoublyPermuted>, us: &UserSharedPermutation) {
    indices.reorder(us);
}
