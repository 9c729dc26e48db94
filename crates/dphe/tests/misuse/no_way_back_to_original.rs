// The indices of one user are never moved back to the task's positions.
use dphe::scheme::{IndexMatrix, Permuted, UserSharedPermutation};

fn main() {}

pub fn reorder(indices: IndexMatrix<Permuted>, us: &UserSharedPermutation) {
    indices.reorder(us);
}
