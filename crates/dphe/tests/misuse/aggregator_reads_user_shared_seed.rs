// The aggregator's keys do not contain the user-shared seed.
fn main() {}

pub fn read(keys: &dphe::AggregatorKeys) {
    let _ = &keys.us;
}
