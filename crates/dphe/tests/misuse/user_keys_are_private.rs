// The seeds of a user are nobody else's business.
fn main() {}

pub fn read(keys: &dphe::UserKeys) {
    let _ = &keys.us;
}
