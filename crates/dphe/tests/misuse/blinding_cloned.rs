// A blinding cannot be cloned.
fn main() {
    clone::<dphe_paillier::Blinding>();
}

fn clone<T: Clone>() {}
