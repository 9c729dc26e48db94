// The seeds of a user cannot be read.
fn main() {}

pub fn read(keys: &dphe::UserKeys) {
    let _ = &keys.us;
}
