// Indices that were permuted once cannot be sent either.
use dphe::scheme::{IndexMatrix, OncePermuted, SealedShard, SealedValues};

fn main() {}

pub fn send(indices: IndexMatrix<OncePermuted>, values: SealedValues) {
    SealedShard::new(indices, values);
}
