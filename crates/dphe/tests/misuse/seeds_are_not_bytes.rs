// A seed cannot be read, written or sent.
fn main() {
    bytes::<dphe::UserSharedSeed>();
}

fn bytes<T: AsRef<[u8]>>() {}
