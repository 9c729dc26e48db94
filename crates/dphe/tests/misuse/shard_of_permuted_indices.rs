// Indices that were permuted once cannot be sent either.
use dphe::scheme::{IndexMatrix, Permuted, SealedShard, SealedValues};

fn main() {}

pub fn send(indices: IndexMatrix<Permuted>, values: SealedValues) {
    SealedShard::new(indices, values);
}
