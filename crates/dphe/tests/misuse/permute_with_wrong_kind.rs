// The user-shared permutation comes first.
use dphe::{IndexMatrix, Original, UserAggregatorPermutation};

fn main() {}

pub fn permute(indices: IndexMatrix<Original>, ua: &UserAggregatorPermutation) {
    indices.permute(ua);
}
