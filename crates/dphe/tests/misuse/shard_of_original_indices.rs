// Indices that were not permuted cannot be sent.
use dphe::scheme::{IndexMatrix, Original, SealedShard, SealedValues};

fn main() {}

pub fn send(indices: IndexMatrix<Original>, values: SealedValues) {
    SealedShard::new(indices, values);
}
