// Nothing reads the weights of an update but what seals them.
fn main() {}

pub fn read(update: &dphe::LocalUpdate) {
    let _ = update.weights().values();
}
