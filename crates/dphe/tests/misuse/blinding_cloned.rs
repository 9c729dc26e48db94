// Noise cannot be copied.
fn main() {
    clone::<dphe_paillier::Blinding>();
}

fn clone<T: Clone>() {}
