// A seed cannot be converted to bytes.
fn main() {
    bytes::<dphe::scheme::UserSharedSeed>();
}

fn bytes<T: AsRef<[u8]>>() {}
