// The indices of one user are never moved back to the task's positions.
use dphe::scheme::{IndexMatrix, OncePermuted, UserSharedPermutation};

fn main() {}

pub fn reorder(indices: IndexMatrix<OncePermuted>, us: &UserSharedPermutation) {
    indices.reorder(us);
}
