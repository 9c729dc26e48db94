// The aggregator's keys have no user-shared seed.
fn main() {}

pub fn read(keys: &dphe::AggregatorKeys) {
    let _ = &keys.us;
}
