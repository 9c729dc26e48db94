// The user-shared permutation is applied first.
use dphe::scheme::{IndexMatrix, Original, UserAggregatorPermutation};

fn main() {}

pub fn permute(indices: IndexMatrix<Original>, ua: &UserAggregatorPermutation) {
    indices.permute(ua);
}
