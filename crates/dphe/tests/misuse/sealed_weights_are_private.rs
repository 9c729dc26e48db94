// The weights of a sealed update cannot be read.
fn main() {}

pub fn read(update: &dphe::SealedUpdate) {
    let _ = update.weights();
    let _ = update.shards;
}
