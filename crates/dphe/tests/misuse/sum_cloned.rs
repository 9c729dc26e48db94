// A sum cannot be copied.
fn main() {
    clone::<dphe::SealedSum>();
}

fn clone<T: Clone>() {}
