// A user gets numbers from a published sum by checking it and in no other way.
use dphe::WeightSum;
use dphe::scheme::{MaskedSum, UncheckedSum, User};

fn main() {}

pub fn checked(sum: &UncheckedSum, user: &User) -> Result<WeightSum, dphe::Error> {
    sum.check(user)
}

pub fn read(sum: &UncheckedSum, user: &User) {
    let _ = sum.weights();
    let _ = sum.decode_unchecked(user);
}

pub fn convert(sum: UncheckedSum) -> WeightSum {
    sum.into()
}

pub fn skip_the_aggregator(sum: &MaskedSum, user: &User) {
    let _ = sum.check(user);
    let _ = sum.decode_unchecked(user);
}
