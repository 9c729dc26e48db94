// A sealed sum cannot be cloned.
fn main() {
    clone::<dphe::SealedSum>();
}

fn clone<T: Clone>() {}
