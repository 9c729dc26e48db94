// The aggregator's keys do not contain the seeds of masks, and an update does not show them.
fn main() {}

pub fn read(keys: &dphe::AggregatorKeys, update: &dphe::SealedUpdate) {
    let _ = &keys.mask;
    let _ = &keys.masks;
    let _ = &update.blind;
}
